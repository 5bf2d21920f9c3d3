"""Interfaces (typing protocols) for connections that can carry calls."""

from __future__ import annotations

from typing import Protocol

from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.base.status import Link
from grpc_backoff.connection.connector import Connection


class CallConnection(Connection, Protocol):
    """A connection on which a channel can make calls."""

    @property
    def core_channel(self) -> CoreChannel:
        """The core channel that has this connection."""

    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends."""
