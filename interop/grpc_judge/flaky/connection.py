"""The connection that a behaviour handles, at the level of bytes and of HTTP/2."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grpc_judge.flaky.http2 import Http2
from grpc_judge.flaky.wire import Wire


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """One accepted connection. On a server with TLS, the handshake that its behaviour requires is complete.

    The failures in `grpc_backoff.testing.front` also accept this class.

    Attributes:
        wire: the TCP connection, which reads and writes bytes and closes.
        http2: the server's half of HTTP/2, which sends nothing until `send_settings`.
    """

    wire: Wire
    http2: Http2

    async def until_closed(self) -> None:
        """Wait until the client leaves or the server ends; either event cancels the behaviour that waits here."""
        await asyncio.Event().wait()

    def reset(self) -> None:
        """Close the connection with RST."""
        self.wire.reset()

    def send_settings(self) -> None:
        """Send SETTINGS, and all output that was held back until then."""
        self.http2.send_settings()
