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
"""No TLS record, whose type is below 25, and no HTTP/2 frame, whose length would be beyond every limit."""


@dataclass(frozen=True, slots=True)
class Refuse(Entry):
    """Nothing listens, so that the kernel refuses: a step that is bound by time, since nothing is accepted in it.

    Attributes:
        kill: whether connections that stand end as it begins, as those of a killed process; otherwise they go on.
    """

    name: ClassVar[str] = "refuse"
    kill: bool = False


@dataclass(frozen=True, slots=True)
class AcceptClose(Behaviour):
    """Accept, and close.

    Attributes:
        after: seconds that it waits first.
        tls: on a server with TLS, whether it makes the handshake before that.
    """

    name: ClassVar[str] = "accept_close"
    after: float = 0.0
    tls: bool = False

    @property
    def handshake(self) -> Handshake:
        """As `tls` says."""
        return Handshake.H2 if self.tls else Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait; close."""
        await asyncio.sleep(self.after)
        await front.accept_close(connection)


@dataclass(frozen=True, slots=True)
class AcceptReset(Behaviour):
    """Accept, and reset: RST, by SO_LINGER 0.

    Attributes:
        after: seconds that it waits first.
    """

    name: ClassVar[str] = "accept_reset"
    after: float = 0.0

    @property
    def handshake(self) -> Handshake:
        """None: it resets what was accepted."""
        return Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Wait; reset."""
        await asyncio.sleep(self.after)
        await front.accept_reset(connection)


@dataclass(frozen=True, slots=True)
class Silent(Behaviour):
    """Accept, and say nothing, no SETTINGS either, until the client leaves.

    Attributes:
        tls: on a server with TLS, whether it makes the handshake before that.
    """

    name: ClassVar[str] = "silent"
    tls: bool = True

    @property
    def handshake(self) -> Handshake:
        """As `tls` says."""
        return Handshake.H2 if self.tls else Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Nothing."""
        await front.silent(connection)


@dataclass(frozen=True, slots=True)
class TlsGarbage(Behaviour):
    """Answer the client's first bytes with some that are neither TLS nor HTTP/2, and wait until it leaves."""

    name: ClassVar[str] = "tls_garbage"

    @property
    def handshake(self) -> Handshake:
        """None: the garbage stands where the ServerHello should."""
        return Handshake.NONE

    async def serve(self, connection: Connection) -> None:
        """Listen; answer."""
        await connection.wire.spoken()
        connection.wire.write(_GARBAGE)
        await connection.until_closed()


@dataclass(frozen=True, slots=True)
class Http1Answer(Behaviour):
    """Answer the client's first bytes as an HTTP/1.1 server does that cannot read them, and close.

    On a server with TLS, the handshake comes before that, without ALPN.
    """

    name: ClassVar[str] = "http1_answer"

    @property
    def handshake(self) -> Handshake:
        """That of a server which has not heard of HTTP/2."""
        return Handshake.HTTP1

    async def serve(self, connection: Connection) -> None:
        """Listen; answer; close."""
        await connection.wire.spoken()
        connection.wire.write(front.HTTP1_ANSWER)
