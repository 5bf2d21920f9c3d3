"""Interfaces (typing protocols) for connectors, which make one connection attempt at a time, and for connections.

The default connector, `aio/core_connector.py`, dials with grpcio's C-core; the one in `grpc_backoff.testing` follows a
script. `check_connector` in the tests checks every connector against these interfaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from grpc_backoff.base.base_errors import ConnectError
from grpc_backoff.base.status import Failure, Loss

__all__ = ["ConnectError", "Connection", "Connector", "Loss"]


class LiveConnection(Protocol):
    """An established connection, as far as both APIs need it: the server's SETTINGS frame has arrived."""

    def alive(self) -> bool:
        """Return whether the connection is still up, as far as is currently known; never blocks."""
        ...

    def last_used(self) -> float:
        """Return when an RPC last used the connection, in seconds on the channel's clock; minus infinity if never."""
        ...

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while it is up or the cause is still being determined."""
        ...

    def retire(self) -> None:
        """Accept no new calls; close once the running calls have finished."""
        ...


class AttemptInFlight(Protocol):
    """An attempt in flight."""

    def decided(self) -> bool:
        """Return whether the attempt has an outcome that has not been reported yet; never blocks.

        This is called when the limit has passed: if the process was late, the outcome may have arrived in time without
        being noticed.
        """
        ...

    def abandon(self) -> None:
        """Abandon the attempt: report nothing, and close its sockets at most 250 ms after its limit (CB-3)."""
        ...


LiveT_co = TypeVar("LiveT_co", bound=LiveConnection, covariant=True)


class CallbackConnector(Protocol[LiveT_co]):
    """Makes connections to one target for one manager, which sets the attributes before each attempt.

    Attributes:
        last_life: how many seconds the last connection lasted; infinity if there was none, and None if an answer or
            credit pays for the next attempt (CB-15).
        familiar: whether this side has just closed a connection on which the peer had answered (CB-15).
    """

    last_life: float | None
    familiar: bool

    def connect(self, limit: float, tell: Callable[[LiveT_co | Failure], None], /) -> AttemptInFlight:
        """Start an attempt of up to `limit` seconds; `tell` its connection or failure at the manager's home, later."""
        ...


class Connection(LiveConnection, Protocol):
    """An established connection of an asyncio channel."""

    async def lost(self) -> Loss:
        """Wait until the connection ends and return how it ended."""
        ...

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """Call `tell` for each redial after the connection has ended; return once no more redials are possible.

        grpc's core redials by itself if the connection ends just as a call is assigned to it (CB-16). If nothing dials
        except `Connector.connect`, return at once.
        """
        ...


ConnectionT_co = TypeVar("ConnectionT_co", bound=Connection, covariant=True)


class Connector(Protocol[ConnectionT_co]):
    """Makes connections to one target."""

    async def connect(self, limit: float) -> ConnectionT_co:
        """Make one attempt and return its connection once the server's SETTINGS frame has arrived (CB-6).

        Cancelling this abandons the attempt: its sockets are closed at most 250 ms after `limit` (CB-3). The connector
        may also fail the attempt itself at the limit, if it can name the stage more precisely.

        Args:
            limit: the time limit of the attempt over all its stages, in seconds.

        Raises:
            ConnectError: the attempt failed; the error says at which stage and why.
        """
        ...

    def decided(self) -> bool:
        """Return whether the attempt in flight has an outcome that `connect` has not yet returned; never blocks.

        This is called when the limit has passed: if the event loop was blocked, the outcome may have arrived in time
        without being noticed.
        """
        ...

    async def close(self, grace: float | None) -> None:
        """Give running calls up to `grace` seconds to finish, cancel the rest, and close all connections."""
        ...
