#!/usr/bin/env bash
# A cancelled call of connectrpc's asyncio client raises ConnectError, which disarms `asyncio.timeout` around retries.
#
# Versions: connectrpc 0.13.0 with pyqwest 0.12.0 and protobuf 7.36.2, grpcio 1.85.3 as the server and to compare;
# Python 3.11 or newer, Linux. Python's documentation says that CancelledError should be let through, and that
# `asyncio.timeout` and TaskGroup "might misbehave" if a coroutine swallows it ("Task Cancellation"). A server answers
# each call after a second. Both clients call it within `asyncio.timeout(0.5)`: once, and in a loop of at most three
# attempts that repeats after the client's own error. Last, a task with that loop is cancelled after 0.5 s.
#
# Seen: with grpcio, each of the three ends after 0.5 s and one call, with TimeoutError or as a cancelled task. With
# connectrpc, the single call ends with ConnectError "Request was cancelled", not with TimeoutError. The loop calls
# again and succeeds after 1.5 s, without any timeout, and the cancelled task is not cancelled but done, with a result.
# So a time limit or a shutdown that asyncio sets is lost in all code that repeats calls after errors.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=(connectrpc==0.13.0 pyqwest==0.12.0 protobuf==7.36.2 grpcio==1.85.3)
"$folder/venv/bin/python" -m pip install --quiet "${packages[@]}"
cat > "$folder/see.py" <<'PYTHON'
import asyncio, sys, time
import grpc.aio
from connectrpc.client import ConnectClient
from connectrpc.compat import google_protobuf_binary_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType
from google.protobuf.wrappers_pb2 import StringValue
from pyqwest import Client, HTTPTransport, HTTPVersion

METHOD = MethodInfo(
    name="C",
    service_name="a.B",
    input=StringValue,
    output=StringValue,
    idempotency_level=IdempotencyLevel.UNKNOWN,
    stream_type=StreamType.UNARY,
)
calls = 0


async def answer(request, context):
    global calls
    calls += 1
    await asyncio.sleep(1)
    return request


async def repeat(call, error):
    """Make the call up to three times, as a loop of retries does."""
    for attempt in range(3):
        try:
            return await call()
        except error:
            if attempt == 2:
                raise


async def in_time(coroutine):
    async with asyncio.timeout(0.5):
        return await coroutine


async def cancel(coroutine):
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0.5)
    task.cancel()
    return await task


async def see(coroutine):
    """Print the seconds that the coroutine takes; return how it ends, and how many calls it makes."""
    global calls
    calls, start = 0, time.monotonic()
    try:
        end = (await coroutine).value
    except (Exception, asyncio.CancelledError) as error:
        end = f"{type(error).__name__}: {error}".rstrip(": ")
    print(f"  {end}; calls: {calls}; seconds: {time.monotonic() - start:.1f}")
    return end, calls


async def main():
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answer, StringValue.FromString, StringValue.SerializeToString)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    http = Client(HTTPTransport(http_version=HTTPVersion.HTTP2))
    options = {"codec": google_protobuf_binary_codec(), "protocol": ProtocolType.GRPC, "http_client": http}
    client = ConnectClient(f"http://{address}", **options)
    seen = {}
    async with grpc.aio.insecure_channel(address) as channel:
        stub = channel.unary_unary("/a.B/C", StringValue.SerializeToString, StringValue.FromString)

        async def of_grpcio():
            return await stub(StringValue(value="answer"))

        async def of_connectrpc():
            return await client.execute_unary(request=StringValue(value="answer"), method=METHOD)

        for name, call, error in (("grpcio", of_grpcio, grpc.RpcError), ("connectrpc", of_connectrpc, ConnectError)):
            await call()
            ways = (in_time(call()), in_time(repeat(call, error)), cancel(repeat(call, error)))
            print(name)
            seen[name] = [await see(way) for way in ways]
    await server.stop(None)
    expected = {
        "grpcio": [("TimeoutError", 1), ("TimeoutError", 1), ("CancelledError", 1)],
        "connectrpc": [("ConnectError: Request was cancelled", 1), ("answer", 2), ("answer", 2)],
    }
    return seen == expected


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
