#!/usr/bin/env bash
# A deadline of Wire's gRPC client ends no call, and the server is told how long the client's machine has been up.
#
# Versions: Wire 7.2.0 (wire-grpc-client-jvm) with OkHttp (Maven Central), grpcio 1.85.3 as the server; JDK 17 or newer,
# Maven, Python 3.11 or newer, Linux. `GrpcCall.timeout`, which "configures how long the call can take to complete
# before it is automatically canceled", is an Okio Timeout, which has a relative `timeout` and an absolute `deadline`;
# Okio waits until the earlier one. A server notes the time that a call has left, and works for three seconds or until
# the call ends. A client calls it with a timeout of one second, with a deadline in one second, and with a timeout of 10
# s and that deadline; last, with a timeout of one second, it calls a peer that accepts the connection and says nothing.
#
# Seen: with the timeout, the server sees 1.0 s and ends the call then with DEADLINE_EXCEEDED. With the deadline, the
# call succeeds after 3 s, and the server sees hours or days: the clock of the client's machine, `System.nanoTime()`,
# since Wire sends the deadline itself where grpc-timeout has the time that is left. With both, only the timeout counts.
# The client keeps neither: on the silent peer its call of one second ends after 10 s, by a time limit of OkHttp. So a
# client that hands one deadline on from call to call, which is what `deadline` is for, has none, nor has its server.
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
      <groupId>com.squareup.wire</groupId>
      <artifactId>wire-grpc-client-jvm</artifactId>
      <version>7.2.0</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import com.squareup.wire.GrpcCall;
import com.squareup.wire.GrpcClient;
import com.squareup.wire.GrpcException;
import com.squareup.wire.GrpcMethod;
import com.squareup.wire.ProtoAdapter;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;

public final class See {
  public static void main(String[] args) throws Exception {
    OkHttpClient http = new OkHttpClient.Builder().protocols(List.of(Protocol.H2_PRIOR_KNOWLEDGE)).build();
    GrpcMethod<String, String> method =
        new GrpcMethod<>("/a.B/C", ProtoAdapter.STRING_VALUE, ProtoAdapter.STRING_VALUE);
    for (String kind : List.of("timeout", "deadline", "both", "silent")) {
      String url = "http://127.0.0.1:" + args[kind.equals("silent") ? 1 : 0];
      GrpcClient client = new GrpcClient.Builder().client(http).baseUrl(url).build();
      GrpcCall<String, String> call = client.newCall(method);
      if (!kind.equals("deadline")) {
        call.getTimeout().timeout(kind.equals("both") ? 10 : 1, TimeUnit.SECONDS);
      }
      if (kind.equals("deadline") || kind.equals("both")) {
        call.getTimeout().deadline(1, TimeUnit.SECONDS);
      }
      String end = "OK";
      long began = System.nanoTime();
      try {
        call.executeBlocking("a");
      } catch (GrpcException error) {
        end = error.getGrpcStatus().getName();
      } catch (IOException error) {
        end = error.getClass().getSimpleName();
      }
      double seconds = (System.nanoTime() - began) / 1e9;
      System.out.println(kind + " " + end + " " + seconds + " " + System.nanoTime() / 1_000_000_000);
    }
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, pathlib, socket, subprocess, sys, threading
import grpc

folder = pathlib.Path(sys.argv[1])
remaining = []


def answer(request, context):
    """Note the time that the call has left; work for three seconds or until it ends."""
    ended = threading.Event()
    context.add_callback(ended.set)
    remaining.append(context.time_remaining())
    ended.wait(3)
    return b""


handler = grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
silent = socket.create_server(("127.0.0.1", 0))
command = ["java", "-cp", classpath, "See", str(port), str(silent.getsockname()[1])]
output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
server.stop(5).wait()
right = True
for line, left in zip(output.splitlines(), [*remaining, None], strict=True):
    kind, end, seconds, clock = line.split()
    told = "" if left is None else f"; the server saw {left:.1f} s, the client's clock said {clock} s after the call"
    print(f"{kind}: {end} after {float(seconds):.1f} s{told}")
    if kind == "deadline":
        right = right and end == "OK" and abs(left - int(clock)) < 10
    elif kind == "silent":
        right = right and end != "OK" and float(seconds) > 5
    else:
        expected, least, most = ("DEADLINE_EXCEEDED", 0.5, 1.1) if kind == "timeout" else ("OK", 9, 10.1)
        right = right and end == expected and least < left < most
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
