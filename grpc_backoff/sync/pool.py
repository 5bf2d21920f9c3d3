"""The threaded shell around the pool's machine: the connections of one channel (PO-1).

Everything runs on the conductor (`conductor.py`), except methods that are marked as thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.threads import Running
from grpc_backoff.connection.clock import TimerHandle
from grpc_backoff.decide.connections.connection_machine import Machine
from grpc_backoff.decide.connections.events import ConnectionEvent, Failure, Stage, State
from grpc_backoff.engine.core_connector import Informed
from grpc_backoff.engine.manager import CallQueue
from grpc_backoff.engine.news import Ticking
from grpc_backoff.engine.pool import PoolSlot, SlotParts, SteppedPool
from grpc_backoff.engine.registry import Membership
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.sync.conductor import Conductor, Timer
from grpc_backoff.sync.core_connector import CoreConnection, CoreConnector
from grpc_backoff.sync.listeners import Listeners
from grpc_backoff.sync.manager import ConnectionManager

if TYPE_CHECKING:
    from grpc_backoff.engine.resolver import Addresses

Manager = ConnectionManager[CoreConnection]


class Resolution:
    """The connector of the slot that stands for a target whose name is not resolved yet (PO-7).

    An attempt fails if the name cannot be resolved. If it can, the pool retires the slot, which abandons the attempt.
    """

    def __init__(self, pool: ConnectionPool, conductor: Conductor) -> None:
        self._pool = pool
        self._conductor = conductor
        self._tell: Callable[[Any], None] | None = None
        self._timer: Timer | None = None
        self.open: frozenset[CoreConnection] = frozenset()

    def connect(self, limit: float, tell: Callable[[CoreConnection | Failure], None]) -> Resolution:
        """Resolve the name; see `ThreadedConnector.connect`."""
        from grpc_backoff.engine.resolver import HANGS, WITHIN_LIMIT  # noqa: PLC0415 - it is loaded: there is a name

        self._tell = tell
        self._timer = self._conductor.call_at(
            self._conductor.now() + limit * WITHIN_LIMIT, lambda: self._ended(tell, HANGS)
        )
        self._pool.setup.resolve(lambda outcome: self._conductor.post(lambda: self._ended(tell, outcome)))
        return self

    def _ended(self, tell: Callable[[Any], None], outcome: Addresses | Failure) -> None:
        if self._tell is not tell:
            return  # it came too late
        self.abandon()
        if isinstance(outcome, Failure):
            tell(outcome)
        else:
            self._pool.resolved(outcome)

    def decided(self) -> bool:
        """Return False, because an attempt ends before its limit."""
        return False

    def abandon(self) -> None:
        """Abandon the attempt; the resolution may go on."""
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> list[Running]:
        """Do nothing: there are no connections."""
        return []

    def retire(self) -> None:
        """Do nothing: there are no connections."""


class ProvingAttempt:
    """An attempt of a slot whose server's health is watched: the health of a replacement is awaited (RO-1)."""

    def __init__(
        self,
        connector: CoreConnector,
        pool_slot: PoolSlot,
        limit: float,
        tell: Callable[[CoreConnection | Failure], None],
    ) -> None:
        """Start to dial; `limit` is the time limit of the whole attempt, in seconds."""
        self._slot = pool_slot
        self._tell = tell
        self._ends = connector.conductor.now() + limit
        self._conductor = connector.conductor
        self._made: CoreConnection | None = None
        self._attempt = connector.connect(limit, self._ended)

    def _ended(self, outcome: CoreConnection | Failure) -> None:
        pool = self._slot.pool
        if isinstance(outcome, Failure) or pool is None or not pool.must_prove(self._slot.number):
            self._tell(outcome)
            return
        self._made = outcome
        pool.healths.prove(pool, self._slot.number, outcome, self._ends - self._conductor.now(), self._told)

    def _told(self, problem: str) -> None:
        made = self._made
        if made is None:
            return  # it was told before, or abandoned
        if problem:
            self.abandon()
            self._tell(Failure(Stage.HEALTH, problem))
        else:
            self._made = None
            self._tell(made)

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been polled yet."""
        return self._attempt.decided()

    def abandon(self) -> None:
        """Abandon the attempt."""
        made, self._made = self._made, None
        if made is None:
            self._attempt.abandon()
            return
        if self._slot.pool is not None:
            self._slot.pool.healths.drop(self._slot.number)
        made.retire()


class Proving(Informed):
    """The connector of a slot whose server's health is watched."""

    def __init__(self, connector: CoreConnector, pool_slot: PoolSlot) -> None:
        self._connector = connector
        self._slot = pool_slot

    def connect(self, limit: float, tell: Callable[[CoreConnection | Failure], None]) -> ProvingAttempt:
        """Start one attempt; see `CoreConnector.connect`."""
        self._connector.last_life, self._connector.familiar = self.last_life, self.familiar
        return ProvingAttempt(self._connector, self._slot, limit, tell)


