package grpcbackoff.interop;

import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** The outcomes of the calls. */
final class Tally {
  private long made;
  private long ok;
  private final Map<String, Long> failed = new TreeMap<>();

  synchronized void making() {
    made++;
  }

  synchronized void succeeded() {
    ok++;
  }

  synchronized void failed(String status) {
    failed.merge(status, 1L, Long::sum);
  }

  /** Returns the last line: the figures, and the versions used. */
  synchronized String done(Map<String, String> versions) {
    long unfinished = made - ok - failed.values().stream().mapToLong(Long::longValue).sum();
    String counts =
        failed.entrySet().stream()
            .map(each -> "\"%s\": %d".formatted(each.getKey(), each.getValue()))
            .collect(Collectors.joining(", "));
    String used =
        versions.entrySet().stream()
            .map(each -> "\"%s\": \"%s\"".formatted(each.getKey(), each.getValue()))
            .collect(Collectors.joining(", "));
    return ("{\"event\": \"done\", \"made\": %d, \"ok\": %d, \"failed\": {%s}, \"unfinished\": %d,"
            + " \"versions\": {%s}}")
        .formatted(made, ok, counts, unfinished, used);
  }
}
