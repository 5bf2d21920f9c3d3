"""What the manager needs of whatever dials: one attempt at a time, and to hear when its connection ends.

`core.py` dials with grpcio's C-core. A test dials with a script (`grpc_backoff.testing`). Whoever writes another can
hold it to the same checks: `grpc_backoff.testing.check_connector`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from grpc_backoff.errors import ConnectError

if TYPE_CHECKING:
    import grpc.aio

__all__ = ["CallConnection", "ConnectError", "Connection", "Connector", "Loss"]


@dataclass(frozen=True, slots=True)
class Loss:
    """How an established connection ended, as far as the connector can tell.

    Attributes:
        reason: how, in words.
        graceful: whether the peer said GOAWAY(NO_ERROR), or nobody used it any more.
        served: whether an RPC was completed on it.
        redialled: whether something may dial again unasked, as grpc's core does for a call that entered as it ended;
            a connector that dials only when it is told to leaves it False.
    """

    reason: str
    graceful: bool = False
    served: bool = False
    redialled: bool = False


class Connection(Protocol):
    """A connection on which the server's SETTINGS frame arrived."""

    def alive(self) -> bool:
        """Return whether it still stands, as far as is known at this moment; never blocks."""
        ...

    def last_used(self) -> float:
        """Return when an RPC last used it, on the channel's clock; minus infinity if none did."""
        ...

    def loss(self) -> Loss | None:
        """Return how it ended; None while it stands, or while that is still being found out."""
        ...

    async def lost(self) -> Loss:
        """Return how it ended, once that is known."""
        ...

    def retire(self) -> None:
        """Take no new calls; end when the running ones have."""
        ...


class CallConnection(Connection, Protocol):
    """A connection that a channel can make calls on."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """A channel of grpc's own that has this connection."""
        ...

    def began(self, call: grpc.aio.Call) -> None:
        """Count a call that was just made on that channel."""
        ...

    def redialled_in_vain(self) -> bool:
        """Return whether a call that entered as the connection broke was dialled for anew, and found nothing."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class Connector(Protocol[ConnectionT]):
    """Makes connections to one target."""

    async def connect(self, limit: float, revive: ConnectionT | None) -> ConnectionT:
        """Make one attempt and return its connection once the server's SETTINGS frame is there (CB-6).

        Cancelling gives the attempt up: its sockets are closed within 250 ms of `limit` at the latest (CB-3). It may
        also fail by itself at its limit, if it knows better at which stage that came.

        Args:
            limit: how long the attempt may last, in seconds over all its stages.
            revive: a connection that was lost and may still hold calls; a connector that can renew it in place uses
                it for this attempt, any other retires it.

        Raises:
            ConnectError: the attempt failed; says at which stage and why.
        """
        ...

    async def close(self, grace: float | None) -> None:
        """End everything, running calls included, after waiting for them `grace` seconds at most."""
        ...
