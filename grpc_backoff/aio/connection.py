"""Interfaces (typing protocols) for connections that can carry calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import grpc.aio

from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.calls.core_words import Link
from grpc_backoff.connection.connector import Connection


class EarlyEntry(Protocol):
    """A connector that accepts calls before their connection is known to be up."""

    def begin(self, limit: float) -> None:
        """Begin to dial before `connect` is called, so that other work is done while the peer answers."""
        ...

    def enter(self, limit: float) -> CoreChannel | None:
        """Return the attempt in flight, after starting one if there is none; None if calls cannot enter the attempt.

        A call made on the attempt is sent as soon as there is a connection. If the attempt fails, the call never leaves
        this process. `limit` is the time limit of an attempt that is started here, in seconds.
        """
        ...

    def abandon(self) -> None:
        """Abandon an attempt that `enter` started, unless `connect` has taken it over."""
        ...


class CallConnection(Connection, Protocol):
    """A connection on which a channel can make calls."""

    @property
    def core(self) -> CoreChannel:
        """The core channel that has this connection."""
        ...

    @property
    def on_end(self) -> Callable[[grpc.aio.Call], None] | None:
        """The function to call when a call on this connection has ended; None if nothing depends on how calls end."""
        ...

    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends."""
        ...
