#!/usr/bin/env bash
# Yandex Cloud's `RetryPolicy` of four attempts makes three, and later calls one; if a server is down, calls hang.
#
# Versions: yandexcloud 0.413.0, grpcio 1.85.3; Python 3.11 or newer, Linux. `retry_policy` is documented as an object
# "to retry all failed GRPC requests". `RetryPolicy` has `max_attempts=4`, for UNAVAILABLE, and by default the mode
# "temporary", for scripts and CI; the README has the other one, "persistent", for what lives long. A server fails calls
# of a script with UNAVAILABLE: three, then another after nine good ones. The script runs without a policy, with the
# default one, and with the persistent mode. Last, it calls a port where nothing listens, without and with the policy.
#
# Seen: the persistent mode makes four attempts for each call. The default makes three for the first call and one for
# each later one, also after the nine good calls. Its budget of retries is six tokens (`get_throttling_policy`): gRPC
# takes one for each failure, retries only while more than half are left (gRFC A6), and gives a tenth back for a
# success. So the fourth attempt cannot happen, and a script has two retries in all, where each call seems to have
# three. Without a policy, the call to a server that is down fails at once with UNAVAILABLE. With it, the call has not
# returned after fifteen seconds: the policy says `waitForReady`, so that this outage, the plainest one, is not retried
# or reported but waited for, without a limit if the call has none, as in the README's examples.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --no-compile yandexcloud==0.413.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, os, socket, sys, threading
import grpc
from yandexcloud import SDK, RetryPolicy, ThrottlingMode
from yandex.cloud.resourcemanager.v1.folder_service_pb2 import GetFolderRequest
from yandex.cloud.resourcemanager.v1.folder_service_pb2_grpc import FolderServiceStub

attempts, bad = [], True


def get(request, context):
    attempts.append(bad)
    if bad:
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")
    return b""


def connect(policy, port):
    sdk = SDK(iam_token="a", retry_policy=policy)
    return sdk.client(FolderServiceStub, endpoint=f"127.0.0.1:{port}", insecure=True)


def call(stub):
    """Return how a call ends, and the number of its attempts at the server."""
    attempts.clear()
    try:
        stub.Get(GetFolderRequest(folder_id="a"))
        return "OK", len(attempts)
    except grpc.RpcError as error:
        return error.code().name, len(attempts)


def see(name, policy):
    """Return the attempts of three calls that fail, and of one more after nine that succeed."""
    global bad
    stub, bad = connect(policy, port), True
    ends = [call(stub) for _ in range(3)]
    bad = False
    assert [call(stub) for _ in range(9)] == [("OK", 1)] * 9
    bad = True
    ends.append(call(stub))
    assert {code for code, _ in ends} == {"UNAVAILABLE"}
    numbers = [number for _, number in ends]
    print(f"{name}: {numbers} attempts")
    return numbers


def see_down(policy):
    """Return how a call to a port where nothing listens ends within fifteen seconds."""
    seen = ["waits"]
    stub = connect(policy, closed)
    thread = threading.Thread(target=lambda: seen.insert(0, call(stub)[0]), daemon=True)
    thread.start()
    thread.join(15)
    return seen[0]


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
methods = {"Get": grpc.unary_unary_rpc_method_handler(get)}
service = "yandex.cloud.resourcemanager.v1.FolderService"
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with socket.create_server(("127.0.0.1", 0)) as free:
    closed = free.getsockname()[1]
policies = {"none": None, "default": RetryPolicy()}
policies["persistent"] = RetryPolicy(throttling_mode=ThrottlingMode.PERSISTENT)
seen = [see(name, policy) for name, policy in policies.items()]
down = [see_down(None), see_down(RetryPolicy())]
print(f"server down: {down[0]} without a policy, {down[1]} with the default one")
sys.stdout.flush()
expected = [[1, 1, 1, 1], [3, 1, 1, 1], [4, 4, 4, 4]], ["UNAVAILABLE", "waits"]
os._exit((seen, down) != expected)  # the call that waits would keep it alive
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
