"""What calls need of the connection that they are made on."""

from __future__ import annotations

from typing import Protocol

import grpc.aio

from grpc_backoff.calls.core_words import Link
from grpc_backoff.connection.connector import Connection

__all__ = ["CallConnection", "EarlyConnection", "EarlyEntry"]


class EarlyConnection(Protocol):
    """What a call can be made on: a connection, or an attempt that is not yet known to have one."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """A channel of grpc's own that has this connection, or will have it."""
        ...

    def began(self, call: grpc.aio.Call, owner: object) -> None:
        """Count a call that was just made on that channel, and whose it is."""
        ...


class EarlyEntry(Protocol):
    """What a connector has that can let calls in before their connection is known to stand."""

    def enter(self, limit: float) -> EarlyConnection | None:
        """Return the attempt in flight, which begins here if `connect` has not come to it; None if it has failed.

        A call that enters leaves as soon as there is a connection; if there is none, it never leaves.
        """
        ...

    def abandon(self) -> None:
        """Give up an attempt that has begun here, if `connect` has not come to it."""
        ...


class CallConnection(EarlyConnection, Connection, Protocol):
    """A connection that a channel can make calls on."""

    def link(self) -> Link:
        """Return how the connection is; asked in the moment of a call's end."""
        ...
