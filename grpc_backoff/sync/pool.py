"""The threaded pool: the connections of one channel (PO-1).

Everything runs on the conductor (`conductor.py`), except methods that are marked as thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
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
    from grpc_backoff.engine.news import Ticking
    from grpc_backoff.engine.pool import CallQueue


class ConnectionPool(BasePool[CoreConnection, CoreConnector]):
    """The connections of one threaded channel."""

    def __init__(
        self,
        setup: PoolSetup,
        pending: CallQueue,
        listeners: Listeners,
        *,
        connector: Callable[[str], CoreConnector],
        conductor: Conductor,
    ) -> None:
        """Make the first slots; nothing happens before a connection is wanted. Thread-safe.

        `connector` returns the connector for an endpoint.
        """
        self._connector = connector
        self._listeners: Callable[[], Listeners | None] = ref(listeners)
        """Returns the listeners. They often belong to what owns the channel, so the pool may not keep them alive."""
        self._conductor = conductor
        super().__init__(setup, pending, conductor)

    # For the channel.

    def connection(self, avoid: Container[object] | None = None) -> CoreConnection | None:
        """Return the connection for the next call, as far as is currently known. Thread-safe.

        None if there is none, or all are full. `avoid` is as in `SlotRules.pick`.
        """
        only = self.only
        if only is not None and not self.picks:
            return only.connection
        for _ in range(1 + len(self.by_number)):  # a connection that was just lost may still be picked
            manager = self.rules.pick(avoid)
            connection = None if manager is None else manager.connection
            if manager is None or (connection is not None and connection.held is None):
                return connection
            if connection is not None:
                self._conductor.post(partial(self.liveness.call_waits, connection))
        return None

    def want(self) -> None:
        """Ask for a connection; the conductor runs from then on."""
        if self.is_unwanted:
            self._conductor.join(self)
        super().want()

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        super().close()
        self._conductor.leave(self)

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
        connector = self._connector(endpoint)
        connector.times_calls = self.setup.pooling.quiet_after > 0
        return connector

    def emit(self, event: Happened) -> None:
        """Notify the listeners of an event."""
        listeners = self._listeners()
        if listeners is not None:
            listeners.hear(event)

    def show(self, state: State) -> None:
        """Report the channel's new state."""
        listeners = self._listeners()
        if listeners is not None:
            listeners.changed(state)

    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the conductor when the clock reaches `when`, in seconds."""
        # A clock supplied by the program may call back on any thread.
        return self._clock.call_at(when, lambda: self._conductor.post(callback))

    def _ticking(self) -> Ticking | None:
        return self._conductor if self._clock is self._conductor else None

    def at_home(self, work: Callable[[], None]) -> None:
        """Run `work` soon, on the conductor. Thread-safe."""
        self._conductor.post(work)
