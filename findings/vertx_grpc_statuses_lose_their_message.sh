#!/usr/bin/env bash
# Vert.x's gRPC client drops the message of a stream's error, makes "+" a space, and a missed deadline CANCELLED or none.
#
# Versions: vertx-grpcio-client 5.0.7 with grpc-java 1.70.0 (Maven Central), grpcio 1.85.3 as the server and to compare;
# JDK 17 or newer, Maven, Python 3.11 or newer, Linux. `GrpcIoClientChannel` is a channel of Vert.x for the stubs of
# grpc-java. gRPC percent-encodes the message of a status, in which "+" stands for itself, and sends it with the status,
# which comes in the trailers after the messages (PROTOCOL-HTTP2.md); its guide to deadlines has DEADLINE_EXCEEDED for a
# call that is not over in time. After a call that succeeds, four have a deadline of one second: one is refused with
# NOT_FOUND "a+b"; a stream fails so after one message; one works for three seconds; and one goes to a peer that accepts
# the connection and says nothing.
#
# Seen: grpcio's client has NOT_FOUND "a+b" twice, and DEADLINE_EXCEEDED twice. With Vert.x, the refused call has
# NOT_FOUND "a b", and the stream NOT_FOUND without a message: `GrpcClientResponseImpl.statusMessage` looks into the
# headers alone, and decodes them like a query of a URL. The call that takes too long ends with CANCELLED after one
# second. The call to the silent peer is not over after eight seconds, when the script gives up on it: Vert.x looks at
# the deadline once it has its connection. So the reason of a stream's failure never reaches a log, retries and alarms
# for DEADLINE_EXCEEDED never see one, and a server that hangs takes its callers' threads with it.
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
      <artifactId>vertx-grpcio-client</artifactId>
      <version>5.0.7</version>
    </dependency>
    <dependency>
      <groupId>io.grpc</groupId>
      <artifactId>grpc-stub</artifactId>
      <version>1.70.0</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import com.google.protobuf.StringValue;
import io.grpc.CallOptions;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.vertx.core.Vertx;
import io.vertx.core.net.SocketAddress;
import io.vertx.grpcio.client.GrpcIoClient;
import io.vertx.grpcio.client.GrpcIoClientChannel;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

public final class See {
  private static final MethodDescriptor.Marshaller<StringValue> STRINGS =
      ProtoUtils.marshaller(StringValue.getDefaultInstance());

  /** Makes a call, reads its answers, and returns its status. */
  private static String call(GrpcIoClientChannel channel, String name) {
    MethodDescriptor<StringValue, StringValue> method =
        MethodDescriptor.newBuilder(STRINGS, STRINGS)
            .setType(MethodDescriptor.MethodType.SERVER_STREAMING)
            .setFullMethodName("a.B/" + name)
            .build();
    int deadline = name.equals("Warm") ? 30 : 1;
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(deadline, TimeUnit.SECONDS);
    try {
      ClientCalls.blockingServerStreamingCall(channel, method, options, StringValue.of("a")).forEachRemaining(a -> {});
      return "OK";
    } catch (StatusRuntimeException error) {
      Status status = error.getStatus();
      return status.getCode() + " " + status.getDescription();
    }
  }

  public static void main(String[] args) throws Exception {
    GrpcIoClient client = GrpcIoClient.client(Vertx.vertx());
    ExecutorService threads = Executors.newCachedThreadPool();
    for (String name : List.of("Warm", "Refuse", "Fail", "Work", "Silent")) {
      int port = Integer.parseInt(args[name.equals("Silent") ? 1 : 0]);
      GrpcIoClientChannel channel =
          new GrpcIoClientChannel(client, SocketAddress.inetSocketAddress(port, "127.0.0.1"));
      long began = System.nanoTime();
      Future<String> future = threads.submit(() -> call(channel, name));
      String end = "not over";
      try {
        end = future.get(name.equals("Warm") ? 40 : 8, TimeUnit.SECONDS);
      } catch (TimeoutException error) {
        // It is not over.
      }
      System.out.println("see;" + name + ";" + end + ";" + (System.nanoTime() - began) / 1e9);
    }
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, pathlib, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])


def answer(request, context):
    yield request


def refuse(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "a+b")


def fail(request, context):
    yield request
    context.abort(grpc.StatusCode.NOT_FOUND, "a+b")


def work(request, context):
    time.sleep(3)
    yield request


functions = {"Warm": answer, "Refuse": refuse, "Fail": fail, "Work": work}
handlers = {name: grpc.unary_stream_rpc_method_handler(function) for name, function in functions.items()}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
silent = socket.create_server(("127.0.0.1", 0))
silent_port = silent.getsockname()[1]
right = True
for name in ("Refuse", "Fail", "Work", "Silent"):
    with grpc.insecure_channel(f"127.0.0.1:{silent_port if name == 'Silent' else port}") as channel:
        try:
            list(channel.unary_stream(f"/a.B/{name}")(b"", timeout=1, wait_for_ready=True))
        except grpc.RpcError as error:
            print(f"grpcio, {name}: {error.code().name} {error.details()}")
            usual = "DEADLINE_EXCEEDED" if name in ("Work", "Silent") else "NOT_FOUND"
            right = right and error.code().name == usual and (usual != "NOT_FOUND" or error.details() == "a+b")
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
command = ["java", "-cp", classpath, "See", str(port), str(silent_port)]
output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=90, check=True).stdout
expected = {"Refuse": "NOT_FOUND a b", "Fail": "NOT_FOUND null", "Work": "CANCELLED null", "Silent": "not over"}
seen = dict(line.split(";")[1:3] for line in output.splitlines() if line.startswith("see;"))
for line in output.splitlines()[1:]:
    print("Vert.x,", line.replace("see;", "").replace(";", ": ", 1).replace(";", " after "), "s")
del seen["Warm"]
server.stop(5).wait()
sys.exit(not (right and seen == expected))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY \
  timeout 120 "$folder/venv/bin/python" "$folder/see.py" "$folder"
