"""A TCP server on loopback that fails as real servers do, with a chosen behaviour for each connection.

Put it in front of a real server, or use it without one, and connect any client to it::

    async with FlakyFront(upstream=("127.0.0.1", 50051)) as front:
        front.behaviour = silent
        channel = aio.insecure_channel(front.target)

A behaviour is an async function that takes a `Visit`. The ones below cover the usual failures, and you can write your
own. This module uses h2 for its frames, so it needs the extra `testing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from grpc_backoff.base.base_errors import MissingExtra
from grpc_backoff.testing.port import RESET, Port
from grpc_backoff.testing.relay import relay

try:
    from h2.config import H2Configuration
    from h2.connection import H2Connection
except ImportError as error:
    raise MissingExtra("testing", "grpc_backoff.testing.front") from error

__all__ = [
    "HTTP1_ANSWER",
    "Accepted",
    "Behaviour",
    "FlakyFront",
    "Visit",
    "accept_close",
    "accept_reset",
    "healthy",
    "http1_answer",
    "settings_only",
    "settings_then_close",
    "silent",
    "slow_settings",
]

HTTP1_ANSWER = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
"""An HTTP/1.1 server's response to bytes that it cannot parse."""

_HOST = "127.0.0.1"
_CHUNK = 64 * 1024


class Accepted(Protocol):
    """The part of a connection that the failures below need. Other servers can implement it to fail the same way."""

    async def until_closed(self) -> None:
        """Wait until the client closes the connection."""

    def reset(self) -> None:
        """Close the connection with RST instead of FIN."""

    def send_settings(self) -> None:
        """Send the server's SETTINGS frame."""


@dataclass(eq=False, slots=True)
class Visit:
    """One accepted connection.

    Attributes:
        at: when it was accepted, in seconds on the event loop's clock.
        ended: when its behaviour ended, and the connection was closed, in seconds on the same clock; None before that.
        upstream: the address to which a healthy front forwards the connection.
    """

    at: float
    reader: asyncio.StreamReader = field(repr=False)
    writer: asyncio.StreamWriter = field(repr=False)
    upstream: tuple[str, int] | None = None
    ended: float | None = None

    async def until_closed(self) -> None:
        """Read and discard data until the client closes the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(_CHUNK):
                pass

    def reset(self) -> None:
        """Close the connection with RST instead of FIN."""
        with contextlib.suppress(OSError):
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()

    def send_settings(self) -> None:
        """Send a server's SETTINGS frame, with the defaults of h2."""
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        self.writer.write(connection.data_to_send())


Behaviour = Callable[[Visit], Awaitable[None]]
"""Handles one connection, which is closed when the function returns."""


async def accept_close(visit: Accepted) -> None:
    """Accept the connection and close it at once."""


async def accept_reset(visit: Accepted) -> None:
    """Accept the connection and reset it at once."""
    visit.reset()


async def silent(visit: Accepted) -> None:
    """Accept the connection and send nothing, not even SETTINGS, until the client gives up."""
    await visit.until_closed()


async def http1_answer(visit: Visit) -> None:
    """Respond with HTTP/1.1, as a server does when it receives bytes that it cannot parse."""
    await visit.reader.read(_CHUNK)
    visit.writer.write(HTTP1_ANSWER)
    await visit.writer.drain()
    await visit.until_closed()


async def settings_only(visit: Accepted) -> None:
    """Send only SETTINGS and keep the connection open until the client closes."""
    visit.send_settings()
    await visit.until_closed()


def settings_then_close(after: float = 0.0) -> Callable[[Accepted], Awaitable[None]]:
    """Return a behaviour that sends SETTINGS and hangs up `after` seconds later."""

    async def behave(visit: Accepted) -> None:
        visit.send_settings()
        await asyncio.sleep(after)

    return behave


async def healthy(visit: Visit) -> None:
    """Forward everything to the upstream server and back."""
    await _relay(visit)


def slow_settings(delay: float) -> Behaviour:
    """Return a behaviour that forwards everything, but holds back the server's first bytes for `delay` seconds."""
    return partial(_relay, delay=delay)


async def _relay(visit: Visit, delay: float = 0.0) -> None:
    if visit.upstream is None:
        raise RuntimeError("upstream=None: expected the host and port of a server, to which this behaviour forwards")
    try:
        upstream = await asyncio.open_connection(*visit.upstream)
    except OSError:
        return  # like a TCP proxy whose upstream is gone
    await relay((visit.reader, visit.writer), upstream, delay)


class FlakyFront:
    """A TCP server on 127.0.0.1 that handles each connection with its current behaviour.

    Attributes:
        behaviour: how connections accepted from now on are handled.
        visits: every connection accepted so far, in order.
    """

    def __init__(
        self, behaviour: Behaviour = healthy, *, upstream: tuple[str, int] | None = None, port: int = 0
    ) -> None:
        """Listen, once entered, on `port`, or on any free port if it is 0."""
        self.behaviour = behaviour
        self.upstream = upstream
        self.visits: list[Visit] = []
        self.port = port
        self._port: Port | None = None
        self._running: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        """The target for clients to connect to."""
        return f"{_HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        """Start listening."""
        await self.listen()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Stop listening and reset open connections."""
        await self.refuse()
        await self.break_all()
        if self._port is not None:
            self._port.close()
            self._port = None

    async def listen(self) -> None:
        """Start accepting connections; does nothing if the front already accepts them."""
        if self._port is None:
            self._port = Port(_HOST, self.port, self._accepted)
            self.port = self._port.number
        self._port.listen()

    async def refuse(self) -> None:
        """Start refusing new connections, but keep the port; open connections continue."""
        if self._port is not None:
            self._port.refuse()

    async def break_all(self) -> None:
        """Reset every open connection, as the kernel of a killed server does."""
        for visit in self.visits:
            if visit.ended is None:
                visit.reset()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _accepted(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._treat(sock, loop.time(), self.behaviour))
        self._running.add(task)
        task.add_done_callback(partial(self._treated, sock))

    async def _treat(self, sock: socket.socket, at: float, behaviour: Behaviour) -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        visit = Visit(at, reader, writer, self.upstream)
        self.visits.append(visit)
        try:
            await behaviour(visit)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            visit.ended = asyncio.get_running_loop().time()
            writer.transport.abort() if writer.is_closing() else writer.close()

    def _treated(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():  # perhaps before its first step, so that nothing else closes it
            sock.close()
