#!/usr/bin/env bash
# In LittleHorse's asyncio client a quota ends a call with AttributeError; the client for threads waits and goes on.
#
# Versions: littlehorse-client 1.3.0 with grpcio 1.75.1, which it pins; Python 3.11 or newer, Linux. The client has
# "transparent RESOURCE_EXHAUSTED retries", on by default: if a server refuses a call so and says in a RetryInfo when to
# come again, an interceptor waits that long and repeats the call. A server with LittleHorse's protocol refuses the
# first two calls with a RetryInfo of half a second and then answers. A stub for threads and one for asyncio make a
# call, the second one also with the setting `LHC_GRPC_RESOURCE_EXHAUSTED_RETRY=false`; last, a stub for threads makes
# one with metadata of its own, which grpcio's API takes as pairs.
#
# Seen: the stub for threads returns the answer after a second and three calls. The one for asyncio ends after the first
# call with an AttributeError ("'tuple' object has no attribute 'key'"): trailing metadata is plain pairs there, and the
# interceptor wants their names. Without the retries it raises AioRpcError RESOURCE_EXHAUSTED, which a program can
# handle. The call with metadata raises the same AttributeError and never leaves the process. The client's own workers
# are asyncio: their report of a result is such a call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet littlehorse-client==1.3.0
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, logging, os, sys, time
import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from littlehorse.config import LHConfig
from littlehorse.model import TaskDef, TaskDefId, service_pb2_grpc

logging.disable()  # of insecure channels
calls = 0


class Server(service_pb2_grpc.LittleHorseServicer):
    """Has a quota that is used up for two calls."""

    def GetTaskDef(self, request, context):
        global calls
        calls += 1
        if calls <= 2:
            detail = any_pb2.Any()
            detail.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=500_000_000)))
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            status = status_pb2.Status(code=code.value[0], message="no", details=[detail])
            context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
            context.abort(code, "no")
        return TaskDef(id=request)


def configure(**more):
    config = LHConfig()
    config.load({"LHC_API_HOST": "127.0.0.1", "LHC_API_PORT": port, "LHC_API_PROTOCOL": "PLAINTEXT", **more})
    return config


def in_thread(**options):
    return configure().stub().GetTaskDef(TaskDefId(name="a"), **options)


def in_asyncio(**more):
    config = configure(**more)  # which owns the channels

    async def call():
        return await config.stub(async_channel=True).GetTaskDef(TaskDefId(name="a"))

    return asyncio.run(call())


def see(name, call, **options):
    """Return how a call ends, after how many seconds, and how many calls the server got."""
    global calls
    calls, start = 0, time.monotonic()
    try:
        end = call(**options).id.name
    except Exception as error:
        end = type(error).__name__
    seconds = time.monotonic() - start
    print(f"{name}: {end} after {seconds:.1f} s, {calls} calls")
    return end, seconds > 0.9, calls


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
service_pb2_grpc.add_LittleHorseServicer_to_server(Server(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
seen = [
    see("threads", in_thread),
    see("asyncio", in_asyncio),
    see("asyncio without retries", in_asyncio, LHC_GRPC_RESOURCE_EXHAUSTED_RETRY="false"),
    see("threads, with metadata", in_thread, metadata=[("a", "b")]),
]
sys.stdout.flush()
expected = [("a", 3), ("AttributeError", 1), ("AioRpcError", 1), ("AttributeError", 0)]
os._exit(not ([(end, count) for end, _, count in seen] == expected and seen[0][1]))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/venv/bin/python" "$folder/see.py"
