"""A slot of a pool, for both APIs, what a pool asks about its slots, and the rules for an only slot.

Most pools have one slot all their lives. `several_slots.py` has the rules for several.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Failure, Role, State
from grpc_backoff.engine.core_connector import SlotConnector
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.news import NEWS, spot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from grpc_backoff.decide.connections.happened import Happened
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.pool import AnyPool, BasePool


ConnectionT = TypeVar("ConnectionT", bound="GatedConnection")
ConnectorT = TypeVar("ConnectorT", bound=SlotConnector[Any])

_CONNECTING, _READY = State.CONNECTING, State.READY  # up to Python 3.11, access to a member is slow


class SlotReceiver:
    """What a slot's manager works for: a queue of pending calls, and a receiver of events and states.

    It sees to the watch over the slot's connection and to news, and tells the pool's rules of the rest. It runs no user
    code (TH-5a). Once the slot is closed, it has no pool: the queue is empty, and what is received is lost. Other
    threads ask for the length of the queue, so each method reads `pool` once.
    """

    __slots__ = ("endpoint", "is_last", "number", "pool", "target")

    def __init__(self, pool: AnyPool, number: int, endpoint: str) -> None:
        self.pool: AnyPool | None = pool
        self.number = number
        self.endpoint = endpoint
        self.target = endpoint or pool.setup.target  # what the slot dials
        self.is_last = False  # whether the end of the slot is the channel's

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return 0 if (pool := self.pool) is None else len(pool.pending)

    def release(self) -> None:
        """Handle a new connection; if its endpoint is doubted, calls wait until its peer has answered."""
        if (pool := self.pool) is not None:
            slot = pool.by_number[self.number]
            if pool.setup.pooling.quiet_after or self.endpoint in pool.liveness.doubted:
                pool.liveness.watch(pool, slot)
            NEWS.reached(pool, *map(spot_of, {self.target, pool.setup.target}))
            pool.rules.serves(slot)  # only now: on asyncio, a listener may have replaced the connection meanwhile

    def fail(self) -> None:
        """Handle a failed attempt; if another pool gets there, the next one starts soon (LV-4)."""
        if (pool := self.pool) is not None:
            NEWS.seeks(pool, spot_of(self.target))
            pool.rules.failed(pool.by_number[self.number])

    def hear(self, event: Happened) -> None:
        """Pass on an event; only the end of the last slot is the channel's."""
        if (pool := self.pool) is not None and (event.kind != "Closed" or self.is_last):
            if self.number or self.endpoint:
                event = event.changed(slot=self.number, endpoint=self.endpoint)
            pool.emit(event)

    def changed(self, state: State) -> None:
        """Handle the slot's new state, before the effects that come with it."""
        if (pool := self.pool) is not None:
            slot, watch = pool.by_number[self.number], pool.liveness.get(self.number)
            if state is _CONNECTING:  # what is reached during an attempt may be too late for it
                NEWS.seeks(pool, spot_of(self.target))
            if watch is not None and not watch.connection.alive():
                pool.liveness.drop(self.number)
            pool.rules.changed(slot, state)

    def left(self) -> None:
        """Tell the pool that a call has ended, if the slot's connection has limited room. Any thread may call this."""
        if (pool := self.pool) is not None:
            pool.rules.call_left()


class Slot(NamedTuple, Generic[ConnectionT, ConnectorT]):
    """What one slot consists of.

    Attributes:
        number: identifies it in its pool, from 0.
        endpoint: the address that it dials; empty for the whole target.
        receiver: what its manager works for.
        manager: manages its connection.
        connector: makes its connections; None while the name is not resolved yet (PO-7).
    """

    number: int
    endpoint: str
    receiver: SlotReceiver
    manager: ConnectionManager[ConnectionT]
    connector: ConnectorT | None


class ShownSlot(NamedTuple, Generic[ConnectionT, ConnectorT]):
    """A slot as its pool shows it.

    Attributes:
        slot: the slot.
        role: its part in the pool.
        since: when it got that role, in seconds on the channel's clock.
        state: its state, as it counts for the channel's.
    """

    slot: Slot[ConnectionT, ConnectorT]
    role: Role
    since: float
    state: State


