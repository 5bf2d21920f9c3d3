#!/usr/bin/env bash
# A second `stop(20)` cuts the running calls of pygrpc-native's server, though 20 s of grace have hardly begun.
#
# Versions: pygrpc-native 0.5.0, grpcio 1.85.3 to compare; Python 3.11 or newer, Linux x86_64. pygrpc-native calls any
# difference from grpcio that its README does not list a bug. The documentation of grpcio's `Server.stop` says that it
# is idempotent and may be called at any time, that a smaller grace in a later call stops the server sooner, and that a
# larger one does not stop it later. Three calls of two seconds run, and `stop(20)` is called once, or twice in a row,
# as a program does whose signal handler and whose `finally` clause both stop the server.
#
# Seen: grpcio answers 3 of 3 calls in both cases. pygrpc-native answers 3 of 3 after one `stop(20)`, and none after
# two: all end at once with UNAVAILABLE. Callers that repeat UNAVAILABLE run work again that had nearly been done.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3 pygrpc-native==0.5.0
cat > "$folder/see.py" <<'PYTHON'
import collections, concurrent.futures, sys, time
import grpc, pygrpc_native


def answer(request, context):
    time.sleep(2)
    return request


def stop(make_server, times):
    """Return how three running calls end when the server is stopped as often as this."""
    server = make_server(concurrent.futures.ThreadPoolExecutor(8))
    server.add_registered_method_handlers("a.B", {"C": grpc.unary_unary_rpc_method_handler(answer)})
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [channel.unary_unary("/a.B/C").future(b"a", timeout=30, wait_for_ready=True) for _ in range(3)]
        time.sleep(0.5)
        for _ in range(times):
            stopped = server.stop(20)
        ends = collections.Counter(call.code().name for call in calls)
        stopped.wait(30)
    return dict(ends)


servers = {"grpcio": grpc.server, "pygrpc-native": pygrpc_native.server}
seen = {f"{name}, {times} stop": stop(make, times) for name, make in servers.items() for times in (1, 2)}
print(seen)
expected = dict.fromkeys(seen, {"OK": 3}) | {"pygrpc-native, 2 stop": {"UNAVAILABLE": 3}}
sys.exit(seen != expected)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
