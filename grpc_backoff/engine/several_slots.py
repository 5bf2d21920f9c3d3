"""The rules for several slots: the shell around the pool's machine, for both APIs (PO-1).

The machine (`decide/connections/pool_machine.py`) decides which slots there are. Here, each is made, used and closed,
and calls are given the connections that `decide/connections/pick.py` picks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING

from grpc_backoff.base import stepping
from grpc_backoff.base.status import Failure, Loss, Role, State
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections import pool_records as p
from grpc_backoff.decide.connections.dial_times import IDLE_SHARE
from grpc_backoff.decide.connections.pick import FULL, elsewhere, pick
from grpc_backoff.decide.connections.pool_machine import PoolMachine
from grpc_backoff.engine.slot import ConnectionT, ConnectorT, ShownSlot, SlotRules
from grpc_backoff.engine.watches import HealthWatches

if TYPE_CHECKING:
    from grpc_backoff.engine.manager import ConnectionManager
    from grpc_backoff.engine.pool import BasePool
    from grpc_backoff.engine.resolver import Addresses
    from grpc_backoff.engine.room import Rooms
    from grpc_backoff.engine.slot import Slot


class SeveralSlots(Stepper[p.PoolInput], SlotRules[ConnectionT, ConnectorT]):
    """Steps the machine of one pool.

    Attributes:
        state: the machine's state.
        healths: the watches over the health of the pool's servers (RO-1).
    """

    state: p.PoolState

    def __init__(self, pool: BasePool[ConnectionT, ConnectorT]) -> None:
        """Prepare the machine; `begin` or `take_over` follows."""
        super().__init__()
        self._pool = pool
        self._slots = pool.by_number
        self._picks = pool.setup.picks
        setup, pooling = pool.setup, pool.setup.pooling
        self._machine = PoolMachine(setup.target, pooling, setup.policy, pool.key, setup.addresses)
        self.healths = HealthWatches(pool, setup.policy, pooling.health_service, setup.rng)
        self._rooms: Rooms | None = None
        self.is_limited = pooling.max_connections > 1
        if self.is_limited:
            from grpc_backoff.engine.room import Rooms  # noqa: PLC0415 - few pools limit it

            self._rooms = Rooms(pooling.streams_per_connection, pool, self.fill)
        self._turns = itertools.count()
        self._grows = False
        """Whether there may be one more connection, and none is coming."""
        self._full_with: tuple[p.SlotState, ...] | None = None
        """The slots of which the machine was last told that they are full."""
        self._dozes = False
        """Whether a slot is idle while others serve, so that the next call has to wake it."""

    def begin(self) -> None:
        """Make the first slots."""
        self.state, effects = self._machine.begin(self._pool.now())
        for effect in effects:
            self._carry_out(effect)

    def take_over(self, rules: SlotRules[ConnectionT, ConnectorT], *, wanted: bool) -> None:
        """Take over the only slot, as its own rules have shown it until now."""
        ((slot, role, since, state),) = rules.shown()
        self.serving, self.only, self.asked = rules.serving, rules.only, rules.asked
        if role is Role.SERVING:  # the end of its connection, which the manager knows first, is yet to be handled
            state = State.READY
        self.state = self._machine.taken_over(role, since, state, slot.manager.started, wanted=wanted)

    # For the pool.

    @property
    def channel_state(self) -> State:
        """The channel's state, unless it is that of the only slot (PO-4)."""
        return self.state.state

    def want(self, *, first: bool) -> None:
        """Ask for a connection; `first` is whether that is the first time."""
        self.asked = self._pool.now()
        if first or not self._only_full():
            self.feed(m.ConnectionWanted())

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9)."""
        self.feed(p.Refresh(why))

    def turned_away(self, number: int, status: int, *, served: bool) -> None:
        """Seek another connection than that of a slot, for a retry (RT-15)."""
        self.feed(p.TurnedAway(number, status, served, self._pool.setup.rng.random()))

    def serves(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Handle a new connection of a slot."""
        pool, number, rooms = self._pool, slot.number, self._rooms
        connection = slot.manager.connection
        if pool.setup.pooling.health_service is not None and connection is not None:
            self.healths.watch(slot, connection, lambda problem: pool.feed(p.HealthChanged(number, problem)))
        if rooms is not None and connection is not None:
            rooms.give(connection, slot.receiver.left)
        self.feed(p.SlotServes(number, slot.manager.started))
        problem = self.healths.problem(number)
        if problem:
            self.feed(p.HealthChanged(number, problem))

    def failed(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Handle a failed attempt of a slot."""
        self.feed(p.SlotFailed(slot.number))

    def changed(self, slot: Slot[ConnectionT, ConnectorT], state: State) -> None:
        """Handle the new state of a slot."""
        if state is not State.READY:
            self.healths.drop(slot.number)
        self.feed(p.SlotChanged(slot.number, state, busy=state is State.IDLE and self._is_busy(slot)))

    def _is_busy(self, slot: Slot[ConnectionT, ConnectorT]) -> bool:
        """Return whether a call is pending, or one has used a slot within the idle timeout (CB-14)."""
        pool = self._pool
        used = max(self.asked, slot.manager.last_used())
        return len(pool.pending) > 0 or pool.now() - used < IDLE_SHARE * pool.setup.policy.idle_timeout

    def resolved(self, outcome: Addresses | Failure) -> None:
        """Report the outcome of a resolution and handle it (PO-7)."""
        found, failure = ((), outcome) if isinstance(outcome, Failure) else (outcome, None)
        self._pool.report("NameResolution", addresses=found, failure=failure)
        self.feed(p.NameResolved(found))

    def close(self) -> None:
        """Stop for good (CB-10)."""
        rooms, self._rooms = self._rooms, None
        if rooms is not None:
            rooms.close()
        self.feed(m.CloseRequested())

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connections belong to another process (FK-1)."""
        super().leave_alone()
        self._cancel_timer()
        self.state = self.state._replace(phase=p.PoolPhase.CLOSED)

    def live(self) -> list[Slot[ConnectionT, ConnectorT]]:
        """Return the live slots; none if all are. Any thread may call this."""
        # In a step that exchanges all slots, the new ones are not made yet.
        return [slot for state in self.state.live if (slot := self._slots.get(state.number)) is not None]

    def shown(self) -> list[ShownSlot[ConnectionT, ConnectorT]]:
        """Return each slot as it is to be shown."""
        return [
            ShownSlot(slot, state.role, state.since, self._shown_state(slot, state))
            for state in self.state.slots
            if (slot := self._slots.get(state.number)) is not None
        ]

    def _shown_state(self, slot: Slot[ConnectionT, ConnectorT], state: p.SlotState) -> State:
        if state.role is not Role.UNHEALTHY:
            return slot.manager.state
        # In the step that opens the replacement, it has no manager yet.
        replacement = self.state.replacement(slot.number)
        return state.shown if replacement is None else replacement.state

    # Picking.

    def pick(self, avoid: Container[object] | None = ()) -> ConnectionManager[ConnectionT] | None:
        """Return the manager whose connection takes the next call; see `SlotRules.pick`."""
        pool = self._pool
        serving: Sequence[Sequence[Slot[ConnectionT, ConnectorT]]] = self.serving
        if not serving or (avoid is None and self._rooms is not None and len(pool.pending)):
            return None
        others = elsewhere(serving, lambda slot: slot.manager.connection in avoid) if avoid else serving
        slot = self._pick_of(others) if self._picks else serving[0][0]
        if slot is None and others is not serving:
            slot = self._pick_of(serving)
        if self._dozes:
            self._dozes = False
            pool.at_home(pool.want)
        return None if slot is None else slot.manager

    def _pick_of(
        self, groups: Sequence[Sequence[Slot[ConnectionT, ConnectorT]]]
    ) -> Slot[ConnectionT, ConnectorT] | None:
        rooms = self._rooms
        return pick(groups, next(self._turns), self._load, None if rooms is None else rooms.most)

    def _load(self, slot: Slot[ConnectionT, ConnectorT]) -> int:
        connection, rooms = slot.manager.connection, self._rooms
        if connection is None:
            return FULL
        return connection.running if rooms is None else rooms.load(connection)

    def _loads(self) -> tuple[p.Load, ...]:
        return tuple(
            p.Load(slot.number, connection.running, connection.last_used(), connection.served)
            for group in self.serving
            for slot in group
            if (connection := slot.manager.connection) is not None
        )

    # Calls that wait for room (PO-14).

    def call_left(self) -> None:
        """Handle the end of a call: another one may take its place soon. Any thread may call this."""
        rooms = self._rooms
        if rooms is not None and len(self._pool.pending) and not rooms.refills:
            self._pool.at_home(self.fill)

    def _only_full(self) -> bool:
        """Return whether a call that gets no connection needs nothing but room: all connections are up and open."""
        rooms = self._rooms
        return (
            rooms is not None
            and len(rooms.open(self.connections())) == sum(map(len, self.serving)) > 0
            and not any(slot.state is State.IDLE for slot in self.state.live)
        )

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for; the others need one more connection, or wait."""
        pool, rooms = self._pool, self._rooms
        if rooms is None:
            return
        waiting, free = rooms.fill(pool.pending, self.connections())
        if self._grows and waiting > free and self._full_with is not self.state.slots and self._only_full():
            self._full_with = self.state.slots
            # On threads, calls that were told of room may not have taken it yet.
            loads = [load._replace(calls=max(load.calls, rooms.most)) for load in self._loads()]
            self.feed(p.PoolBusy(tuple(loads)))
        if waiting:
            pool.liveness.call_waits()
            rooms.fill_later(self.connections())

    # Health (RO-1).

    def is_unhealthy(self, number: int) -> bool:
        """Return whether the server of a slot's connection says that it is not serving."""
        slot = self.state.slot(number)
        return slot is not None and slot.role is Role.UNHEALTHY

    def failure(self, number: int | None = None) -> Failure | None:
        """Return why a slot, or the first of all, is unhealthy; None if it is not. Any thread may call this."""
        return self.healths.failure(number)

    def prove(self, number: int, connection: ConnectionT, limit: float, tell: Callable[[str], None]) -> bool:
        """See `HealthWatches.prove`; return False if the slot replaces no other, so that there is nothing to prove."""
        state = self.state.slot(number)
        replaces = state is not None and state.replaces is not None
        if replaces:
            self.healths.prove(self._slots[number], connection, limit, tell)
        return replaces

    def unwatch(self, number: int) -> None:
        """Watch the health of a slot's connection no longer."""
        self.healths.drop(number)

    def _set_gates(self) -> None:
        """Keep calls from unhealthy connections, even calls whose method remembers its connection."""
        for state in self.state.live:
            slot = self._slots.get(state.number)
            connection = None if slot is None else slot.manager.connection
            if connection is not None:
                shut = self._pool.liveness.shuts(state.number, connection)
                connection.set_gate(shut=shut or state.role is Role.UNHEALTHY)

    # Driving the machine.

    def _step(self, input_: p.PoolInput) -> None:
        self.state, effects = self._machine.step(self.state, input_, self._pool.now())
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: p.PoolEffect) -> None:  # noqa: C901, PLR0912 - one branch for each effect
        pool, slots = self._pool, self._slots
        match effect:
            case p.Show():
                pool.show(effect.state)
            case p.Serving():
                self.serving = tuple(tuple(slots[number] for number in group) for group in effect.groups)
                self._find_only()
                if self.healths:
                    self._set_gates()
            case m.ReleaseCalls():
                pool.start_calls()
            case m.FailCalls():
                pool.pending.fail()
            case stepping.Emit():
                pool.emit(effect.event)
            case p.OpenSlot():
                self._open(effect)
            case p.WantSlot():
                slots[effect.slot].manager.want()
            case p.RetireSlot():
                self._retire(slots[effect.slot])
            case p.CondemnSlot():
                self._condemn(slots[effect.slot], effect.why)
            case p.RestSlot():
                slots[effect.slot].manager.rest()
            case p.CloseSlot():
                self.healths.drop(effect.slot)
                pool.close_slot(effect.slot)
                self._find_only()
            case p.TellSlot():
                slots[effect.slot].manager.feed(m.NewsArrived())
            case p.Resolve():
                pool.setup.resolve(lambda outcome: pool.at_home(partial(pool.resolved, outcome)))
            case stepping.ArmTimer():
                self._cancel_timer()
                self._timer = pool.call_at(effect.at, self._timer_fired)
            case stepping.CancelTimer():
                self._cancel_timer()

    def _drained(self) -> None:
        if self.only is not None and not self._picks:
            self._dozes = False
            return
        live = self.state.live
        self._dozes = len(live) > 1 and any(slot.state is State.IDLE for slot in live)
        if self._picks:
            most = self._machine.policy.max_connections
            coming = any(slot.role is Role.COMING for slot in live)
            self._grows = most > 1 and not coming and len(live) < most * len({slot.endpoint for slot in live})
            if self._grows and len(self._pool.pending):
                self.fill()

    def _find_only(self) -> None:
        slots = tuple(self._slots.values())
        self.only = slots[0].manager if len(slots) == 1 and not self.is_unhealthy(slots[0].number) else None

    def _open(self, effect: p.OpenSlot) -> None:
        if effect.replaces is not None:
            self._slots[effect.replaces].manager.replaced = True
        same = (slot.manager.membership for slot in self._slots.values() if slot.endpoint == effect.endpoint)
        self._pool.open_slot(effect.slot, effect.endpoint, next(same, None))
        self._find_only()

    def _condemn(self, slot: Slot[ConnectionT, ConnectorT], why: str) -> None:
        """End a slot's connection with its calls; `SlotEnded` follows."""
        live = slot.manager.connection
        connection = live or slot.manager.draining
        if live is not None:
            slot.manager.feed(m.ConnectionLost(Loss(why), used=live.last_used(), replaced=True))
        self._retire(slot)
        if connection is not None:
            connection.retire()
            connection.fail(f"the connection was lost: {why}")

    def _retire(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Stop dialling for a slot and tell the machine when no connection of it is left."""
        connector, receiver = slot.connector, slot.receiver

        def ended() -> None:
            if (pool := receiver.pool) is not None:  # otherwise, the slot is closed
                pool.feed(p.SlotEnded(slot.number))

        def closed() -> None:
            if connector is not None and not connector.open:
                ended()

        self.healths.drop(slot.number)
        slot.manager.retire()
        if connector is None or not connector.open:
            self._pool.home.post(ended)
        else:
            connector.closed = closed

    def _timer_fired(self) -> None:
        if self._timer is None:
            return  # cancelled after it had been posted
        self._timer = None
        slots = self._slots.values()
        used = [slot.manager.last_used() for slot in slots]
        used += [slot.manager.draining.last_used() for slot in slots if slot.manager.draining is not None]
        self.feed(p.PoolTimerFired(self._loads(), max(self.asked, *used)))
