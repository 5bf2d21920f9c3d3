"""Interfaces (typing protocols) for connections that can carry calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import grpc.aio

from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.connection.connector import Connection
from grpc_backoff.core.texts import Link


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
