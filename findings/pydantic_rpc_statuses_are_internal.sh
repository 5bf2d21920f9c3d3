#!/usr/bin/env bash
# A pydantic-rpc server answers INTERNAL where its code says NOT_FOUND, by `error_handler` or by `context.abort`.
#
# Versions: pydantic-rpc 0.15.2 with mcp 1.30.0, grpcio 1.85.3; Python 3.11 or newer, Linux. pydantic-rpc's README has
# `@error_handler(KeyError, status_code=grpc.StatusCode.NOT_FOUND)` on a method, by which "exceptions are automatically
# converted to proper status codes". grpcio's `context.abort` ends a call with the status that it gets. Services of both
# servers, `Server` for threads and `AsyncIOServer`, have three methods: one with that decorator raises KeyError, one
# has the same for pydantic's ValidationError with OUT_OF_RANGE, and one aborts with NOT_FOUND "none".
#
# Seen: KeyError is INTERNAL with both servers: of the exceptions that a method names, they look for ValidationError
# alone, which is OUT_OF_RANGE as it should be. `abort` is NOT_FOUND with asyncio; with threads it is INTERNAL without a
# text: grpcio's `abort` raises a plain Exception to leave the handler, and pydantic-rpc takes it for a failure and
# aborts again. So callers take a missing item for a broken server, and a server with threads that sheds load by
# UNAVAILABLE, which they would repeat, for one that fails.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pydantic-rpc==0.15.2 mcp==1.30.0 grpcio==1.85.3
cat > "$folder/serve.py" <<'PYTHON'
import asyncio, sys
import grpc
from pydantic import ValidationError
from pydantic_rpc import AsyncIOServer, Message, Server, error_handler


class Item(Message):
    name: str


class Threads:
    @error_handler(KeyError, status_code=grpc.StatusCode.NOT_FOUND)
    def key(self, item: Item) -> Item:
        raise KeyError(item.name)

    @error_handler(ValidationError, status_code=grpc.StatusCode.OUT_OF_RANGE)
    def validation(self, item: Item) -> Item:
        return Item.model_validate({})

    def abort(self, item: Item, context: grpc.ServicerContext) -> Item:
        context.abort(grpc.StatusCode.NOT_FOUND, "none")


class Asyncio:
    @error_handler(KeyError, status_code=grpc.StatusCode.NOT_FOUND)
    async def key(self, item: Item) -> Item:
        raise KeyError(item.name)

    @error_handler(ValidationError, status_code=grpc.StatusCode.OUT_OF_RANGE)
    async def validation(self, item: Item) -> Item:
        return Item.model_validate({})

    async def abort(self, item: Item, context: grpc.ServicerContext) -> Item:
        await context.abort(grpc.StatusCode.NOT_FOUND, "none")


async def main(port):
    await AsyncIOServer(service=Asyncio(), port=port).run()


if sys.argv[1] == "Threads":
    Server(service=Threads(), port=int(sys.argv[2])).run()
else:
    asyncio.run(main(int(sys.argv[2])))
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import socket, subprocess, sys
import grpc


def call(channel, method):
    try:
        channel.unary_unary(method)(b"\x0a\x01a", timeout=10)
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()!r}" if "Abort" in method else error.code().name
    return "OK"


def see(name):
    """Return how calls of the methods of this server's service end."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "serve.py", name, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(60)
            package = name.lower() + ".v1"
            return [call(channel, f"/{package}.{name}/{method}") for method in ("Key", "Validation", "Abort")]
    finally:
        server.kill()
        server.wait()


seen = {name: see(name) for name in ("Threads", "Asyncio")}
for name, (key, other, end) in seen.items():
    print(f"{name}: KeyError {key}, ValidationError {other}, abort {end}")
threads = ["INTERNAL", "OUT_OF_RANGE", "INTERNAL ''"]
sys.exit(seen != {"Threads": threads, "Asyncio": ["INTERNAL", "OUT_OF_RANGE", "NOT_FOUND 'none'"]})
PYTHON
cd "$folder"
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" see.py
