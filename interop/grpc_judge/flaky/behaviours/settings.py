"""Failures around SETTINGS, the frame that makes a client READY: it comes late, in pieces, or just before the end.

Requests are answered unless the connection is about to end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from h2.errors import ErrorCodes

from grpc_backoff.testing import front
from grpc_judge.flaky.behaviour import Behaviour
from grpc_judge.flaky.connection import Connection
from grpc_judge.flaky.http2 import Service
from grpc_judge.flaky.service import Echo

__all__ = ["EnhanceYourCalm", "SettingsThenClose", "SettingsThenGoaway", "SlowSettings", "Trickle"]


@dataclass(frozen=True, slots=True)
class SlowSettings(Behaviour):
    """Delay SETTINGS and everything after it; then work.

    Attributes:
        delay: the delay in seconds, from accepting the connection or from the end of the TLS handshake.
    """

    name: ClassVar[str] = "slow_settings"
    delay: float = 1.0

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo()

    async def serve(self, connection: Connection) -> None:
        """Wait, send SETTINGS, and serve."""
        await asyncio.sleep(self.delay)
        connection.send_settings()
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class Trickle(Behaviour):
    """Send SETTINGS one byte at a time; then work.

    Attributes:
        lasts: the seconds from the first byte of the frame to the last.
    """

    name: ClassVar[str] = "trickle"
    lasts: float = 1.0

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo()

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS byte by byte, then serve."""
        first, *rest = (bytes([byte]) for byte in connection.http2.settings)
        connection.wire.write(first)
        for byte in rest:
            await asyncio.sleep(self.lasts / len(rest))
            connection.wire.write(byte)
        connection.http2.speak()
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class SettingsThenClose(Behaviour):
    """Send SETTINGS and hang up, like a proxy whose upstream is down.

    Attributes:
        after: the seconds from SETTINGS to the close.
    """

    name: ClassVar[str] = "settings_then_close"
    after: float = 0.0

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS, wait, and close."""
        await front.settings_then_close(self.after)(connection)


@dataclass(frozen=True, slots=True)
class SettingsThenGoaway(Behaviour):
    """Send SETTINGS, then GOAWAY, and wait until the client leaves.

    Attributes:
        code: the error code of GOAWAY.
        last_stream: the last stream id in GOAWAY. No stream is actually served.
        after: the seconds from SETTINGS to GOAWAY.
        closes: whether the server closes right after GOAWAY, as servers do when no call is running.
    """

    name: ClassVar[str] = "settings_then_goaway"
    code: ErrorCodes = ErrorCodes.NO_ERROR
    last_stream: int = 0
    after: float = 0.0
    closes: bool = False

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS, wait, send GOAWAY, and close if `closes` is set."""
        connection.send_settings()
        await asyncio.sleep(self.after)
        connection.http2.goaway(self.code, self.last_stream)
        if not self.closes:
            await connection.until_closed()


@dataclass(frozen=True, slots=True)
class EnhanceYourCalm(Behaviour):
    """Send SETTINGS, then GOAWAY(ENHANCE_YOUR_CALM) with `too_many_pings`, and close: the answer to too many PINGs.

    Attributes:
        after: the seconds from SETTINGS to GOAWAY.
    """

    name: ClassVar[str] = "enhance_your_calm"
    after: float = 0.0

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS, wait, send GOAWAY, and close."""
        connection.send_settings()
        await asyncio.sleep(self.after)
        connection.http2.goaway(ErrorCodes.ENHANCE_YOUR_CALM, 0, b"too_many_pings")
