#!/usr/bin/env bash
# The 201st deadline that expires within 30 s costs a client of a Vert.x gRPC server its connection and all its calls.
#
# Versions: vertx-grpc-server 5.0.7 on Vert.x 5.0.7 and Netty 4.2.9 (Maven Central), grpcio 1.85.3 as the client, and as
# a server to compare; JDK 17 or newer, Maven, Python 3.11 or newer, Linux. A gRPC client ends a call whose deadline has
# passed with RST_STREAM(CANCEL), which PROTOCOL-HTTP2.md maps to the cancellation of that call ("Errors"). Vert.x lets
# a connection send 200 RST_STREAMs in 30 s, a limit against floods in the options of its HTTP server. On one
# connection, a call of 15 s runs, while one caller makes 250 calls with a deadline of 40 ms, one after the other, of a
# method that takes longer.
#
# Seen: with grpcio's server, the 250 calls end with DEADLINE_EXCEEDED and the long one with OK. With Vert.x, so do 249
# or 250, but the long call ends in the middle with UNAVAILABLE, "GOAWAY received; Error code: 11; Debug Text: Maximum
# number of RST frames reached". So a Vert.x server that misses seven deadlines a second of one client also loses that
# client's other calls, and has to serve its reconnect and its retries when it is slowest.
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
      <groupId>io.vertx</groupId>
      <artifactId>vertx-grpc-server</artifactId>
      <version>5.0.7</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpServer;
import io.vertx.grpc.server.GrpcServer;
import java.util.concurrent.TimeUnit;

/** Answers each call after the time of its method, unless it has been cancelled, and prints its port. */
public final class See {
  public static void main(String[] args) throws Exception {
    Vertx vertx = Vertx.vertx();
    GrpcServer grpc = GrpcServer.server(vertx);
    grpc.callHandler(
        request -> {
          long wait = request.methodName().equals("Long") ? 15_000 : 1_000;
          long timer = vertx.setTimer(wait, id -> request.response().end(Buffer.buffer()));
          request.errorHandler(error -> vertx.cancelTimer(timer));
        });
    HttpServer http = vertx.createHttpServer().requestHandler(grpc);
    http.listen(0, "127.0.0.1").await(30, TimeUnit.SECONDS);
    System.out.println(http.actualPort());
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import collections, concurrent.futures, pathlib, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])


def call(channel, method, timeout):
    try:
        channel.unary_unary("/a.B/" + method)(b"", timeout=timeout)
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"
    return "OK"


def see(port):
    """Return how 250 calls with short deadlines end, and how the long call beside them does."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, concurrent.futures.ThreadPoolExecutor(1) as pool:
        grpc.channel_ready_future(channel).result(30)
        long = pool.submit(call, channel, "Long", 60)
        time.sleep(0.5)
        ends = collections.Counter(call(channel, "Short", 0.04).split()[0] for _ in range(250))
        return dict(ends), long.result()


def answer(wait):
    def handle(request, context):
        end = time.monotonic() + wait
        while context.is_active() and time.monotonic() < end:
            time.sleep(0.01)
        return b""

    return grpc.unary_unary_rpc_method_handler(handle)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
server.add_registered_method_handlers("a.B", {"Long": answer(15), "Short": answer(1)})
port = server.add_insecure_port("127.0.0.1:0")
server.start()
grpcio = see(port)
server.stop(0).wait()
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
vertx_server = subprocess.Popen(
    ["java", "-cp", classpath, "See"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
)
try:
    vertx = see(int(vertx_server.stdout.readline()))
finally:
    vertx_server.kill()
    vertx_server.wait()
print(f"grpcio: 250 calls {grpcio[0]}, the long one: {grpcio[1]}")
print(f"Vert.x: 250 calls {vertx[0]}, the long one: {vertx[1]}")
expected = "Maximum number of RST frames reached"
expired = grpcio[0].get("DEADLINE_EXCEEDED"), vertx[0].get("DEADLINE_EXCEEDED", 0) > 200
cut = vertx[1].startswith("UNAVAILABLE") and expected in vertx[1]
sys.exit(not (expired == (250, True) and grpcio[1] == "OK" and cut))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
