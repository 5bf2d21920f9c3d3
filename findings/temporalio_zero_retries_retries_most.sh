#!/usr/bin/env bash
# temporalio's client retries most if `max_retries` is 0, and a deadline of one second lets a call take four.
#
# Versions: temporalio 1.35.0, grpcio 1.85.3 for a server with Temporal's methods; Python 3.11 or newer, Linux. The
# fields of `RetryConfig` are documented as "Maximum number of retries", 10 by default, and "Maximum total time", 10 s;
# `rpc_timeout` as "RPC deadline to set for the RPC call", where polling calls alone say that it is for each one. gRPC's
# deadline is of the whole call with all its retries (gRFC A6). A server fails each count of workflows with UNAVAILABLE.
# The client counts with 2, 1 and 0 retries within 3 s and a backoff of at most 0.2 s. Last, the server fails each call
# after 0.5 s, and the client counts with five retries, a backoff of 0.4 s and `rpc_timeout` of one second.
#
# Seen: `max_retries=2` makes two calls, and 1 makes one, so the number counts the first call. 0 makes about fourteen,
# until the 3 s are over: a client that sets it so that nothing is repeated repeats as often as time allows. With
# `rpc_timeout` of one second, the client makes five calls, each with a second left, and raises after 4 s. So code that
# allows a call one second waits for several in an outage, by default up to about ten.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet temporalio==1.35.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, datetime, sys, time
import grpc
from temporalio.client import Client, RPCError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RetryConfig

quiet = Runtime(telemetry=TelemetryConfig(logging=None))


class Server(grpc.GenericRpcHandler):
    """Fails each call but the first one of a connection; notes how much time the calls have."""

    def __init__(self):
        self.remaining, self.takes = [], 0.0

    def service(self, details):
        def answer(_, context):
            if details.method.endswith("/GetSystemInfo"):
                return b""
            self.remaining.append(context.time_remaining())
            time.sleep(self.takes)
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")

        return grpc.unary_unary_rpc_method_handler(answer)


async def count(address, server, max_retries, interval, **options):
    """Count workflows; return what each call has left, and the seconds until the error."""
    retry = RetryConfig(
        initial_interval_millis=interval,
        max_interval_millis=interval,
        randomization_factor=0.0,
        max_elapsed_time_millis=3000 if not options else 10000,
        max_retries=max_retries,
    )
    server.remaining = []
    client = await Client.connect(address, retry_config=retry, runtime=quiet)
    began = time.monotonic()
    try:
        await client.count_workflows(**options)
    except RPCError as error:
        assert error.status.name == "UNAVAILABLE", error
        return server.remaining, time.monotonic() - began
    raise AssertionError("the call has succeeded")


async def see(address, server):
    calls = {}
    for max_retries in (2, 1, 0):
        remaining, _ = await count(address, server, max_retries, 200)
        calls[max_retries] = len(remaining)
    server.takes = 0.5
    remaining, took = await count(address, server, 5, 400, rpc_timeout=datetime.timedelta(seconds=1))
    left = [round(each, 1) for each in remaining]
    print(f"calls by max_retries: {calls}; with rpc_timeout=1 s: {took:.1f} s, calls have {left} s left")
    return calls[2] == 2 and calls[1] == 1 and calls[0] >= 8 and took > 3 and len(left) == 5 and min(left) > 0.5


server = Server()
real = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[server])
port = real.add_insecure_port("127.0.0.1:0")
real.start()
same = asyncio.run(asyncio.wait_for(see(f"127.0.0.1:{port}", server), 60))
real.stop(None).wait()
sys.exit(not same)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
