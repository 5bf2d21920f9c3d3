"""Failures below HTTP/2: the port refuses connections, or the server sends nothing or speaks another protocol."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from grpc_backoff.testing import front
from grpc_judge.flaky.behaviour import Behaviour, Entry, Handshake
from grpc_judge.flaky.connection import Connection

__all__ = ["AcceptClose", "AcceptReset", "Http1Answer", "Refuse", "Silent", "TlsGarbage"]

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


@dataclass(frozen=True, slots=True)
class AcceptClose(Behaviour):
    """Accept the connection and close it.

    Attributes:
        after: how many seconds to wait before closing.
        tls: on a server with TLS, whether to perform the handshake first.
    """

    name: ClassVar[str] = "accept_close"
    after: float = 0.0
    tls: bool = False

    @property
    def handshake(self) -> Handshake:
        """TLS with ALPN `h2`, or none, depending on `tls`."""
        return Handshake.H2 if self.tls else Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait and close."""
        await asyncio.sleep(self.after)
        await front.accept_close(connection)


@dataclass(frozen=True, slots=True)
class AcceptReset(Behaviour):
    """Accept the connection and reset it with RST, by means of SO_LINGER 0.

    Attributes:
        after: how many seconds to wait before the reset.
    """

    name: ClassVar[str] = "accept_reset"
    after: float = 0.0

    @property
    def handshake(self) -> Handshake:
        """No handshake, because the accepted TCP connection is reset."""
        return Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait and reset."""
        await asyncio.sleep(self.after)
        await front.accept_reset(connection)


@dataclass(frozen=True, slots=True)
class Silent(Behaviour):
    """Accept the connection and send nothing, not even SETTINGS, until the client leaves.

    Attributes:
        tls: on a server with TLS, whether to perform the handshake first.
    """

    name: ClassVar[str] = "silent"
    tls: bool = True

    @property
    def handshake(self) -> Handshake:
        """TLS with ALPN `h2`, or none, depending on `tls`."""
        return Handshake.H2 if self.tls else Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Send nothing until the client leaves."""
        await front.silent(connection)


@dataclass(frozen=True, slots=True)
class TlsGarbage(Behaviour):
    """Answer the client's first bytes with bytes that are neither TLS nor HTTP/2 and wait until it leaves."""

    name: ClassVar[str] = "tls_garbage"

    @property
    def handshake(self) -> Handshake:
        """No handshake, because the garbage is sent in place of the ServerHello."""
        return Handshake.NONE

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
