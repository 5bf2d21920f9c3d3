"""Failures below HTTP/2: the port refuses, the server sends nothing, or it speaks another protocol."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from grpc_backoff.testing import front
from interop.flaky.behaviour import Behaviour, Entry, Handshake
from interop.flaky.connection import Connection

__all__ = ["AcceptClose", "AcceptReset", "Http1Answer", "Refuse", "Silent", "TlsGarbage"]

_GARBAGE = b"\xff" * 64
"""Neither TLS, whose record types are below 25, nor HTTP/2: as a frame, its length would exceed every limit."""


@dataclass(frozen=True, slots=True)
class Refuse(Entry):
    """Close the port, so that the kernel refuses dials. Only time can bound this step, since it accepts nothing.

    Attributes:
        kill: whether open connections end when the step starts, as for a killed process; otherwise they go on.
    """

    name: ClassVar[str] = "refuse"
    kill: bool = False


@dataclass(frozen=True, slots=True)
class AcceptClose(Behaviour):
    """Accept, and close.

    Attributes:
        after: seconds to wait before closing.
        tls: on a server with TLS, whether to do the handshake first.
    """

    name: ClassVar[str] = "accept_close"
    after: float = 0.0
    tls: bool = False

    @property
    def handshake(self) -> Handshake:
        """TLS with ALPN `h2`, or none, depending on `tls`."""
        return Handshake.H2 if self.tls else Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait; close."""
        await asyncio.sleep(self.after)
        await front.accept_close(connection)


@dataclass(frozen=True, slots=True)
class AcceptReset(Behaviour):
    """Accept, and reset: RST, by SO_LINGER 0.

    Attributes:
        after: seconds to wait before the reset.
    """

    name: ClassVar[str] = "accept_reset"
    after: float = 0.0

    @property
    def handshake(self) -> Handshake:
        """None: it resets the accepted TCP connection."""
        return Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait; reset."""
        await asyncio.sleep(self.after)
        await front.accept_reset(connection)


@dataclass(frozen=True, slots=True)
class Silent(Behaviour):
    """Accept, and send nothing, not even SETTINGS, until the client leaves.

    Attributes:
        tls: on a server with TLS, whether to do the handshake first.
    """

    name: ClassVar[str] = "silent"
    tls: bool = True

    @property
    def handshake(self) -> Handshake:
        """TLS with ALPN `h2`, or none, depending on `tls`."""
        return Handshake.H2 if self.tls else Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait; send nothing."""
        await front.silent(connection)


@dataclass(frozen=True, slots=True)
class TlsGarbage(Behaviour):
    """Answer the client's first bytes with bytes that are neither TLS nor HTTP/2, and wait until it leaves."""

    name: ClassVar[str] = "tls_garbage"

    @property
    def handshake(self) -> Handshake:
        """None: the garbage takes the place of the ServerHello."""
        return Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait for the client's first bytes; answer."""
        await connection.wire.spoken()
        connection.wire.write(_GARBAGE)
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class Http1Answer(Behaviour):
    """Answer the client's first bytes like an HTTP/1.1 server that cannot parse them, and close.

    On a server with TLS, the handshake comes before that, without ALPN.
    """

    name: ClassVar[str] = "http1_answer"

    @property
    def handshake(self) -> Handshake:
        """TLS without ALPN: the server does not support HTTP/2."""
        return Handshake.HTTP1

    async def serve(self, connection: Connection) -> None:
        """Wait for the client's first bytes; answer; close."""
        await connection.wire.spoken()
        connection.wire.write(front.HTTP1_ANSWER)
