"""Forwards HTTP/2 connections to a server and changes what its clients see of it.

What the server sends is forwarded frame by frame, so that a GOAWAY can be put between any two frames. `chaos.Front` is
what tests use.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from dataclasses import dataclass, field

from grpc_backoff.testing import front as fronts
from grpc_judge.flaky.tls import Tls, TlsSession

_CHUNK = 64 * 1024
_HEADER = 9
_SETTINGS, _GOAWAY = 4, 7
_MAX_CONCURRENT_STREAMS = 3
_SETTING = 6
_EVERY_STREAM = 2**31 - 1


@dataclass(eq=False, slots=True, kw_only=True)
class Relay:
    """A behaviour of a front: it forwards each connection to the front's upstream.

    Attributes:
        latency: how long to hold back everything that the server sends, in seconds.
        cut_after: after how many bytes from the server a connection is reset.
        streams: the most calls that a connection may have at once; None for what the server says.
        tls: the certificate to show to clients; None for connections without TLS. The server has no TLS in any case.
    """

    latency: float = 0.0
    cut_after: int | None = None
    streams: int | None = None
    tls: Tls | None = None
    _open: set[_Forwarded] = field(default_factory=set)

    async def __call__(self, visit: fronts.Visit) -> None:
        """Forward a connection until either side ends it."""
        assert visit.upstream is not None
        try:
            reader, writer = await asyncio.open_connection(*visit.upstream)
        except OSError:
            return  # like a TCP proxy whose server is gone
        forwarded = _Forwarded(visit, TlsSession(self.tls.context("h2")) if self.tls else None)
        self._open.add(forwarded)
        ways = [asyncio.ensure_future(way) for way in (forwarded.up(writer), forwarded.down(reader, self))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(forwarded)
            for way in ways:
                way.cancel()
            writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def drain(self, grace: float) -> None:
        """Send GOAWAY on every connection and close those that are still open after `grace` seconds."""
        draining = list(self._open)
        for each in draining:
            await each.established.wait()
            each.send(_frame(_GOAWAY, _EVERY_STREAM.to_bytes(4, "big") + bytes(4)))
        await asyncio.sleep(grace)
        for each in draining:
            each.visit.writer.close()


class _Forwarded:
    """One connection of a client."""

    def __init__(self, visit: fronts.Visit, session: TlsSession | None) -> None:
        self.visit = visit
        self._session = session
        self.established = asyncio.Event()
        if session is None:
            self.established.set()

    async def up(self, writer: asyncio.StreamWriter) -> None:
        """Forward what the client sends. If its handshake fails, hang up."""
        with contextlib.suppress(ConnectionError):
            while data := await self.visit.reader.read(_CHUNK):
                if self._session is not None:
                    try:
                        data = self._session.receive(data)
                    except ssl.SSLError:
                        break
                    self.visit.writer.write(self._session.outgoing())
                    if self._session.established:
                        self.established.set()
                writer.write(data)
                await writer.drain()

    async def down(self, reader: asyncio.StreamReader, relay: Relay) -> None:
        """Forward what the server sends, in whole frames unless the connection is cut within one."""
        await self.established.wait()
        left = math.inf if relay.cut_after is None else relay.cut_after
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while left > 0:
                header = await reader.readexactly(_HEADER)
                payload = await reader.readexactly(int.from_bytes(header[:3], "big"))
                if relay.streams is not None and header[3] == _SETTINGS and payload:
                    payload = _limited(payload, relay.streams)
                    header = len(payload).to_bytes(3, "big") + header[3:]
                await asyncio.sleep(relay.latency)
                frame = header + payload
                self.send(frame[: int(min(left, len(frame)))])
                await self.visit.writer.drain()
                left -= len(frame)
        if left <= 0:
            self.visit.reset()

    def send(self, data: bytes) -> None:
        """Send bytes to the client, encrypted if it uses TLS."""
        if self._session is not None:
            self._session.send(data)
            data = self._session.outgoing()
        self.visit.writer.write(data)


def _frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind]) + bytes(5) + payload


def _limited(settings: bytes, streams: int) -> bytes:
    """Return the server's SETTINGS with this MAX_CONCURRENT_STREAMS."""
    each = [settings[place : place + _SETTING] for place in range(0, len(settings), _SETTING)]
    kept = [setting for setting in each if int.from_bytes(setting[:2], "big") != _MAX_CONCURRENT_STREAMS]
    return b"".join([*kept, _MAX_CONCURRENT_STREAMS.to_bytes(2, "big") + streams.to_bytes(4, "big")])
