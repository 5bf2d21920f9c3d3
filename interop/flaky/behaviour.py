"""What a behaviour is: a frozen value with a name and a few numbers, and what it does with one connection.

To add another one, derive from `Behaviour`. A script in text knows those of `interop.flaky.behaviours` only.
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
    """The handshake that comes before a behaviour, on a server with TLS."""

    NONE = "none"
    """The behaviour begins with the accepted TCP connection."""
    HTTP1 = "http/1.1"
    """TLS without ALPN, as servers make it that know HTTP/1.1 only."""
    H2 = "h2"
    """TLS with ALPN `h2`."""


class Entry:
    """What a step of a script can hold: a frozen dataclass. Each field has a default, which tells its kind.

    Attributes:
        name: its name in scripts and in records.
    """

    __slots__ = ()
    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: one of them is not what its kind allows.
        """
        for field in fields(self):
            kind, value = kind_of(field.default), getattr(self, field.name)
            if not kind.fits(value):
                raise ValueError(f"{self.name}: {field.name}={value!r}: expected {kind.allowed}")


class Behaviour(Entry):
    """What is done with one connection. This one sends SETTINGS, and leaves every request unanswered."""

    __slots__ = ()

    @property
    def handshake(self) -> Handshake:
        """What comes before it on a server with TLS."""
        return Handshake.H2

    @property
    def max_streams(self) -> int:
        """How many requests at a time the server's SETTINGS allow."""
        return _MANY

    def service(self) -> Service:
        """Return what becomes of the requests on one connection."""
        return Service()

    async def serve(self, connection: Connection) -> None:
        """Do it. The connection is closed when this returns; if the client leaves first, this is cancelled."""
        await front.settings_only(connection)
