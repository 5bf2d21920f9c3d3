"""A connection as behaviours see it: bytes and HTTP/2."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from interop.flaky.http2 import Http2
from interop.flaky.wire import Wire

__all__ = ["Connection"]


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """One accepted connection; on a server with TLS, after the handshake that its behaviour asks for.

    The failures in `grpc_backoff.testing.front` accept it too.

    Attributes:
        wire: the TCP connection: reads and writes bytes, and closes.
        http2: the server's half of HTTP/2 on it, which sends nothing until `send_settings`.
    """

    wire: Wire
    http2: Http2

    async def until_closed(self) -> None:
        """Wait until the client has left or the server ends; either cancels the waiting behaviour."""
        await asyncio.Event().wait()

    def reset(self) -> None:
        """Close the connection with RST."""
        self.wire.reset()

    def send_settings(self) -> None:
        """Send SETTINGS, and everything held back behind it."""
        self.http2.send_settings()
