#!/usr/bin/env bash
# Over Triple, Dubbo's failover repeats calls that timed out, and may have run, but none that a server refuses.
#
# Versions: Dubbo 3.3.6 with protobuf-java 3.25.9 (Maven Central), grpcio 1.85.3 as the server; JDK 17 or newer, Maven,
# Python 3.11 or newer, Linux with IPv6 on its loopback interface. Triple is Dubbo's protocol that speaks gRPC. By
# default its clients use the failover cluster, of which Dubbo's documentation says "when there is failure, retry the
# other server", and that `retries` is the number of retries. gRPC's guide to statuses says that a call which fails with
# UNAVAILABLE can be retried, and that with DEADLINE_EXCEEDED the operation may have completed. A client with two
# retries and a timeout of one second makes ten calls to two servers in turn, of which one refuses each call with
# UNAVAILABLE; then eight calls to a server that works for three seconds.
#
# Seen: five of the ten calls fail with the first UNAVAILABLE, though the other server takes all that it gets; there is
# no retry. Of the eight calls that time out, most are made three times and end after three seconds, others once or
# twice, so the server works about 20 times. Triple puts a server's status into the result
# (`UnaryClientCallListener.onClose`), but `FailoverClusterInvoker` repeats what is thrown. Two timers have the timeout:
# that of the call puts DEADLINE_EXCEEDED into the result, and that of its caller throws; which one is first decides
# about the retries. So when one of two servers goes down for an update, its refusals reach the callers, and when a
# database is slow, Dubbo mostly writes three times.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
mkdir -p "$folder/src/main/java/a"
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
      <groupId>org.apache.dubbo</groupId>
      <artifactId>dubbo</artifactId>
      <version>3.3.6</version>
    </dependency>
    <dependency>
      <groupId>com.google.protobuf</groupId>
      <artifactId>protobuf-java</artifactId>
      <version>3.25.9</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/a/B.java" <<'JAVA'
package a;

import com.google.protobuf.StringValue;

public interface B {
  StringValue c(StringValue request);
}
JAVA
cat > "$folder/src/main/java/a/See.java" <<'JAVA'
package a;

import com.google.protobuf.StringValue;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.RpcException;

public final class See {
  /** Makes as many calls as the first argument says, to the servers of the second. */
  public static void main(String[] args) {
    ApplicationConfig application = new ApplicationConfig("see");
    application.setQosEnable(false);
    ReferenceConfig<B> reference = new ReferenceConfig<>();
    reference.setInterface(B.class);
    reference.setUrl(args[1]);
    reference.setLoadbalance("roundrobin");
    reference.setRetries(2);
    reference.setTimeout(1000);
    DubboBootstrap.getInstance().application(application).reference(reference).start();
    B stub = reference.get();
    for (int call = 0; call < Integer.parseInt(args[0]); call++) {
      long began = System.nanoTime();
      String end = "OK";
      try {
        stub.c(StringValue.of("a"));
      } catch (RpcException error) {
        boolean refused = error.getMessage().contains("UNAVAILABLE : no");
        boolean late = error.isTimeout() || error.getMessage().contains("DEADLINE_EXCEEDED");
        end = refused ? "UNAVAILABLE" : late ? "timeout" : "?";
      }
      System.out.println("see " + end + " " + (System.nanoTime() - began) / 1e9);
    }
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, pathlib, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"


class Server:
    """A server that counts its calls and answers each, or refuses it, or works for three seconds."""

    def __init__(self, kind):
        self.kind = kind
        self.calls = 0
        handler = grpc.unary_unary_rpc_method_handler(self.answer)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(30))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"c": handler})])
        # Dubbo takes 127.0.0.1 for the machine's other address.
        self.url = f"tri://[::1]:{self.server.add_insecure_port('[::1]:0')}/a.B"
        self.server.start()

    def answer(self, request, context):
        self.calls += 1
        if self.kind == "refuse":
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        if self.kind == "work":
            time.sleep(3)
        return request


def call(number, *servers):
    """Make calls to the servers; return how each ended, and after how many seconds."""
    url = ";".join(server.url for server in servers)
    options = ["-Djava.util.logging.config.file=/dev/null", "-cp", classpath]
    process = subprocess.run(["java", *options, "a.See", str(number), url], capture_output=True, text=True, timeout=100)
    ends = [line.split()[1:] for line in process.stdout.splitlines() if line.startswith("see ")]
    return [end for end, _ in ends], [float(seconds) for _, seconds in ends]


good, refusing, working = Server("answer"), Server("refuse"), Server("work")
ends, _ = call(10, good, refusing)
print(f"two servers: {ends}; {refusing.calls} calls of the one that refuses, {good.calls} of the other")
right = ends.count("OK") == good.calls == 5 and ends.count("UNAVAILABLE") == refusing.calls == 5
ends, seconds = call(8, working)
print(f"a server that works for 3 s: {ends} after {seconds} s; {working.calls} calls")
right = right and ends == ["timeout"] * 8 and max(seconds) > 1.9 and working.calls > 8
for server in (good, refusing, working):
    server.server.stop(5).wait()
sys.exit(not right)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY \
  timeout 250 "$folder/venv/bin/python" "$folder/see.py" "$folder"
