"""The demo's service, on real servers. It executes orders and returns the name of each as its receipt.

A message is the name of an order, as text, so no generated code is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

__all__ = ["OrderBook", "Server", "place_on"]

_SERVICE = "grpc_backoff.demo.v1.Orders"
_METHOD = "Place"

_WORK = 0.01
"""How long a server works on an order, in seconds. Calls are therefore in flight when a connection ends."""


def place_on(channel: grpc.aio.Channel | grpc.Channel) -> Any:
    """Return a function that calls `Place` on this channel: `call(id, timeout=..., wait_for_ready=...)`."""
    method: Any = channel.unary_unary(f"/{_SERVICE}/{_METHOD}", response_deserializer=bytes.decode)

    def call(order: str, **arguments: Any) -> Any:
        return method(order.encode(), **arguments)  # grpc would encode a str before the serializer sees it

    return call


@dataclass(frozen=True, slots=True)
class OrderBook:
    """Counts how often each order was executed by any of the servers, to check that none is executed twice."""

    executed: Counter[str] = field(default_factory=Counter)

    def twice(self) -> int:
        """Return how many orders were executed more than once."""
        return sum(count > 1 for count in self.executed.values())


def _handler(book: OrderBook) -> grpc.GenericRpcHandler:
    async def receive(order: bytes, _context: Any) -> bytes:
        book.executed[order.decode()] += 1
        await asyncio.sleep(_WORK)
        return order

    return grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: grpc.unary_unary_rpc_method_handler(receive)})


class Server:
    """A real server on loopback."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        """Wrap a server that is already running; `running` creates one."""
        self._server = server
        self.address = ("127.0.0.1", port)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, book: OrderBook, max_connection_age: float | None = None) -> AsyncIterator[Server]:
        """Run a server. With `max_connection_age`, it sends GOAWAY on connections of about that age, in seconds."""
        options = [("grpc.so_reuseport", 0)]
        if max_connection_age is not None:
            options.append(("grpc.max_connection_age_ms", round(max_connection_age * 1000)))
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((_handler(book),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield cls(server, port)
        finally:
            await server.stop(None)

    async def stop(self, grace: float) -> None:
        """Stop the server; running calls have `grace` seconds to finish."""
        await self._server.stop(grace)
