"""What the manager needs of whatever dials: one attempt at a time, and to hear when its connection ends.

`core.py` dials with grpcio's C-core. A test dials with a script (`grpc_backoff.testing`). Whoever writes another can
hold it to the same checks: `grpc_backoff.testing.check_connector`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from grpc_backoff.errors import ConnectError
from grpc_backoff.record import NamedTuple, record

__all__ = ["ConnectError", "Connection", "Connector", "Loss"]


@record
class Loss(NamedTuple):
    """How an established connection ended, as far as the connector can tell.

    Attributes:
        reason: how, in words.
        graceful: whether the peer said GOAWAY(NO_ERROR), or nobody used it any more.
        served: whether an RPC was completed on it.
    """

    reason: str
    graceful: bool = False
    served: bool = False


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

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """After its end, call `tell` for each time that something dials anew unasked; return once nothing can.

        grpc's core does so for a call that entered in the moment of the end (CB-7). Where nothing dials but for
        `Connector.connect`, this returns at once.
        """
        ...

    def retire(self) -> None:
        """Take no new calls; end when the running ones have."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)
ConnectionT_co = TypeVar("ConnectionT_co", bound=Connection, covariant=True)


class Connector(Protocol[ConnectionT_co]):
    """Makes connections to one target."""

    async def connect(self, limit: float, *, proven: bool = False) -> ConnectionT_co:
        """Make one attempt and return its connection once the server's SETTINGS frame is there (CB-6).

        Cancelling gives the attempt up: its sockets are closed within 250 ms of `limit` at the latest (CB-3). It may
        also fail by itself at its limit, if it knows better at which stage that came.

        Args:
            limit: how long the attempt may last, in seconds over all its stages.
            proven: whether the target was well a moment ago: a connection that a connector would otherwise watch for a
                while, before it returns it, need not be watched (CB-7).

        Raises:
            ConnectError: the attempt failed; says at which stage and why.
        """
        ...

    def decided(self) -> bool:
        """Return whether the attempt in flight has its outcome, though `connect` has yet to return it; never blocks.

        Asked when the limit has passed: on a loop that was blocked, the outcome may have come in time and unseen.
        """
        ...

    async def close(self, grace: float | None) -> None:
        """End everything, running calls included, after waiting for them `grace` seconds at most."""
        ...
