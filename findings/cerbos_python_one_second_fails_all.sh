#!/usr/bin/env bash
# With `timeout_secs=1`, Cerbos's Python client fails each check at once, and with 3 it gives up before 2 s have passed.
#
# Versions: cerbos 0.16.1 with grpcio 1.85.3; Python 3.11 or newer, Linux. `CerbosClient(timeout_secs=...)` is the
# "request timeout in seconds"; the client writes it into the service config of its channel. A server with Cerbos's
# protocol answers at once, or, if the first action is "slow", after six seconds; it notes the time that each call has
# left. Clients with timeouts of 1, 3 and 5 s make a quick and a slow call of `check_resources`; a client with a timeout
# of 3 s asks for `server_info`, which takes six seconds.
#
# Seen: with 1 s even the quick call ends with DEADLINE_EXCEEDED, within a tenth of a second, and never reaches the
# server. 3 s ends the slow call after 1 to 2 s, and 5 s after 3 to 4 s: grpcio's core counts the timeout of a service
# config from one to two seconds before the call. The server sees no deadline, so it works on. `server_info` has no
# timeout, since the service config names two methods only. So a timeout that suits an authorization check, which takes
# milliseconds, lets no check succeed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet cerbos==0.16.1 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, os, sys, time
import grpc
from cerbos.engine.v1.engine_pb2 import Principal, Resource
from cerbos.request.v1.request_pb2 import CheckResourcesRequest
from cerbos.response.v1 import response_pb2
from cerbos.sdk.grpc.client import CerbosClient

left = []


def check(request, context):
    left.append(context.time_remaining())
    if request.resources[0].actions[0] == "slow":
        time.sleep(6)
    return response_pb2.CheckResourcesResponse()


def tell(request, context):
    time.sleep(6)
    return response_pb2.ServerInfoResponse()


def handle(function, request=None):
    read = request.FromString if request else None
    return grpc.unary_unary_rpc_method_handler(function, read, lambda response: response.SerializeToString())


handlers = {"CheckResources": handle(check, CheckResourcesRequest), "ServerInfo": handle(tell)}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("cerbos.svc.v1.CerbosService", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()


def call(timeout, action):
    """Return how a check of this action ends, or without one, `server_info`, and after which time."""
    with CerbosClient(f"127.0.0.1:{port}", timeout_secs=timeout, wait_for_ready=True) as client:
        began = time.monotonic()
        try:
            if action:
                entry = CheckResourcesRequest.ResourceEntry(actions=[action], resource=Resource(id="a", kind="b"))
                client.check_resources(Principal(id="c", roles=["d"]), [entry])
            else:
                client.server_info()
            end = "OK"
        except grpc.RpcError as error:
            end = error.code().name
        return end, time.monotonic() - began


expected = {
    (1, "quick"): ("DEADLINE_EXCEEDED", 0, 0.3),
    (1, "slow"): ("DEADLINE_EXCEEDED", 0, 0.3),
    (3, "quick"): ("OK", 0, 0.9),
    (3, "slow"): ("DEADLINE_EXCEEDED", 0.8, 2.3),
    (5, "quick"): ("OK", 0, 0.9),
    (5, "slow"): ("DEADLINE_EXCEEDED", 2.8, 4.3),
    (3, None): ("OK", 5.9, 7),
}
right = True
for (timeout, action), (status, least, most) in expected.items():
    end, seconds = call(timeout, action)
    print(f"timeout {timeout} s, {action or 'server_info, which takes 6 s'}: {end} after {seconds:.2f} s")
    right = right and end == status and least <= seconds <= most
print(f"deadlines at the server: {len(left)} calls with {'none' if min(left) > 1e9 else min(left)}")
sys.stdout.flush()
os._exit(not (right and len(left) == 4 and min(left) > 1e9))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
