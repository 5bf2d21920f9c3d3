"""The base classes of behaviours, which are frozen dataclasses with a name, a few numbers and a method.

To add a behaviour, derive a class from `Behaviour`. Scripts in JSON can only name those in
`grpc_judge.flaky.behaviours`.
"""

from __future__ import annotations

import enum
import math
from dataclasses import fields
from typing import Any, ClassVar

from h2.errors import ErrorCodes

from grpc_backoff.testing import front
from grpc_judge.flaky.connection import Connection
from grpc_judge.flaky.http2 import Service

_MANY = 1000
_HIGHEST = 2**31 - 1  # the maximum of a stream id and of a SETTINGS value


class Handshake(enum.Enum):
    """The handshake that a server with TLS performs before a behaviour starts."""

    NONE = "none"
    """The behaviour starts on the accepted TCP connection, without a handshake."""
    HTTP1 = "http/1.1"
    """TLS without ALPN, as on servers that support only HTTP/1.1."""
    H2 = "h2"
    """TLS with ALPN `h2`."""


class Entry:
    """An entry that a step of a script can hold. It is a frozen dataclass whose fields all have defaults.

    The default of a field determines the kind of its values.

    Attributes:
        name: its name in scripts and in records.
    """

    __slots__ = ()
    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        """Check the values of the fields.

        Raises:
            ValueError: a value is not allowed for its field.
        """
        for field in fields(self):
            expect(f"{self.name}: {field.name}", getattr(self, field.name), field.default)


def expect(name: str, value: object, default: object) -> None:
    """Check that a value is of the same kind as this default.

    Raises:
        ValueError: it is not.
    """
    match default:
        case bool():
            allowed, fits = "true or false", type(value) is bool
        case ErrorCodes():
            allowed, fits = f"one of {', '.join(ErrorCodes.__members__)}", type(value) is ErrorCodes
        case int():
            allowed, fits = f"a whole number from 0 to {_HIGHEST}", type(value) is int and 0 <= value <= _HIGHEST
        case _:
            allowed = "a number of seconds, 0 or more"
            fits = type(value) in {int, float} and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]
    if not fits:
        raise ValueError(f"{name}={value!r}: expected {allowed}")


class Behaviour(Entry):
    """How the server treats a connection. By default, the server sends SETTINGS and does not answer requests."""

    __slots__ = ()

    @property
    def handshake(self) -> Handshake:
        """The handshake that comes before this behaviour on a server with TLS."""
        return Handshake.H2

    @property
    def max_streams(self) -> int:
        """The number of concurrent requests that the server's SETTINGS allow."""
        return _MANY

    def service(self) -> Service:
        """Return a new service to handle the requests of one connection."""
        return Service()

    async def serve(self, connection: Connection) -> None:
        """Handle a connection, which is closed on return. If the client leaves first, this coroutine is cancelled."""
        await front.settings_only(connection)
