package grpcbackoff.interop;

import com.linecorp.armeria.common.HttpData;
import com.linecorp.armeria.common.HttpHeaders;
import com.linecorp.armeria.common.HttpRequest;
import com.linecorp.armeria.common.HttpResponse;
import com.linecorp.armeria.common.HttpStatus;
import com.linecorp.armeria.common.ResponseHeaders;
import com.linecorp.armeria.common.util.Version;
import com.linecorp.armeria.server.Server;
import com.linecorp.armeria.server.ServerBuilder;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/**
 * Serves EmptyCall with Armeria, without gRPC's own library. servers/README.md documents its
 * arguments and output.
 */
public final class Main {
  private static final Duration DRAIN = Duration.ofSeconds(15);

  /** By default, Armeria ends at once what still runs. */
  private static final Duration QUIET = Duration.ofSeconds(1);

  private static final ResponseHeaders HEADERS =
      ResponseHeaders.of(HttpStatus.OK, "content-type", "application/grpc");
  private static final HttpHeaders TRAILERS = HttpHeaders.of("grpc-status", "0");

  private Main() {}

  public static void main(String[] args) throws IOException {
    Map<String, String> order = new HashMap<>();
    for (int i = 0; i + 1 < args.length; i += 2) {
      order.put(args[i].replaceFirst("^--", ""), args[i + 1]);
    }
    Server server = start(order);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> drain(server)));
    System.out.printf(
        "{\"event\": \"listening\", \"port\": %d,"
            + " \"versions\": {\"armeria\": \"%s\", \"java\": \"%s\"}}%n",
        server.activeLocalPort(),
        Version.get("armeria", Server.class.getClassLoader()).artifactVersion(),
        System.getProperty("java.version"));
    while (System.in.read() != -1) {}
    Runtime.getRuntime().halt(0);
  }

  private static Server start(Map<String, String> order) {
    int port = Integer.parseInt(order.getOrDefault("port", "0"));
    ServerBuilder builder =
        Server.builder()
            .http(new InetSocketAddress("127.0.0.1", port))
            .service(
                "/grpc.testing.TestService/EmptyCall", (context, request) -> answer(request))
            .gracefulShutdownTimeout(QUIET, DRAIN);
    if (order.containsKey("max-age-ms")) {
      builder
          .maxConnectionAgeMillis(Long.parseLong(order.get("max-age-ms"))) // at least a second
          .connectionDrainDurationMicros(
              1000 * Long.parseLong(order.getOrDefault("grace-ms", "1000")));
    }
    Server server = builder.build();
    server.start().join();
    return server;
  }

  private static HttpResponse answer(HttpRequest request) {
    long millis = Long.parseLong(request.headers().get("answer-after-ms", "0"));
    HttpResponse response = HttpResponse.of(HEADERS, HttpData.wrap(new byte[5]), TRAILERS);
    return HttpResponse.of(
        request
            .aggregate()
            .thenApply(read -> HttpResponse.delayed(response, Duration.ofMillis(millis))));
  }

  /** Waits for running calls to end, on SIGTERM, and exits with status 0 instead of the signal's. */
  private static void drain(Server server) {
    server.stop().join();
    Runtime.getRuntime().halt(0);
  }
}
