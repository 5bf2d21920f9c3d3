"""One accepted TCP connection, with TLS if the server uses it.

This layer has no knowledge of HTTP/2. Everything that either side does to the connection below HTTP/2 passes through
here, so the end of a connection is also recorded here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

from grpc_backoff.testing.port import RESET
from grpc_judge.flaky.record import Record
from grpc_judge.flaky.tls import TlsSession
from grpc_judge.timeline import Ending

_PATIENCE = 1.0
"""How long a closed connection waits for its client to read earlier output, in seconds."""


class Wire(asyncio.Protocol):
    """The server's end of one TCP connection.

    Attributes:
        deliver: called with the client's bytes after decryption.
        lost: called when the connection has ended and its socket is closing.
    """

    def __init__(self, record: Record, tls: TlsSession | None = None) -> None:
        """Record the connection's events in `record`. With `tls`, a handshake comes first."""
        self._loop = asyncio.get_running_loop()
        self._record = record
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._impatience: asyncio.TimerHandle | None = None
        self._spoken = asyncio.Event()
        self._established = asyncio.Event()
        self._writable = asyncio.Event()
        self._doom: Callable[[], None] | None = None  # set if the end comes before the transport
        self.deliver: Callable[[bytes], object] = _nothing
        self.lost: Callable[[], object] = _nothing

    async def spoken(self) -> None:
        """Wait until the client has sent its first bytes."""
        await self._spoken.wait()

    async def established(self) -> None:
        """Wait for the end of the TLS handshake; return at once without TLS."""
        if self._tls is not None:
            await self._established.wait()

    async def writable(self) -> None:
        """Wait until the client has read enough of the output for more to be written."""
        await self._writable.wait()

    def write(self, data: bytes) -> None:
        """Send data. Does nothing once the connection is closing."""
        if self._tls is None:
            self._send(data)
        elif data and not self._closing():
            self._tls.send(data)
            self._send(self._tls.outgoing())

    def close(self) -> None:
        """Close the connection with FIN, after sending everything that was written."""
        self._record.end(Ending.CLOSED)
        if self._transport is None or self._transport.is_closing():
            return
        if self._tls is not None:
            self._tls.close()
            self._send(self._tls.outgoing())
        with contextlib.suppress(OSError):
            # FIN must come first, because closing a socket with unread bytes sends only RST.
            self._transport.write_eof()
        self._impatience = self._loop.call_later(_PATIENCE, self._transport.abort)
        self._transport.close()

    def reset(self) -> None:
        """Close the connection with RST."""
        self._record.end(Ending.RESET)
        if self._transport is None:
            self._doom = self.reset
        elif not self._transport.is_closing():
            with contextlib.suppress(OSError):
                self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()

    def drop(self) -> None:
        """Close as the kernel does when a process is killed: with FIN, or with RST if there are unread bytes."""
        self._record.end(Ending.CLOSED)
        if self._transport is None:
            self._doom = self.drop
        else:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection. Called by the event loop, like all methods below."""
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()
        if self._doom is not None:
            self._doom()

    def data_received(self, data: bytes) -> None:
        """Record that the client sent bytes and deliver them."""
        self._record.note("first_bytes")
        self._spoken.set()
        if self._tls is None:
            self.deliver(data)
        else:
            self._decrypt(self._tls, data)

    def eof_received(self) -> None:
        """Record the client's FIN and close. A gRPC client does not read any more after sending FIN."""
        self._record.end(Ending.PEER_CLOSED)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end if nothing has recorded it yet. An error means that the client sent RST or vanished."""
        self._record.end(Ending.PEER_RESET if exc is not None else Ending.CLOSED)
        self._writable.clear()
        if self._impatience is not None:
            self._impatience.cancel()
        self.lost()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answers, which would otherwise pile up without limit."""
        self._writable.clear()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the client."""
        self._writable.set()
        if self._transport is not None:
            self._transport.resume_reading()

    def _decrypt(self, tls: TlsSession, data: bytes) -> None:
        try:
            plain = tls.receive(data)
        except ssl.SSLError:
            self.close()  # after the alert that gives the reason
            return
        self._send(tls.outgoing())
        if tls.established:
            self._established.set()
        if plain:
            self.deliver(plain)
        if tls.peer_closed:
            self._record.end(Ending.PEER_CLOSED)
            self.close()

    def _send(self, data: bytes) -> None:
        if data and self._transport is not None and not self._closing():
            self._transport.write(data)

    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()


def _nothing(*_: object) -> None:
    """Do nothing: the default of `deliver` and `lost`."""
