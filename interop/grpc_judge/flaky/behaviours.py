"""What a flaky server can do with a connection: the behaviours.

Failures below HTTP/2 come first: the port refuses connections, or the server sends nothing or speaks another protocol.
Then come failures around SETTINGS, the frame that makes a client READY: it comes late, in pieces, or just before the
end. The last ones treat established connections: they answer calls, reset them, flood the client with PINGs, or drain;
the resets, the PINGs and the limit on streams have the names of those of gRPC's own HTTP/2 interop server.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import ClassVar

from h2.errors import ErrorCodes

from grpc_backoff.testing import front
from grpc_judge.flaky.behaviour import Behaviour, Entry, Handshake
from grpc_judge.flaky.connection import Connection
from grpc_judge.flaky.http2 import Service
from grpc_judge.flaky.service import BreakOff, Echo, Unavailable

_GARBAGE = b"\xff" * 64
"""Bytes that are neither TLS (record types are below 25) nor HTTP/2 (the frame would be too long)."""


@dataclass(frozen=True, slots=True)
class Refuse(Entry):
    """Close the port, so that the kernel refuses dials. Only time can bound this step, since nothing is accepted.

    Attributes:
        kill: whether open connections end when the step starts, as if the process were killed; otherwise they continue.
    """

    name: ClassVar[str] = "refuse"
    kill: bool = False


class _BelowTls(Behaviour):
    """A behaviour that, on a server with TLS, comes before the handshake, unless it has a field `tls` that is set."""

    __slots__ = ()

    @property
    def handshake(self) -> Handshake:
        """TLS with ALPN `h2`, or none, depending on `tls`."""
        return Handshake.H2 if getattr(self, "tls", False) else Handshake.NONE


class _Serving(Behaviour):
    """A behaviour that echoes requests, after its `latency` if it has that field."""

    __slots__ = ()

    def service(self) -> Service:
        """Return a service that echoes requests."""
        return Echo(getattr(self, "latency", 0.0))


@dataclass(frozen=True, slots=True)
class AcceptClose(_BelowTls):
    """Accept the connection and close it.

    Attributes:
        after: how many seconds to wait before closing.
        tls: on a server with TLS, whether to perform the handshake first.
    """

    name: ClassVar[str] = "accept_close"
    after: float = 0.0
    tls: bool = False

    async def serve(self, connection: Connection) -> None:
        """Wait and close."""
        await asyncio.sleep(self.after)
        await front.accept_close(connection)


@dataclass(frozen=True, slots=True)
class AcceptReset(_BelowTls):
    """Accept the connection and reset it with RST, by means of SO_LINGER 0.

    Attributes:
        after: how many seconds to wait before the reset.
    """

    name: ClassVar[str] = "accept_reset"
    after: float = 0.0

    async def serve(self, connection: Connection) -> None:
        """Wait and reset."""
        await asyncio.sleep(self.after)
        await front.accept_reset(connection)


@dataclass(frozen=True, slots=True)
class Silent(_BelowTls):
    """Accept the connection and send nothing, not even SETTINGS, until the client leaves.

    Attributes:
        tls: on a server with TLS, whether to perform the handshake first.
    """

    name: ClassVar[str] = "silent"
    tls: bool = True

    async def serve(self, connection: Connection) -> None:
        """Send nothing until the client leaves."""
        await front.silent(connection)


@dataclass(frozen=True, slots=True)
class TlsGarbage(_BelowTls):
    """Answer the client's first bytes with bytes that are neither TLS nor HTTP/2 and wait until it leaves."""

    name: ClassVar[str] = "tls_garbage"

    async def serve(self, connection: Connection) -> None:
        """Wait for the client's first bytes, answer with garbage, and wait until the client leaves."""
        await connection.wire.spoken()
        connection.wire.write(_GARBAGE)
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class Http1Answer(Behaviour):
    """Answer the client's first bytes like an HTTP/1.1 server that cannot parse them, and close.

    On a server with TLS, a handshake without ALPN comes first.
    """

    name: ClassVar[str] = "http1_answer"

    @property
    def handshake(self) -> Handshake:
        """TLS without ALPN: the server does not support HTTP/2."""
        return Handshake.HTTP1

    async def serve(self, connection: Connection) -> None:
        """Wait for the client's first bytes, answer, and close."""
        await connection.wire.spoken()
        connection.wire.write(front.HTTP1_ANSWER)


@dataclass(frozen=True, slots=True)
class SlowSettings(_Serving):
    """Delay SETTINGS and everything after it; then work.

    Attributes:
        delay: the delay in seconds, from accepting the connection or from the end of the TLS handshake.
    """

    name: ClassVar[str] = "slow_settings"
    delay: float = 1.0

    async def serve(self, connection: Connection) -> None:
        """Wait, send SETTINGS, and serve."""
        await asyncio.sleep(self.delay)
        connection.send_settings()
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class Trickle(_Serving):
    """Send SETTINGS one byte at a time; then work.

    Attributes:
        lasts: the seconds from the first byte of the frame to the last.
    """

    name: ClassVar[str] = "trickle"
    lasts: float = 1.0

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
    """Send SETTINGS and hang up, much like HAProxy with `tcp-request content reject`.

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


_EMPTY_MESSAGE = struct.pack(">?I", False, 0)
_HALF_MESSAGE = struct.pack(">?I", False, 1024) + bytes(512)


@dataclass(frozen=True, slots=True)
class Working(_Serving):
    """Work: answer every unary call with its own message and status OK.

    Attributes:
        latency: how long each call takes, in seconds.
        lives: how many seconds after SETTINGS the connection ends, without GOAWAY, as if the process were killed; 0 for
            never.
    """

    name: ClassVar[str] = "working"
    latency: float = 0.0
    lives: float = 0.0

    async def serve(self, connection: Connection) -> None:
        """Send SETTINGS and serve until the connection ends."""
        connection.send_settings()
        if not self.lives:
            await connection.until_closed()
        await asyncio.sleep(self.lives)
        connection.wire.drop()


@dataclass(frozen=True, slots=True)
class RollingRestart(_Serving):
    """Work, then shut down gracefully as in a rolling restart: send GOAWAY(NO_ERROR) and let running calls finish.

    Attributes:
        after: how many seconds after SETTINGS to send GOAWAY.
        grace: how many seconds running calls may continue after that.
        latency: how long each call takes, in seconds.
        unavailable: whether every call is answered with UNAVAILABLE, as by a proxy whose upstream is down.
    """

    name: ClassVar[str] = "rolling_restart"
    after: float = 1.0
    grace: float = 10.0
    latency: float = 0.0
    unavailable: bool = False

    def service(self) -> Service:
        """Return a service that echoes requests, or one that answers UNAVAILABLE."""
        return Unavailable() if self.unavailable else Echo(self.latency)

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
class PingFlood(_Serving):
    """Work and send PINGs continuously, as many as the client reads.

    Attributes:
        burst: how many PINGs to send at a time.
        every: the seconds between two bursts.
    """

    name: ClassVar[str] = "ping_flood"
    burst: int = 10
    every: float = 0.01

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
class MaxStreams(_Serving):
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


BY_NAME: dict[str, type[Entry]] = {
    kind.name: kind
    for kind in (
        Refuse,
        AcceptClose,
        AcceptReset,
        Silent,
        SlowSettings,
        Trickle,
        TlsGarbage,
        Http1Answer,
        SettingsThenClose,
        SettingsThenGoaway,
        EnhanceYourCalm,
        ResetAfterHeaders,
        ResetDuringData,
        ResetAfterData,
        PingFlood,
        MaxStreams,
        Working,
        RollingRestart,
    )
}
