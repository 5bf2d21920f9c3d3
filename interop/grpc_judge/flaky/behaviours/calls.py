"""Behaviours of established connections: they answer calls, reset them, flood the client with PINGs, or drain.

The resets, the PINGs and the limit on streams correspond to those of gRPC's own HTTP/2 interop server, and have the
same names.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import ClassVar

from h2.errors import ErrorCodes

from grpc_judge.flaky.behaviour import Behaviour
from grpc_judge.flaky.connection import Connection
from grpc_judge.flaky.http2 import Service
from grpc_judge.flaky.service import BreakOff, Echo

__all__ = [
    "MaxStreams",
    "PingFlood",
    "ResetAfterData",
    "ResetAfterHeaders",
    "ResetDuringData",
    "RollingRestart",
    "Working",
]

_EMPTY_MESSAGE = struct.pack(">?I", False, 0)
_HALF_MESSAGE = struct.pack(">?I", False, 1024) + bytes(512)


@dataclass(frozen=True, slots=True)
class Working(Behaviour):
    """Work: answer every unary call with its own message and status OK.

    Attributes:
        latency: how long each call takes, in seconds.
        lives: how many seconds after SETTINGS the connection ends, without GOAWAY, as if the process were killed; 0 for
            never.
    """

    name: ClassVar[str] = "working"
    latency: float = 0.0
    lives: float = 0.0

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo(self.latency)

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS and serve until the connection ends."""
        connection.send_settings()
        if not self.lives:
            await connection.until_closed()
        await asyncio.sleep(self.lives)
        connection.wire.drop()


@dataclass(frozen=True, slots=True)
class RollingRestart(Behaviour):
    """Work, then shut down gracefully as in a rolling restart: send GOAWAY(NO_ERROR) and let running calls finish.

    Attributes:
        after: how many seconds after SETTINGS to send GOAWAY.
        grace: how many seconds running calls may continue after that.
        latency: how long each call takes, in seconds.
    """

    name: ClassVar[str] = "rolling_restart"
    after: float = 1.0
    grace: float = 10.0
    latency: float = 0.0

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo(self.latency)

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS, serve for a while, then drain and close."""
        connection.send_settings()
        await asyncio.sleep(self.after)
        await connection.http2.drain(self.grace)


@dataclass(frozen=True, slots=True)
class _ResetCalls(Behaviour):
    """Start to answer every call, then send RST_STREAM.

    Attributes:
        code: the error code of RST_STREAM.
    """

    beginning: ClassVar[bytes]
    code: ErrorCodes = ErrorCodes.INTERNAL_ERROR

    def service(self) -> Service:
        """Return a service that resets streams."""
        return BreakOff(self.beginning, self.code)


class ResetAfterHeaders(_ResetCalls):
    """Answer every call with headers, then with RST_STREAM and `code`."""

    __slots__ = ()
    name = "reset_after_headers"
    beginning = b""


class ResetDuringData(_ResetCalls):
    """Answer every call with headers and half a message, then with RST_STREAM and `code`."""

    __slots__ = ()
    name = "reset_during_data"
    beginning = _HALF_MESSAGE


class ResetAfterData(_ResetCalls):
    """Answer every call with headers and an empty message, then with RST_STREAM and `code` instead of trailers."""

    __slots__ = ()
    name = "reset_after_data"
    beginning = _EMPTY_MESSAGE


@dataclass(frozen=True, slots=True)
class PingFlood(Behaviour):
    """Work and send PINGs continuously, as many as the client reads.

    Attributes:
        burst: how many PINGs to send at a time.
        every: the seconds between two bursts.
    """

    name: ClassVar[str] = "ping_flood"
    burst: int = 10
    every: float = 0.01

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo()

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS, then send PINGs and serve until the connection ends."""
        connection.send_settings()
        while not connection.http2.over:
            for _ in range(self.burst):
                connection.http2.h2.ping(b"flooding")
            connection.http2.flush()
            await asyncio.sleep(self.every)
            await connection.wire.writable()
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class MaxStreams(Behaviour):
    """Work, with SETTINGS that limit the number of concurrent requests. Requests above the limit are refused.

    Attributes:
        limit: the number of requests allowed. With 0, a client becomes READY but cannot make a call.
    """

    name: ClassVar[str] = "max_streams"
    limit: int = 1

    @property
    def max_streams(self) -> int:
        """The limit to announce in the server's SETTINGS."""
        return self.limit

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo()
