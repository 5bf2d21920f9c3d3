#!/usr/bin/env bash
# A stream of Frequenz's API clients counts its interruptions for ever: the first beyond `limit` in its life ends it.
#
# Versions: frequenz-client-base 0.11.3, grpcio 1.85.3; Python 3.11 or newer, Linux. `GrpcStreamBroadcaster`, on which
# the clients of Frequenz's APIs build, reconnects a stream by a strategy, whose `limit` is the "max number of retries
# before giving up", and whose `reset()` is "To be called as soon as a connection is successful". A server ends each
# stream with UNAVAILABLE after ten messages. One stream has a `LinearBackoff` with `limit=3`, another one an
# `ExponentialBackoff` from 0.1 s. A third one has an `ExponentialBackoff` of at most 1 ms, without a limit, at a server
# that fails all calls.
#
# Seen: the first stream makes four calls, each of which brings its ten messages, and gives up. The second one waits
# for 0.1, 0.2, 0.4, 0.8 and 1.6 s, although each call was good: nothing calls `reset()`. The third one makes 1,025
# calls, after which its task has ended with OverflowError, from 2.0 ** 1024, which is computed before the cap. Its
# receiver still waits, and gets neither an end nor a StreamFatalError. So a stream that is interrupted once a week ends
# in its fourth week with `limit=3`; with the defaults of `ExponentialBackoff` it waits a minute from the sixth on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet frequenz-client-base==0.11.3 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, logging, sys
import grpc
from frequenz.client.base.retry import ExponentialBackoff, LinearBackoff
from frequenz.client.base.streaming import GrpcStreamBroadcaster, StreamFatalError, StreamRetrying

logging.disable()  # of interruptions
calls = []


async def ten(request, context):
    calls.append("ten")
    for number in range(10):
        yield bytes([number])
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the server restarts")


async def none(request, context):
    calls.append("none")
    await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
    yield b""


async def follow(channel, method, strategy, seconds):
    """Follow a stream for some seconds or to its end; return its messages, its waits, its fatal error and its end."""
    calls.clear()
    stream = GrpcStreamBroadcaster(method, lambda: channel.unary_stream(f"/a.A/{method}")(b""), len, strategy)
    messages, waits, fatal, end = 0, [], None, "waits for the next message"
    receiver = stream.new_receiver(maxsize=5000, include_events=True)
    try:
        async with asyncio.timeout(seconds):
            async for each in receiver:
                if isinstance(each, StreamRetrying):
                    waits.append(each.delay.total_seconds())
                elif isinstance(each, StreamFatalError):
                    fatal = each
                else:
                    messages += isinstance(each, int)
            end = "has ended"
    except TimeoutError:
        pass
    running, error = stream.is_running, None
    if not running:
        error = stream._task.exception()  # the stream has no public way to tell
    await stream.stop() if running else None
    return len(calls), messages, waits, type(fatal).__name__, end, running, type(error).__name__


async def main():
    server = grpc.aio.server()
    methods = {name: grpc.unary_stream_rpc_method_handler(method) for name, method in (("Ten", ten), ("None", none))}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.A", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        limited = await follow(channel, "Ten", LinearBackoff(interval=0.1, jitter=0, limit=3), 20)
        growing = await follow(channel, "Ten", ExponentialBackoff(initial_interval=0.1, jitter=0, limit=5), 20)
        endless = await follow(channel, "None", ExponentialBackoff(max_interval=0.001), 60)
    await server.stop(None)
    print(f"limit=3: {limited[0]} calls, {limited[1]} messages, {limited[3]}, the receiver {limited[4]}")
    print(f"exponential: {growing[0]} calls, {growing[1]} messages, waits of {growing[2]} s")
    print(f"no limit: {endless[0]} calls, fatal error {endless[3]}, the receiver {endless[4]}; the task: {endless[6]}")
    right = limited[:2] == (4, 40) and limited[3] == "StreamFatalError"
    right = right and growing[:3] == (6, 60, [0.1, 0.2, 0.4, 0.8, 1.6])
    hangs = "NoneType", "waits for the next message", False, "OverflowError"
    return right and endless[0] == 1025 and endless[3:] == hangs


sys.exit(None if asyncio.run(main()) else "This behaviour has changed.")
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
