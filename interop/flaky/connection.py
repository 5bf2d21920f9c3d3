"""What a behaviour acts on: one connection, as bytes and as HTTP/2."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from interop.flaky.http2 import Http2
from interop.flaky.wire import Wire

__all__ = ["Connection"]


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """One accepted connection; on a server with TLS, with the handshake that its behaviour wants behind it.

    The failures of `grpc_backoff.testing.front` can act on it too.

    Attributes:
        wire: its bytes, and how they end.
        http2: the server's half of HTTP/2 on it, which says nothing before it is told to.
    """

    wire: Wire
    http2: Http2

    async def until_closed(self) -> None:
        """Wait until the client has left, or the server ends: the behaviour that waits is cancelled then."""
        await asyncio.Event().wait()

    def reset(self) -> None:
        """Send RST, and be gone."""
        self.wire.reset()

    def send_settings(self) -> None:
        """Send SETTINGS, and what was held back behind it."""
        self.http2.send_settings()