class SlotRules(Generic[ConnectionT, ConnectorT]):
    """What a pool asks about its slots, and tells of them.

    This base class has the rules of a pool that is closed, or that has no slot yet: nothing happens.

    Attributes:
        serving: the slots whose connections take new calls, one group for each endpoint.
        only: the manager of the only slot; None if there are several, or if its server is not serving (RO-1).
        asked: when a call last asked for a connection, in seconds on the channel's clock; while there is one slot, only
            the first call that asks is noted.
        is_limited: whether connections have limited room for calls (PO-14).
    """

    serving: tuple[tuple[Slot[ConnectionT, ConnectorT], ...], ...] = ()
    only: ConnectionManager[ConnectionT] | None = None
    asked = -math.inf
    is_limited = False

    @property
    def channel_state(self) -> State:
        """The channel's state, unless it is that of the only slot (PO-4)."""
        return State.SHUTDOWN

    def connections(self) -> list[ConnectionT]:
        """Return the connections of the serving slots. Any thread may call this."""
        found = [slot.manager.connection for group in self.serving for slot in group]
        return [connection for connection in found if connection is not None]

    @property
    def takes_calls(self) -> bool:
        """Whether a connection may be used now: it serves, and its peer need not answer first. Thread-safe."""
        return any(connection.gated is None for connection in self.connections())

    def want(self, *, first: bool) -> None:
        """Ask for a connection; `first` is whether that is the first time."""

    def serves(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Handle a new connection of a slot."""

    def failed(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Handle a failed attempt of a slot."""

    def changed(self, slot: Slot[ConnectionT, ConnectorT], state: State) -> None:
        """Handle the new state of a slot."""

    def live(self) -> list[Slot[ConnectionT, ConnectorT]]:
        """Return the live slots; none if all are. Any thread may call this."""
        return []

    def shown(self) -> list[ShownSlot[ConnectionT, ConnectorT]]:
        """Return each slot as it is to be shown. Any thread may call this."""
        return []

    def close(self) -> None:
        """Stop for good (CB-10)."""

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connections belong to another process (FK-1)."""
        self.serving = ()

    # What only the rules for several slots know.

    def call_left(self) -> None:
        """Handle the end of a call: another one may take its place soon. Any thread may call this."""

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for (PO-14)."""

    def pick(self, avoid: Container[object] | None = ()) -> ConnectionManager[ConnectionT] | None:
        """Return the manager whose connection takes the next call; None if no connection serves, or all are full.

        A connection to avoid takes it only if no other connection does. None stands for a call that has just been made
        and lets those go first that wait for room.
        """

    def is_unhealthy(self, number: int) -> bool:  # noqa: ARG002
        """Return whether the server of a slot's connection says that it is not serving (RO-1)."""
        return False

    def failure(self, number: int | None = None) -> Failure | None:  # noqa: ARG002
        """Return why a slot, or the first of all, is unhealthy; None if it is not. Any thread may call this."""
        return None

    def prove(self, number: int, connection: ConnectionT, limit: float, tell: Callable[[str], None]) -> bool:  # noqa: ARG002
        """See `HealthWatches.prove`; return False if the slot replaces no other, so that there is nothing to prove."""
        return False

    def unwatch(self, number: int) -> None:
        """Watch the health of a slot's connection no longer."""


class OnlySlot(SlotRules[ConnectionT, ConnectorT]):
    """The rules for the only slot, as long as it has not been replaced: it serves while it has a connection."""

    def __init__(self, pool: BasePool[ConnectionT, ConnectorT], slot: Slot[ConnectionT, ConnectorT]) -> None:
        self._pool = pool
        self._slot = slot
        self.only = slot.manager
        self._since = pool.now()
        """When the slot got its connection, or lost it."""

    def want(self, *, first: bool) -> None:  # noqa: ARG002 - the manager knows
        """Ask for a connection."""
        self.asked = self._pool.now()
        self._slot.manager.want()

    def serves(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Let calls use the new connection."""
        pool = self._pool
        self.serving, self._since = ((slot,),), pool.now()
        pool.start_calls()

    def failed(self, slot: Slot[ConnectionT, ConnectorT]) -> None:  # noqa: ARG002 - there is no other
        """Fail the pending calls that do not survive a failed attempt, unless the channel has not failed."""
        if self._pool.is_failing:
            self._pool.pending.fail()

    def changed(self, slot: Slot[ConnectionT, ConnectorT], state: State) -> None:  # noqa: ARG002 - there is no other
        """Show the state of the slot as the channel's."""
        pool = self._pool
        if not pool.is_closed:  # otherwise, the end has been shown
            if self.serving and state is not _READY:
                self.serving, self._since = (), pool.now()
            pool.show(state)

    def shown(self) -> list[ShownSlot[ConnectionT, ConnectorT]]:
        """Return the slot as it is to be shown."""
        role = Role.SERVING if self.serving else Role.COMING
        return [ShownSlot(self._slot, role, self._since, self._slot.manager.state)]

    def close(self) -> None:
        """Stop for good (CB-10)."""
        self._pool.show(State.SHUTDOWN)
        self._pool.close_slot(self._slot.number)
