#!/usr/bin/env bash
# The asyncio etcd client etcetra has an error class for each status, and raises every failure as an unknown one.
#
# Versions: etcetra 0.1.19, which asks for grpcio 1.62; Python 3.11 or newer, Linux. The package has an error class for
# each status, such as EtcdUnavailableError, with its number as `code`; `watch` documents `start_revision` as the
# "revision to watch from (inclusive)". A server with etcd's methods refuses four puts with four statuses. It ends one
# watch with OK and one with UNAVAILABLE, and answers each keepalive of a lease with a TTL of zero: etcd's word that the
# lease is gone.
#
# Seen: each put raises EtcdUnknownError, code 2, whatever the status was, and so does the watch that fails: the client
# compares the method `code` of the error with the numbers, instead of what it returns. So `except EtcdUnavailableError`
# catches nothing, and a program can tell a leader election from a wrong password only by the error's `__cause__`. The
# watch that the server ends raises AttributeError. One with a `start_revision`, as a watcher needs that goes on where
# it was cut, raises TypeError before it calls. The task that keeps the dead lease alive goes on: the owner of the
# lease does not hear that its keys are gone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet etcetra==0.1.19
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, sys
import grpc
from etcetra import EtcdClient, HostPortPair
from etcetra.grpc_api import rpc_pb2, rpc_pb2_grpc

STATUSES = ("UNAVAILABLE", "UNAUTHENTICATED", "PERMISSION_DENIED", "FAILED_PRECONDITION")
watches = []
keepalives = []


class KV(rpc_pb2_grpc.KVServicer):
    def Put(self, request, context):
        context.abort(grpc.StatusCode[request.key.decode()], "no")


class Watch(rpc_pb2_grpc.WatchServicer):
    def Watch(self, requests, context):
        key = next(requests).create_request.key
        watches.append(key)
        yield rpc_pb2.WatchResponse(created=True)
        if key == b"fails":
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")


class Lease(rpc_pb2_grpc.LeaseServicer):
    def LeaseKeepAlive(self, requests, context):
        for request in requests:
            keepalives.append(request.ID)
            yield rpc_pb2.LeaseKeepAliveResponse(ID=request.ID, TTL=0)


async def failure(made):
    """Return what a call raises, and the status of the error that caused it."""
    try:
        await asyncio.wait_for(made, 20)
    except Exception as error:
        cause = error.__cause__
        return type(error).__name__, cause.code().name if isinstance(cause, grpc.RpcError) else None


async def all_of(watch):
    async for _ in watch:
        pass


async def main(port):
    async with EtcdClient(HostPortPair("127.0.0.1", port)).connect() as client:
        puts = [await failure(client.put(status, "")) for status in STATUSES]
        ends = [await failure(all_of(client.watch(key))) for key in ("fails", "ends")]
        later = await failure(all_of(client.watch("later", start_revision=5)))
        keeper = client.create_lease_keepalive_task(7, 0.2)
        for _ in range(200):
            await asyncio.sleep(0.1)
            if len(keepalives) >= 5 or keeper.done():
                break
        goes_on = not keeper.done()
        keeper.cancel()
    print("puts:", puts)
    print(f"watch that fails: {ends[0]}; that ends: {ends[1]}; with start_revision=5: {later}")
    print(f"keepalives of a lease that is gone: {len(keepalives)}; goes on: {goes_on}")
    right = puts == [("EtcdUnknownError", status) for status in STATUSES]
    right = right and ends == [("EtcdUnknownError", "UNAVAILABLE"), ("AttributeError", None)]
    right = right and later == ("TypeError", None) and watches == [b"fails", b"ends"]
    return right and goes_on and len(keepalives) >= 5


server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
rpc_pb2_grpc.add_KVServicer_to_server(KV(), server)
rpc_pb2_grpc.add_WatchServicer_to_server(Watch(), server)
rpc_pb2_grpc.add_LeaseServicer_to_server(Lease(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
right = asyncio.run(main(port))
server.stop(None).wait()
sys.exit(not right)
PYTHON
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
timeout 120 "$folder/venv/bin/python" "$folder/see.py"
