#!/usr/bin/env bash
# hedge-python lets a hedge that fails win: it cancels the attempt that would have succeeded, and the call fails.
#
# Versions: hedge-python 0.3.0, grpcio 1.85.3; Python 3.11 or newer, Linux. In gRFC A6 a hedged attempt that fails with
# a non-fatal status leaves the others running, and gRPC cancels a call at the server if its caller does. hedge-python's
# README says that the response that arrives first is returned and the loser cancelled, "notifying the server". A server
# answers one method's first attempt after a second, and fails every further one at once with UNAVAILABLE, as a replica
# does that sheds load. Another method takes a second, and its caller gives up after 0.5 s (`asyncio.wait_for`). Both
# are called with an ordinary asyncio channel of grpcio and with one that has `HedgedUnaryInterceptor`.
#
# Seen: without hedging, the first call succeeds; with it, the call ends at once with UNAVAILABLE and the good attempt
# is cancelled. The call that is given up is cancelled at the server without hedging; with it, both attempts run on to
# their end. So hedges, which start when a server is slow, turn slow calls into failed ones while a replica refuses
# calls, and callers that give up leave twice the work behind.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet hedge-python==0.3.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, sys
import grpc.aio
from hedge import HedgeConfig
from hedge.interceptor import HedgedUnaryInterceptor

attempts = []  # how each attempt has ended at the server, in the order of their ends


async def work():
    try:
        await asyncio.sleep(1)
        attempts.append("ran")
    except asyncio.CancelledError:
        attempts.append("was cancelled")
        raise


class Server:
    begun = 0

    async def answer_the_first(self, request, context):
        self.begun += 1
        if self.begun > 1:
            attempts.append("failed")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        await work()
        return request

    async def take_a_second(self, request, context):
        await work()
        return request


async def see(interceptors):
    """Make both calls; return how each ends, and how its attempts end at the server."""
    service, server, seen = Server(), grpc.aio.server(), []
    methods = {"First": service.answer_the_first, "Second": service.take_a_second}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=interceptors) as channel:
        for name, patience in (("First", 20), ("Second", 0.5)):
            attempts.clear()
            try:
                await asyncio.wait_for(channel.unary_unary(f"/a.B/{name}")(b"request", timeout=20), patience)
                end = "OK"
            except grpc.aio.AioRpcError as error:
                end = error.code().name
            except TimeoutError:
                end = "given up"
            await asyncio.sleep(2)
            seen.append((end, list(attempts)))
    await server.stop(None)
    return seen


plain, hedged = asyncio.run(see([])), asyncio.run(see([HedgedUnaryInterceptor(HedgeConfig())]))
print(f"without hedging: {plain}\nwith hedge-python: {hedged}")
expected = [("OK", ["ran"]), ("given up", ["was cancelled"])]
right = hedged == [("UNAVAILABLE", ["failed", "was cancelled"]), ("given up", ["ran", "ran"])]
sys.exit(not (plain == expected and right))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
