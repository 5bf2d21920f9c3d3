"""One accepted TCP connection, with TLS on it where the server has it: bytes, and how they end.

It knows nothing of HTTP/2. Everything that a client can do to a connection, and everything that is done to a client
below HTTP/2, passes through here, so that is where the ends are noted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

from grpc_backoff.testing.port import RESET
from interop.flaky.record import Record
from interop.flaky.tls import TlsSession
from interop.timeline import Ending

__all__ = ["Wire"]

_PATIENCE = 1.0
"""How long a closed connection waits for its client to take what was written before."""


class Wire(asyncio.Protocol):
    """The server's end of one TCP connection.

    Attributes:
        deliver: called with what the client says, in plain.
        lost: called when the connection is over, as its socket is closed.
    """

    def __init__(self, record: Record, tls: TlsSession | None = None) -> None:
        """Write the connection's moments into `record`; with `tls`, make its handshake first."""
        self._loop = asyncio.get_running_loop()
        self._record = record
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._impatience: asyncio.TimerHandle | None = None
        self._spoken = asyncio.Event()
        self._established = asyncio.Event()
        self._writable = asyncio.Event()
        self._doom: Callable[[], None] | None = None  # an end that came before the transport did
        self.deliver: Callable[[bytes], object] = _nothing
        self.lost: Callable[[], object] = _nothing

    async def spoken(self) -> None:
        """Wait for the client's first bytes."""
        await self._spoken.wait()

    async def established(self) -> None:
        """Wait for the end of the TLS handshake, if there is one to be made."""
        if self._tls is not None:
            await self._established.wait()

    async def writable(self) -> None:
        """Wait until the client takes what is written."""
        await self._writable.wait()

    def write(self, data: bytes) -> None:
        """Send; nothing happens once the connection's end has begun."""
        if self._tls is None:
            self._send(data)
        elif data and not self._closing():
            self._tls.send(data)
            self._send(self._tls.outgoing())

    def close(self) -> None:
        """Send FIN after what was written, and be gone."""
        self._record.end(Ending.CLOSED)
        if self._transport is None or self._transport.is_closing():
            return
        if self._tls is not None:
            self._tls.close()
            self._send(self._tls.outgoing())
        with contextlib.suppress(OSError):
            # FIN first: a socket that is closed with unread bytes in it sends RST alone.
            self._transport.write_eof()
        self._impatience = self._loop.call_later(_PATIENCE, self._transport.abort)
        self._transport.close()

    def reset(self) -> None:
        """Send RST, and be gone."""
        self._record.end(Ending.RESET)
        if self._transport is None:
            self._doom = self.reset
        elif not self._transport.is_closing():
            with contextlib.suppress(OSError):
                self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()

    def drop(self) -> None:
        """End it as a killed process's kernel does: by FIN, or by RST if the client said what was not read."""
        self._record.end(Ending.CLOSED)
        if self._transport is None:
            self._doom = self.drop
        else:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; called by the event loop, as all below are."""
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()
        if self._doom is not None:
            self._doom()

    def data_received(self, data: bytes) -> None:
        """Note that the client spoke, and deliver what it said."""
        self._record.spoke()
        self._spoken.set()
        if self._tls is None:
            self.deliver(data)
        else:
            self._decrypt(self._tls, data)

    def eof_received(self) -> None:
        """Note the client's FIN; no gRPC client reads on after it."""
        self._record.end(Ending.PEER_CLOSED)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, if it comes unannounced: an error is the client's RST, or its silent death."""
        self._record.end(Ending.PEER_RESET if exc is not None else Ending.CLOSED)
        self._writable.clear()
        if self._impatience is not None:
            self._impatience.cancel()
        self.lost()

    def pause_writing(self) -> None:
        """Read nothing from a client that does not take its answers: they would grow without end."""
        self._writable.clear()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._writable.set()
        if self._transport is not None:
            self._transport.resume_reading()

    def _decrypt(self, tls: TlsSession, data: bytes) -> None:
        try:
            plain = tls.receive(data)
        except ssl.SSLError:
            self.close()  # with the alert that says why
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
    """Do nothing, for an owner that has not said what it wants to hear."""
