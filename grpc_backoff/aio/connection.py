"""What calls need from the connection on which they are made."""

from __future__ import annotations

from typing import Protocol

import grpc.aio

from grpc_backoff.calls.core_words import Link
from grpc_backoff.connection.connector import Connection

__all__ = ["CallConnection", "EarlyConnection", "EarlyEntry"]


class EarlyConnection(Protocol):
    """Something to make calls on: a connection, or an attempt that is not yet known to have one."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """One of grpc's own channels, which has this connection, or will have it."""
        ...

    def began(self, call: grpc.aio.Call, owner: object) -> None:
        """Record a call that was just made on that channel, and its owner."""
        ...


class EarlyEntry(Protocol):
    """A connector that accepts calls before their connection is known to be up."""

    def enter(self, limit: float) -> EarlyConnection | None:
        """Return the attempt in flight, started here if `connect` has not started it yet; None if it has failed.

        A call made on it is sent as soon as there is a connection; if there is none, it never leaves this process.
        """
        ...

    def abandon(self) -> None:
        """Abandon an attempt started here, if `connect` has not taken it over."""
        ...


class CallConnection(EarlyConnection, Connection, Protocol):
    """A connection on which a channel can make calls."""

    def link(self) -> Link:
        """Return the state of the connection; called at the moment when a call ends."""
        ...
