"""What the manager needs from a connector: to make one attempt at a time, and to report when its connection ends.

`core.py` dials with grpcio's C-core. A test dials with a script (`grpc_backoff.testing`). Authors of other connectors
can run the same checks on them: `grpc_backoff.testing.check_connector`.
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
        reason: a description.
        graceful: whether the peer sent GOAWAY(NO_ERROR), or the connection was closed because it was idle.
        served: whether an RPC completed on it.
    """

    reason: str
    graceful: bool = False
    served: bool = False


class Connection(Protocol):
    """A connection on which the server's SETTINGS frame arrived."""

    def alive(self) -> bool:
        """Return whether it is still up, as far as is known right now; never blocks."""
        ...

    def last_used(self) -> float:
        """Return when an RPC last used it, in seconds on the channel's clock; minus infinity if none did."""
        ...

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while it is up or the cause is still being determined."""
        ...

    async def lost(self) -> Loss:
        """Wait until the connection ends; return the loss."""
        ...

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """After it has ended, call `tell` each time that something redials on its own; return once nothing can.

        grpc's core does so for a call that was assigned to the connection as it ended (CB-7). If nothing dials except
        `Connector.connect`, this returns at once.
        """
        ...

    def retire(self) -> None:
        """Accept no new calls; close once the running calls have finished."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)
ConnectionT_co = TypeVar("ConnectionT_co", bound=Connection, covariant=True)


class Connector(Protocol[ConnectionT_co]):
    """Makes connections to one target."""

    async def connect(self, limit: float, *, proven: bool = False) -> ConnectionT_co:
        """Make one attempt, and return its connection once the server's SETTINGS frame has arrived (CB-6).

        Cancelling abandons the attempt: its sockets are closed at most 250 ms after `limit` (CB-3). It may also fail by
        itself at its limit, if it can name the stage more precisely.

        Args:
            limit: the maximum duration of the attempt over all its stages, in seconds.
            proven: whether the target was known to be up a moment ago: a connector that observes a new connection for a
                while before returning it can then skip that (CB-7).

        Raises:
            ConnectError: the attempt failed; says at which stage and why.
        """
        ...

    def decided(self) -> bool:
        """Return whether the attempt in flight has an outcome that `connect` has not yet returned; never blocks.

        Called when the limit has passed: on a blocked event loop, the outcome may have arrived in time but unnoticed.
        """
        ...

    async def close(self, grace: float | None) -> None:
        """Close everything after waiting up to `grace` seconds for running calls, which are then cancelled."""
        ...
