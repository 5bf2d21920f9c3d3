"""The service that the tests call, its stub, and a real server for it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio

sys.path.insert(0, str(Path(__file__).parents[1] / "protos"))
pb, services = grpc.protos_and_services("echo/v1/echo.proto")

Message = pb.Message
EchoStub = services.EchoStub


class Echo(services.EchoServicer):
    """Echoes messages and counts how often each text was executed."""

    def __init__(self):
        self.executed = Counter()

    async def Unary(self, request, context):  # noqa: N802
        self.executed[request.text] += 1
        return request

    async def Down(self, request, context):  # noqa: N802
        for _ in range(request.count):
            yield request

    async def Up(self, request_iterator, context):  # noqa: N802
        texts = [request.text async for request in request_iterator]
        return Message(text="".join(texts), count=len(texts))

    async def Both(self, request_iterator, context):  # noqa: N802
        async for request in request_iterator:
            yield request


@contextlib.asynccontextmanager
async def serving(servicer=None, *, port=0, credentials=None, address=None, options=()) -> AsyncIterator[int]:
    """Run a real server; yield its port."""
    server = grpc.aio.server(options=options)
    services.add_EchoServicer_to_server(servicer or Echo(), server)
    where = address or f"127.0.0.1:{port}"
    bound = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


async def _main(port: str) -> None:
    async with serving(port=int(port)):
        print("serving", flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
