"""The threaded pool: the connections of one channel (PO-1).

Everything runs on the conductor (`conductor.py`), except methods that are marked as thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from operator import attrgetter
from typing import TYPE_CHECKING
from weakref import ref

from grpc_backoff.base.status import State
from grpc_backoff.base.threads import Running
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.engine.pool import BasePool
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.core_connector import CoreConnection, CoreConnector
from grpc_backoff.sync.listeners import Listeners

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.engine.pending import CallQueue


class ConnectionPool(BasePool[CoreConnection, CoreConnector]):
    """The connections of one threaded channel."""

    home: Conductor

    def __init__(self, setup: PoolSetup, pending: CallQueue, listeners: Listeners, home: Conductor) -> None:
        """Make the first slots; nothing happens before a connection is wanted. Thread-safe."""
        self._listeners: Callable[[], Listeners | None] = ref(listeners)
        """Returns the listeners. They often belong to what owns the channel, so the pool may not keep them alive."""
        super().__init__(setup, pending, home)

    # For the channel.

    def connection(self, avoid: Container[object] | None = None) -> CoreConnection | None:
        """Return the connection for the next call, as far as is currently known. Thread-safe.

        None if there is none, or all are full. `avoid` is as in `SlotRules.pick`.
        """
        only = self.rules.only
        if only is not None and not self.setup.picks:
            return only.connection
        return self._pick(avoid, attrgetter("connection"))

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        super().close()
        self.home.leave(self)

    def drop(self, listeners: Listeners) -> None:
        """Shut down for a channel that was garbage-collected."""
        self._listeners = lambda: listeners  # the collector clears weak references first
        self.close()
        self.retire_connections()
        listeners.close()

    def close_connections(self) -> list[Running]:
        """Close every connection of a closed pool; return what is still closing them."""
        return [closing for connector in self._connectors() for closing in connector.close()]

    def _connector_for(self, endpoint: str) -> CoreConnector:
        return CoreConnector(self.setup, endpoint, self.home)

    def _first_wanted(self) -> None:
        self.home.join(self)  # so the conductor runs from now on

    def emit(self, event: Happened) -> None:
        """Notify the listeners of an event."""
        if (listeners := self._listeners()) is not None:
            listeners.hear(event)

    def show(self, state: State) -> None:
        """Report the channel's new state."""
        if (listeners := self._listeners()) is not None:
            listeners.changed(state)

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the conductor when the clock reaches `when`, in seconds."""
        # A clock supplied by the program may call back on any thread.
        return self.setup.clock.call_at(when, lambda: self.home.post(callback))

    def at_home(self, work: Callable[[], object]) -> None:
        """Run `work` soon, on the conductor. Thread-safe."""
        self.home.post(work)
