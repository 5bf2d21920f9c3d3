"""What calls need of the connection that they are made on."""

from __future__ import annotations

from typing import Protocol

import grpc.aio

from grpc_backoff.calls.core_words import Link
from grpc_backoff.connection.connector import Connection

__all__ = ["CallConnection"]


class CallConnection(Connection, Protocol):
    """A connection that a channel can make calls on."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """A channel of grpc's own that has this connection."""
        ...

    def began(self, call: grpc.aio.Call, owner: object) -> None:
        """Count a call that was just made on that channel, and whose it is."""
        ...

    def link(self) -> Link:
        """Return how the connection is; asked in the moment of a call's end."""
        ...
