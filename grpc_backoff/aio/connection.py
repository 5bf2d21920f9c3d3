"""Interfaces (typing protocols) for connections that can carry calls."""

from __future__ import annotations

from typing import Protocol

import grpc.aio

from grpc_backoff.calls.core_words import Link
from grpc_backoff.connection.connector import Connection

__all__ = ["CallConnection", "EarlyConnection", "EarlyEntry"]


class EarlyConnection(Protocol):
    """Something on which calls can be made: a connection, or an attempt that may still fail."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """The grpc channel that has this connection, or that is making it."""
        ...

    def began(self, call: grpc.aio.Call, owner: object) -> None:
        """Record a call that was just made on `channel`, and the call's owner."""
        ...


class EarlyEntry(Protocol):
    """A connector that accepts calls before their connection is known to be up."""

    def begin(self, limit: float) -> None:
        """Begin to dial before `connect` is called, so that other work is done while the peer answers."""
        ...

    def enter(self, limit: float) -> EarlyConnection | None:
        """Return the attempt in flight, after starting one if there is none; None if calls cannot enter the attempt.

        A call made on the attempt is sent as soon as there is a connection. If the attempt fails, the call never leaves
        this process. `limit` is the time limit of an attempt that is started here, in seconds.
        """
        ...

    def abandon(self) -> None:
        """Abandon an attempt that `enter` started, unless `connect` has taken it over."""
        ...


class CallConnection(EarlyConnection, Connection, Protocol):
    """A connection on which a channel can make calls."""

    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends."""
        ...
