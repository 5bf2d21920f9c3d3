"""The base classes of behaviours: frozen values with a name and a few numbers, and a method that handles a connection.

To add a behaviour, derive from `Behaviour`. Scripts written as text can only name those in `interop.flaky.behaviours`.
"""

from __future__ import annotations

import enum
from dataclasses import fields
from typing import Any, ClassVar

from grpc_backoff.testing import front
from interop.flaky.connection import Connection
from interop.flaky.http2 import Service
from interop.flaky.values import kind_of

__all__ = ["Behaviour", "Entry", "Handshake"]

_MANY = 1000


class Handshake(enum.Enum):
    """The handshake that precedes a behaviour, on a server with TLS."""

    NONE = "none"
    """No handshake: the behaviour starts with the accepted TCP connection."""
    HTTP1 = "http/1.1"
    """TLS without ALPN, as on servers that support only HTTP/1.1."""
    H2 = "h2"
    """TLS with ALPN `h2`."""


class Entry:
    """What a step of a script can hold: a frozen dataclass. Each field has a default, which determines its kind.

    Attributes:
        name: the name in scripts and in records.
    """

    __slots__ = ()
    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: the kind of a field does not allow its value.
        """
        for field in fields(self):
            kind, value = kind_of(field.default), getattr(self, field.name)
            if not kind.fits(value):
                raise ValueError(f"{self.name}: {field.name}={value!r}: expected {kind.allowed}")


class Behaviour(Entry):
    """How the server treats a connection. The default sends SETTINGS and leaves every request unanswered."""

    __slots__ = ()

    @property
    def handshake(self) -> Handshake:
        """The handshake that precedes it on a server with TLS."""
        return Handshake.H2

    @property
    def max_streams(self) -> int:
        """How many concurrent requests the server's SETTINGS allow."""
        return _MANY

    def service(self) -> Service:
        """Return what handles the requests on one connection."""
        return Service()

    async def serve(self, connection: Connection) -> None:
        """Handle a connection. It is closed when this returns; if the client leaves first, this is cancelled."""
        await front.settings_only(connection)
