"""A TCP front on loopback that fails as servers do, one scripted behaviour for each connection.

Put it before a real server, or before nothing, and point a client of any kind at it::

    async with FlakyFront(upstream=("127.0.0.1", 50051)) as front:
        front.behaviour = silent
        channel = aio.insecure_channel(front.target)

What a behaviour does is an async function of a `Visit`; the ones below cover the usual failures and users can write
their own. Frames come from h2, so this module needs the extra `testing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from grpc_backoff.errors import MissingExtra

try:
    from h2.config import H2Configuration
    from h2.connection import H2Connection
except ImportError as error:
    raise MissingExtra("testing") from error

__all__ = [
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

_CHUNK = 64 * 1024
_BACKLOG = 1024


@dataclass(eq=False, slots=True)
class Visit:
    """One accepted connection.

    Attributes:
        at: when it was accepted, on the event loop's clock.
        ended: when the client's end was seen closed, or ours was closed; None while it stands.
        upstream: where a healthy front passes it on to.
    """

    at: float
    reader: asyncio.StreamReader = field(repr=False)
    writer: asyncio.StreamWriter = field(repr=False)
    upstream: tuple[str, int] | None = None
    ended: float | None = None

    async def until_closed(self) -> None:
        """Read and throw away until the client closes."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(_CHUNK):
                pass

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behaviour = Callable[[Visit], Awaitable[None]]
"""What to do with one connection; it is closed when this returns."""


async def accept_close(visit: Visit) -> None:
    """Accept and close at once."""


async def accept_reset(visit: Visit) -> None:
    """Accept and reset at once."""
    visit.reset()


async def silent(visit: Visit) -> None:
    """Accept and say nothing, no SETTINGS either, until the client gives up."""
    await visit.until_closed()


async def http1_answer(visit: Visit) -> None:
    """Answer as an HTTP/1.1 server does that was sent something it cannot read."""
    await visit.reader.read(_CHUNK)
    visit.writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    await visit.writer.drain()
    await visit.until_closed()


async def settings_only(visit: Visit) -> None:
    """Send SETTINGS and nothing else, and hold the connection until the client closes."""
    await _send_settings(visit)
    await visit.until_closed()


def settings_then_close(after: float = 0.0) -> Behaviour:
    """Return a behaviour that sends SETTINGS and hangs up `after` seconds later, as a proxy whose upstream is down."""

    async def behave(visit: Visit) -> None:
        await _send_settings(visit)
        await asyncio.sleep(after)

    return behave


async def _send_settings(visit: Visit) -> None:
    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    visit.writer.write(connection.data_to_send())
    await visit.writer.drain()


async def healthy(visit: Visit) -> None:
    """Pass everything on to the upstream server and back."""
    await _relay(visit, 0.0)


def slow_settings(delay: float) -> Behaviour:
    """Return a behaviour that holds back the server's bytes, SETTINGS first, for `delay` seconds, then is healthy."""

    async def behave(visit: Visit) -> None:
        await _relay(visit, delay)

    return behave


async def _relay(visit: Visit, delay: float) -> None:
    if visit.upstream is None:
        raise RuntimeError("a front without upstream cannot be healthy")
    try:
        reader, writer = await asyncio.open_connection(*visit.upstream)
    except OSError:
        return  # as a proxy does whose upstream is gone

    async def back() -> None:
        await asyncio.sleep(delay)
        await _pump(reader, visit.writer)

    pumps = [asyncio.ensure_future(_pump(visit.reader, writer)), asyncio.ensure_future(back())]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        writer.transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


class FlakyFront:
    """A listener on 127.0.0.1 that treats each connection as its script says.

    Attributes:
        behaviour: what is done with each connection accepted from now on.
        visits: every connection accepted so far, in order.
    """

    def __init__(
        self, behaviour: Behaviour = healthy, *, upstream: tuple[str, int] | None = None, port: int = 0
    ) -> None:
        """Listen on `port`, or on any free one, once entered."""
        self.behaviour = behaviour
        self.upstream = upstream
        self.visits: list[Visit] = []
        self.port = port
        self._listener: socket.socket | None = None
        self._listening = False
        self._running: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        """The address to give to a client."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        """Start to listen."""
        await self.listen()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Stop, and break what stands."""
        await self.refuse()
        await self.break_all()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def listen(self) -> None:
        """Accept connections; harmless when it does already."""
        if not self._listening:
            self._listening = True
            self._listener = self._listener or self._bind()
            self._listener.listen(_BACKLOG)
            # Not an asyncio server: one that is closed while it takes a connection leaves that open for good.
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def refuse(self) -> None:
        """Refuse new connections from now on and keep the port; those that stand go on."""
        if self._listening and self._listener is not None:
            self._listening = False
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = self._bind()  # bound and not listening: the kernel refuses, and nobody takes the port

    async def break_all(self) -> None:
        """Reset every connection that stands, as a killed server's kernel does."""
        for visit in self.visits:
            if visit.ended is None:
                visit.reset()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _bind(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port))
        self.port = sock.getsockname()[1]
        return sock

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError, InterruptedError, ConnectionAbortedError):
            while True:
                sock, _ = listener.accept()
                sock.setblocking(False)
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
        if task.cancelled():  # perhaps before its first step, with nobody else to close it
            sock.close()
