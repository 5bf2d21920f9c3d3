#!/usr/bin/env bash
# If an attempt of Armeria's client fails, each call that waited for it makes a connection of its own, all at once.
#
# Versions: Armeria 1.36.0 (Maven Central); JDK 17 or newer, Maven, Python 3.11 or newer, Linux.
# Twenty requests are made at a time with one HTTP/2 client to a server that accepts connections and sends nothing, so
# that each attempt ends after `connectTimeout`, which is 1 s here. The server notes when connections come.
#
# Seen: 1 connection for all twenty, as HTTP/2 promises; after 1.0 s, when that attempt failed, 19 more within 0.1 s.
# None follows, since each request fails with its own attempt. So the more calls wait, the more often a server that was
# too slow for one connection is dialled at the same moment.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir -p "$folder/src/main/java"
cat > "$folder/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId>
  <artifactId>see</artifactId>
  <version>0</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>com.linecorp.armeria</groupId>
      <artifactId>armeria</artifactId>
      <version>1.36.0</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import com.linecorp.armeria.client.ClientFactory;
import com.linecorp.armeria.client.WebClient;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

public final class See {
  public static void main(String[] args) {
    ClientFactory factory = ClientFactory.builder().connectTimeout(Duration.ofSeconds(1)).build();
    WebClient client = WebClient.builder("h2c://127.0.0.1:" + args[0]).factory(factory).build();
    CompletableFuture<?>[] requests =
        Stream.generate(() -> client.get("/").aggregate().handle((response, error) -> null))
            .limit(20)
            .toArray(CompletableFuture[]::new);
    CompletableFuture.allOf(requests).join();
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import pathlib, socket, subprocess, sys, threading, time

folder = pathlib.Path(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
times, kept = [], []


def accept():
    while True:
        kept.append(listener.accept()[0])
        times.append(time.monotonic())


threading.Thread(target=accept, daemon=True).start()
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
command = ["java", "-cp", classpath, "See", str(listener.getsockname()[1])]
subprocess.run(command, check=True, timeout=60, stderr=subprocess.DEVNULL)
after = sorted(round(at - times[0], 1) for at in times)
print(f"{len(after)} connections, after seconds: {after}")
sys.exit(not (len(after) == 20 and 0.8 <= after[1] and after[19] - after[1] <= 0.5))
PYTHON
python3 "$folder/see.py" "$folder"
