"""The demo's service: real servers and real stubs, generated at run time from `orders.proto` beside this file."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

__all__ = ["OrderBook", "Server", "place"]

_ROOT = Path(__file__).parents[3]
if str(_ROOT) not in sys.path:
    sys.path.append(str(_ROOT))  # protoc looks for the file from there, also when an import hook found this module

_messages, _services = grpc.protos_and_services("grpc_backoff/cli/demo/orders.proto")

_WORK = 0.01
"""How long a server works on an order, so that there are calls in flight when a connection ends."""


def place(channel: grpc.aio.Channel) -> Any:
    """Return a function that makes the `Place` call on this channel: `call(id, timeout=..., wait_for_ready=...)`."""
    stub = _services.OrdersStub(channel)

    def call(order: str, **arguments: Any) -> Any:
        return stub.Place(_messages.Order(id=order), **arguments)

    return call


@dataclass(frozen=True, slots=True)
class OrderBook:
    """How often each order was executed, by whichever server: what "exactly once" is checked with."""

    executed: Counter[str] = field(default_factory=Counter)

    def twice(self) -> int:
        """Return how many orders were executed more than once."""
        return sum(count > 1 for count in self.executed.values())


class _Orders(_services.OrdersServicer):  # type: ignore[name-defined,misc] # generated
    def __init__(self, book: OrderBook) -> None:
        self._book = book

    async def Place(self, request: Any, _context: Any) -> Any:  # noqa: N802 - the method's name
        self._book.executed[request.id] += 1
        await asyncio.sleep(_WORK)
        return _messages.Receipt(id=request.id)


class Server:
    """A real server on loopback."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        """See `running`."""
        self._server = server
        self.address = ("127.0.0.1", port)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, book: OrderBook, max_connection_age: float | None = None) -> AsyncIterator[Server]:
        """Run a server; with `max_connection_age` it sends GOAWAY on connections of about that age, in seconds."""
        options = [("grpc.so_reuseport", 0)]
        if max_connection_age is not None:
            options.append(("grpc.max_connection_age_ms", round(max_connection_age * 1000)))
        server = grpc.aio.server(options=options)
        _services.add_OrdersServicer_to_server(_Orders(book), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield cls(server, port)
        finally:
            await server.stop(None)

    async def stop(self, grace: float) -> None:
        """Stop; calls that run have `grace` seconds to end."""
        await self._server.stop(grace)