class ConnectionPool(SteppedPool[Manager]):
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
        """Make the first slot; nothing happens before a connection is wanted. Thread-safe.

        `connector` returns the connector for an endpoint.
        """
        self._connector = connector
        self._listeners = listeners
        self._conductor = conductor
        super().__init__(setup, pending)

    # For the channel.

    def connection(self, avoid: Container[object] | None = None) -> CoreConnection | None:
        """Return the connection for the next call, as far as is currently known. Thread-safe.

        None if there is none, or all are full. `avoid` is as in `_pick`.
        """
        only = self._only
        if only is not None and not self.picks:
            return only.connection
        for _ in range(1 + len(self._slots)):  # a connection that was just lost may still be picked
            manager = self._pick(avoid)
            connection = None if manager is None else manager.connection
            if manager is None or (connection is not None and connection.held is None):
                return connection
            if connection is not None:
                self._conductor.post(partial(self.liveness.call_waits, connection))
        return None

    def close_connections(self) -> list[Running]:
        """Close every connection of a closed pool; return what is still closing them."""
        return [closing for slot in self._slots.values() for closing in slot.connector.close()]

    def retire_connections(self) -> None:
        """Close every connection of a closed pool when its last call ends."""
        for slot in self._slots.values():
            slot.connector.retire()

    # Driving the machine.

    def _make(self, pool_slot: PoolSlot, beside: Membership | None) -> tuple[Manager, Any]:
        resolves = self.resolves(pool_slot.endpoint)
        connector: Any = Resolution(self, self._conductor) if resolves else self._connector(pool_slot.endpoint)
        connector.keepalive, connector.times_calls = self.keepalive, self._machine.policy.quiet_after > 0
        watched = self._machine.policy.health_service is not None and not resolves
        manager: Manager = ConnectionManager(
            Machine(self._machine.target, self._policy, self._machine.channel),
            Proving(connector, pool_slot) if watched else connector,
            pool_slot,
            conductor=self._conductor,
            clock=self._clock,
            rng=self.setup.rng,
            key=self.setup.key_of(pool_slot.endpoint),
            beside=beside,
        )
        connector.lost, connector.redialled = manager.look, manager.redialled
        return manager, connector

    def emit(self, event: ConnectionEvent) -> None:
        """Notify the listeners of an event."""
        self._listeners.hear(event)

    def _show(self, state: State) -> None:
        self._listeners.changed(state)

    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` when the clock reaches `when`, in seconds."""
        # A clock supplied by the program may call back on any thread.
        return self._clock.call_at(when, lambda: self._conductor.post(callback))

    def _home(self) -> Ticking | None:
        return self._conductor if self._clock is self._conductor else None

    def _at_home(self, work: Callable[[], None]) -> None:
        self._conductor.post(work)

    def _timer_fired(self) -> None:
        if self._timer is not None:  # not cancelled after it had been posted
            super()._timer_fired()

    def _retire(self, slot: SlotParts[Manager]) -> None:
        connector, ended = slot.connector, slot.pool_slot.ended

        def closed() -> None:
            if not connector.open:
                ended()

        connector.closed = closed
        slot.manager.retire()
        if not connector.open:
            self._conductor.post(ended)

    def _discard(self, slot: SlotParts[Manager]) -> None:
        slot.manager.close()
        slot.connector.lost = slot.connector.redialled = _ignore  # they refer to the manager (CB-10)


def _ignore(*_: object, **__: object) -> None:
    pass
