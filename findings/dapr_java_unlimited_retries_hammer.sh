#!/usr/bin/env bash
# Dapr's Java SDK pauses between a few retries, but not between unlimited ones: it calls a thousand times in a second.
#
# Versions: dapr-sdk 1.17.1 with grpc-java 1.79.0 and reactor-core 3.5.12 (Maven Central), grpcio 1.85.3 as the server;
# JDK 17 or newer, Maven, Python 3.11 or newer, Linux. The property `dapr.api.maxRetries` sets how often the SDK repeats
# a call that ends with UNAVAILABLE or DEADLINE_EXCEEDED; below 0 there is no limit. A server with Dapr's protocol fails
# each GetState with UNAVAILABLE and notes when it came. A client gets a state and waits for it for three seconds, with
# 0, 2 and -1 retries.
#
# Seen: with 0 retries there is one call. With 2 there are three, and the pauses are about half a second and one second.
# With -1 there are thousands, within milliseconds of each other, for as long as the caller waits. So the setting that
# is to carry a program through a long restart keeps a processor busy in it, and at the sidecar that starts.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
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
      <groupId>io.dapr</groupId>
      <artifactId>dapr-sdk</artifactId>
      <version>1.17.1</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import io.dapr.client.DaprClient;
import io.dapr.client.DaprClientBuilder;
import java.time.Duration;

/** Gets one state and prints how that ends. */
public final class See {
  public static void main(String[] args) throws Exception {
    try (DaprClient client = new DaprClientBuilder().build()) {
      client.getState("a", "b", String.class).block(Duration.ofSeconds(3));
      System.out.println("OK");
    } catch (RuntimeException error) {
      System.out.println(error.getMessage());
    }
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, pathlib, subprocess, sys, time
import grpc

logging.disable()  # of aborts
folder = pathlib.Path(sys.argv[1])
times = []


def fail(request, context):
    times.append(time.monotonic())
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


handler = grpc.unary_unary_rpc_method_handler(fail)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
service = grpc.method_handlers_generic_handler("dapr.proto.runtime.v1.Dapr", {"GetState": handler})
server.add_generic_rpc_handlers([service])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
right = True
for retries, end in {0: "UNAVAILABLE: no", 2: "UNAVAILABLE: no", -1: "Timeout on blocking read"}.items():
    times.clear()
    settings = [f"-Ddapr.api.maxRetries={retries}", "-Ddapr.grpc.endpoint=", f"-Ddapr.grpc.port={port}"]
    command = ["java", *settings, "-cp", classpath, "See"]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, check=True)
    pauses = [after - before for before, after in zip(times, times[1:])]
    told = f", pauses of {min(pauses):.4f} to {max(pauses):.2f} s" if pauses else ""
    print(f"{retries} retries: {run.stdout.strip()}; {len(times)} calls{told}")
    right = right and end in run.stdout
    if retries < 0:
        right = right and len(times) > 200
    else:
        right = right and len(times) == retries + 1 and all(pause > 0.2 for pause in pauses)
server.stop(None).wait()
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
