"""The base class of both APIs' pools: it steps the pool's machine and has the managers of its slots (PO-1).

The machine (`decide/connections/pool_machine.py`) decides which slots there are. Here, each slot is a connection
manager with a connector of its own, and calls are given the connections that `decide/connections/pick.py` picks. With
one slot, which is the usual case, the pool only passes on what its manager says.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from grpc_backoff.base import stepping
from grpc_backoff.base.record import NamedTuple, record
from grpc_backoff.base.status import ConnectionStatus, Failure, Role, SlotStatus, State
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections import pool_machine as p
from grpc_backoff.decide.connections.connection_machine import Machine
from grpc_backoff.decide.connections.dial_times import IDLE_SHARE
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.decide.connections.pick import elsewhere, pick
from grpc_backoff.engine.core_connector import BaseConnector, Keepalive, SlotConnector
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.news import NEWS, Sleeper, spot_of
from grpc_backoff.engine.registry import Membership
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.engine.watches import HealthWatches, LivenessWatches
from grpc_backoff.policy.connect import Reconnect

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.liveness import ConnectionWatch
    from grpc_backoff.engine.manager import CallQueue
    from grpc_backoff.engine.news import Ticking
    from grpc_backoff.engine.resolver import Addresses
    from grpc_backoff.engine.room import Room

ConnectionT = TypeVar("ConnectionT", bound="GatedConnection")

_CLOSED = p.PoolPhase.CLOSED
_TRANSIENT_FAILURE = State.TRANSIENT_FAILURE  # up to Python 3.11, access to a member is slow
_FULL = 2**62
"""The load of a connection that has just ended, or that no call may use now."""
_FILL_EVERY = 0.001
"""How often calls that wait for room are started at most, in seconds, so that one wake-up serves many."""


class PoolSlot:
    """What a slot's manager knows of its pool: a queue of pending calls, and a receiver of events and states.

    Without a pool, it is an empty queue, and what it receives is lost.
    """

    __slots__ = ("endpoint", "number", "pool")

    def __init__(self, pool: SteppedPool[Any] | None = None, number: int = 0, endpoint: str = "") -> None:
        self.pool = pool
        self.number = number
        self.endpoint = endpoint

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return 0 if self.pool is None else len(self.pool.pending)

    def release(self, _most: float = math.inf, /) -> None:
        """Tell the pool that there is a connection."""
        if self.pool is not None:
            self.pool.serves(self.number)

    def fail(self) -> None:
        """Tell the pool that an attempt has failed."""
        if self.pool is not None:
            self.pool.failed(self)

    def hear(self, event: Happened) -> None:
        """Pass on an event."""
        if self.pool is not None:
            self.pool.hear(self, event)

    def changed(self, state: State) -> None:
        """Tell the pool of the slot's new state."""
        if self.pool is not None:
            self.pool.changed(self.number, state)

    def left(self) -> None:
        """Tell the pool that a call has ended, if the slot's connection has limited room. Any thread may call this."""
        if self.pool is not None:
            self.pool.call_left()

    def ended(self) -> None:
        """Tell the pool that a retired slot has no connection left."""
        if self.pool is not None:
            self.pool.feed(p.SlotEnded(self.number))


@record
class SlotParts(NamedTuple, Generic[ConnectionT]):
    """One slot's pool_slot, its manager, and the connector; None while the name is not resolved yet (PO-7)."""

    pool_slot: PoolSlot
    manager: ConnectionManager[ConnectionT]
    connector: Any


class SteppedPool(Stepper[p.PoolInput], Generic[ConnectionT]):
    """Steps the machine of one pool; subclasses execute its effects.

    Attributes:
        pending: the queue of pending calls.
        setup: what it dials, how, and when.
        home: where its connections live.
        liveness: the watches over its connections, if there is reason for them (LV-1, LV-3).
        healths: the watches over the health of its servers (RO-1).
        keepalive: how often its connections ping.
        picks: whether several connections may serve at a time, so that each call has to ask for one.
        most: how many calls a connection carries; infinity if any number (PO-14).
    """

    def __init__(self, setup: PoolSetup, pending: CallQueue, home: Home) -> None:
        """Make the first slot. Subclasses call this when everything else is ready."""
        super().__init__()
        self.home = home
        machine, policy, clock = setup.machine(), setup.policy, setup.clock
        self.pending = pending
        self.setup = setup
        self.picks = machine.policy.round_robin or machine.policy.max_connections > 1
        several = machine.policy.max_connections > 1
        self.most: float = machine.policy.streams_per_connection if several else math.inf
        if self.most != math.inf:
            from grpc_backoff.engine.room import Room  # noqa: PLC0415 - few pools limit it

            self._make_room = partial(Room, self.most, clock.now)
        self._free_timer: TimerHandle | None = None
        """Armed while calls wait for room, until the next ended call is no longer counted."""
        self._policy = replace(policy, reconnect=Reconnect.LAZY) if self.picks else policy
        self._machine = machine
        self._clock = clock
        self._slots: dict[int, SlotParts[ConnectionT]] = {}
        self._only: ConnectionManager[ConnectionT] | None = None
        """The manager of the only slot; None if there are several."""
        self._serving: tuple[tuple[SlotParts[ConnectionT], ...], ...] = ()
        self._turns = itertools.count()
        self.liveness = LivenessWatches(machine.policy, setup.target)
        self.keepalive = Keepalive()
        self.healths = HealthWatches(self._policy, machine.policy.health_service, setup.rng)
        self._grows = False
        """Whether there may be one more connection, and none is coming."""
        self._full_with: tuple[p.Slot, ...] | None = None
        """The slots of which the machine was last told that they are full."""
        self._dozes = False
        """Whether a slot is idle while others serve, so that the next call has to wake it."""
        self._asked = -math.inf
        """When a call last asked for a connection, in seconds on the channel's clock."""
        self._sleeper: Sleeper | None = None
        self._final = False
        self._made_before = 0
        """How many connections were made by slots that are gone."""
        self._state, effects = machine.begin(clock.now())
        for effect in effects:
            self._carry_out(effect)

    # For subclasses to implement.

    @abstractmethod
    def _connector_for(self, endpoint: str) -> SlotConnector:
        """Return a connector for a new slot."""

    @abstractmethod
    def emit(self, event: Happened) -> None:
        """Notify the listeners of an event."""

    @abstractmethod
    def _show(self, state: State) -> None:
        """Report the channel's new state."""

    @abstractmethod
    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` when the clock reaches `when`, in seconds."""

    @abstractmethod
    def _ticking(self) -> Ticking | None:
        """Return the event loop, or the conductor; None if the channel's clock is not the machine's."""

    @abstractmethod
    def _at_home(self, work: Callable[[], None]) -> None:
        """Run `work` soon, on the event loop or thread that the pool belongs to; any thread may call this."""

    @abstractmethod
    def _discard(self, slot: SlotParts[ConnectionT]) -> None:
        """Clear up after a slot that was stopped for good; if the pool is not being closed, it has no connection."""

    # For the channel.

    @property
    def key(self) -> ChannelKey:
        """What identifies the channel in the pool's events."""
        return self._machine.channel

    @property
    def state(self) -> State:
        """The channel's current state (PO-4)."""
        only = self._only
        return self._state.state if only is None else only.state

    @property
    def is_failing(self) -> bool:
        """Whether the state is TRANSIENT_FAILURE."""
        only = self._only
        return self._state.state is _TRANSIENT_FAILURE if only is None else only.is_failing

    @property
    def has_connection(self) -> bool:
        """Whether there is a connection, as far as is currently known."""
        only = self._only
        return bool(self._serving) if only is None else only.connection is not None

    def want(self) -> None:
        """Ask for a connection; harmless if there already is one, or if one is being made."""
        only, first = self._only, self._state.phase is p.PoolPhase.UNWANTED
        if first:
            self._sleeper = NEWS.join(self, self._ticking(), network=self._machine.policy.watch_network)
        if first or only is None:
            self._asked = self._clock.now()
            if first or not self._only_full():
                self.feed(p.Wanted())
        else:
            only.want()
        if not first:
            self.liveness.call_waits()

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9). May be called from any thread, in any state."""
        self._at_home(partial(self.feed, p.Refresh(why)))

    def seek_another(self, connection: Any, status: int) -> None:
        """Seek another connection for a retry, as one has answered with this HTTP status (RT-15).

        If that connection is not known, it is the only one that serves. May be called from any thread.
        """
        self._at_home(partial(self._seek_another, connection, status))

    def _seek_another(self, connection: Any, status: int) -> None:
        serving = [slot for group in self._serving for slot in group]
        for slot in serving:
            current = slot.manager.connection
            if current is not None and (current is connection or (connection is None and len(serving) == 1)):
                draw = self.setup.rng.random()
                self.feed(p.TurnedAway(slot.pool_slot.number, status, current.core_channel.served, draw))

    def tell_news(self, why: str, spot: Hashable = None) -> None:
        """Handle news, which concerns only one spot if one is given; any thread may call this."""
        self._at_home(partial(self.hear_news, why, spot))

    def hear_news(self, why: str, spot: Hashable = None, *, woke: bool = False) -> None:
        """Look after every connection and dial soon where an attempt is only planned (LV-4).

        With `spot`, the news concerns only attempts to connect there.
        """
        for slot in self._live():
            if spot is None or self._spot(slot.pool_slot) == spot:
                slot.manager.feed(m.NewsArrived())
        if spot is None and (self._machine.policy.quiet_after or woke):
            for slot in tuple(self._slots.values()):
                watch = self._watch_over(slot.pool_slot.number)
                if watch is not None:
                    watch.hear(why, woke=woke)

    def reset(self) -> None:
        """Reset the backoff of every slot (CB-9, PO-4). May be called from any thread, in any state."""
        self._at_home(self._reset)

    def _reset(self) -> None:
        for slot in self._live():
            slot.manager.feed(m.ResetRequested())

    @property
    def is_paid(self) -> bool:
        """Whether an answer has paid for a live slot's latest connection, or for the next. Any thread may read this."""
        only = self._only
        return any(slot.manager.is_paid for slot in self._live()) if only is None else only.is_paid

    @property
    def made(self) -> int:
        """How many connections the live slots have made. Any thread may read this."""
        only = self._only
        return sum(slot.manager.made for slot in self._live()) if only is None else only.made

    @property
    def is_closed(self) -> bool:
        """Whether the pool is closed."""
        return self._state.phase is _CLOSED

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        NEWS.leave(self)
        if self._sleeper is not None:
            self._sleeper.leave(self)
        if self._free_timer is not None:
            self._free_timer.cancel()
        self.feed(p.PoolCloseRequested())
        self.pending = PoolSlot()  # the queue may refer to the pool, and nothing is to be left to the collector (CB-10)

    def retire_connections(self) -> None:
        """Close every connection of a closed pool when its last call ends."""
        for connector in self._connectors():
            connector.retire()

    def status(self) -> ConnectionStatus:
        """Return the channel's status, without its slots (CH-11). Any thread may call this."""
        only = self._only
        if only is not None and not self._made_before:
            return only.status()
        state, statuses = self.state, [slot.manager.status() for slot in self._live()]
        main = next((status for status in statuses if status.state is state), statuses[0])
        ready = state is State.READY
        planned = [status.next_attempt_in for status in statuses if status.next_attempt_in is not None]
        return replace(
            main,
            state=state,
            last_error=main.last_error if ready else main.last_error or self.healths.failure(),
            ready_since=main.ready_since if ready else None,
            in_flight=any(status.in_flight for status in statuses),
            next_attempt_in=min(planned, default=None),
            made=self._made_before + sum(slot.manager.made for slot in tuple(self._slots.values())),
        )

    def slots(self) -> tuple[SlotStatus, ...]:
        """Return the status of each slot; none before a connection is wanted (PO-11). Any thread may call this."""
        rows: list[SlotStatus] = []
        if self._state.phase is p.PoolPhase.UNWANTED:
            return ()
        for slot in self._state.slots:
            parts = self._slots.get(slot.number)
            if parts is not None:
                status, connection = parts.manager.status(), parts.manager.connection or parts.manager.draining
                suspected, answered = self.liveness.asked(slot.number)
                rows.append(
                    SlotStatus(
                        endpoint=slot.endpoint,
                        role=slot.role,
                        state=self._shown(parts),
                        calls=0 if connection is None else connection.core_channel.running,
                        since=slot.since,
                        last_error=status.last_error or self.healths.failure(slot.number),
                        suspected=suspected,
                        answered=answered,
                        spreads=parts.connector is not None and parts.connector.spreads,
                    )
                )
        return tuple(rows)

    # Picking.

    def _pick(self, avoid: Container[object] | None = ()) -> ConnectionManager[ConnectionT] | None:
        """Return the manager whose connection takes the next call; None if no connection serves, or all are full.

        A connection to avoid takes it only if no other connection does. None stands for a call that has just been made
        and lets those go first that wait for room.
        """
        serving: Sequence[Sequence[SlotParts[ConnectionT]]] = self._serving
        if not serving or (avoid is None and self.most < math.inf and len(self.pending)):
            return None
        others = elsewhere(serving, lambda slot: slot.manager.connection in avoid) if avoid else serving
        slot = self._pick_of(others) if self.picks else serving[0][0]
        if slot is None and others is not serving:
            slot = self._pick_of(serving)
        if self._dozes:
            self._dozes = False
            self._at_home(self.want)
        return None if slot is None else slot.manager

    def _pick_of(self, groups: Sequence[Sequence[SlotParts[ConnectionT]]]) -> SlotParts[ConnectionT] | None:
        return pick(groups, next(self._turns), self._load, self.most)

    def _load(self, slot: SlotParts[ConnectionT]) -> int:
        connection = slot.manager.connection
        if connection is None:
            return _FULL
        core = connection.core_channel
        if self.most == math.inf:
            running: int = core.running
            return running
        if core.room is None or core.held is not None:  # its slot is about to serve, or its peer has to answer first
            return _FULL
        taken: int = core.room.taken()
        return taken

    def _loads(self) -> tuple[p.Load, ...]:
        return tuple(
            p.Load(
                slot.pool_slot.number,
                connection.core_channel.running,
                connection.last_used(),
                connection.core_channel.served,
            )
            for group in self._serving
            for slot in group
            if (connection := slot.manager.connection) is not None
        )

    # Calls that wait for room (PO-14).

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room, because there are connections. Thread-safe."""
        return self.most < math.inf and bool(self._serving)

    def _only_full(self) -> bool:
        """Return whether a call that gets no connection needs nothing but room: all connections are up and open."""
        return (
            self.waits_for_room
            and len(self._connections()) == sum(map(len, self._serving))
            and not any(slot.state is State.IDLE for slot in self._state.live)
        )

    def _connections(self) -> list[Any]:
        """Return the serving connections that are up and that calls may enter, as long as there is room."""
        found = [slot.manager.connection for group in self._serving for slot in group]
        usable = [
            connection
            for connection in found
            if connection is not None and connection.core_channel.held is None and connection.alive()
        ]
        return [connection for connection in usable if connection.core_channel.room is not None]

    def call_left(self) -> None:
        """Handle the end of a call: another one may take its place soon. Any thread may call this."""
        if self._free_timer is None and len(self.pending):
            self._at_home(self.fill)

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for; the others need one more connection, or wait."""
        if self.is_closed:
            return
        rooms: list[Room] = [connection.core_channel.room for connection in self._connections()]
        free = 0
        while waiting := len(self.pending):
            free = sum(max(0, int(self.most) - room.taken()) for room in rooms)
            if free:
                self.pending.release(free)
            if not free or len(self.pending) == waiting:  # on threads, a call leaves the queue later
                break
        if self._grows and waiting > free and self._full_with is not self._state.slots and self._only_full():
            self._full_with = self._state.slots
            # On threads, calls that were told of room may not have taken it yet.
            most = int(self.most)
            self.feed(p.PoolBusy(tuple(load._replace(calls=max(load.calls, most)) for load in self._loads())))
        if not waiting:
            return
        self.liveness.call_waits()
        next_free = min((room.next_free() for room in rooms), default=math.inf)
        if self._free_timer is None and next_free < math.inf:
            self._free_timer = self.at(max(next_free, self._clock.now() + _FILL_EVERY), self._refill)

    def _refill(self) -> None:
        self._free_timer = None
        self.fill()

    def _release(self) -> None:
        """Start the pending calls, because there is a connection."""
        if self.most == math.inf:
            self.pending.release()
        else:
            self.fill()

    # Liveness (LV-1 to LV-3).

    @property
    def takes_calls(self) -> bool:
        """Whether a connection may be used now: it serves, and its peer need not answer first. Thread-safe."""
        return any(
            (connection := slot.manager.connection) is not None and connection.core_channel.held is None
            for group in self._serving
            for slot in group
        )

    def now(self) -> float:
        """Return the time on the channel's clock, in seconds."""
        return self._clock.now()

    def hold(self, connection: Any, *, shut: bool) -> None:
        """Make calls wait instead of using a connection, or start those that wait."""
        unhealthy = any(
            slot.role is Role.UNHEALTHY and self._slots[slot.number].manager.connection is connection
            for slot in self._state.slots
        )
        connection.core_channel.hold(shut=shut or unhealthy)
        if not shut and self.takes_calls:
            self._release()

    def report(self, kind: str, **fields: object) -> None:
        """Emit an event of this kind, which is about no attempt."""
        machine = self._machine
        about = {"target": machine.target, "channel": machine.channel, "at": self.now(), "attempt": 0}
        self.emit(Happened(kind, {**about, **fields}))

    def _watch_over(self, number: int) -> ConnectionWatch | None:
        """Return the watch over a slot's connection; None if the slot has no connection."""
        slot = self._slots[number]
        connection = slot.manager.connection or slot.manager.draining
        return self.liveness.watch(self, number, slot.pool_slot.endpoint, connection)

    # Health (RO-1).

    def must_prove(self, number: int) -> bool:
        """Return whether the server of a slot's new connection has to say that it is serving before the slot serves."""
        slot = self._state.slot(number)
        return slot is not None and slot.replaces is not None

    def rest(self, number: int, connection: Any) -> None:
        """Close the connection of a slot, because no call has used it within the idle timeout."""
        self._slots[number].manager.rest(connection)

    def _set_gates(self) -> None:
        """Keep calls from unhealthy connections, even calls whose method remembers its connection."""
        for slot in self._state.live:
            parts, watch = self._slots.get(slot.number), self.liveness.watched.get(slot.number)
            connection = None if parts is None else parts.manager.connection
            if connection is not None:
                shut = watch is not None and watch.connection is connection and watch.state.shut
                connection.core_channel.hold(shut=shut or slot.role is Role.UNHEALTHY)

    # Names.

    def resolves(self, endpoint: str) -> bool:
        """Return whether the slot of this endpoint stands for a target whose name is to be resolved (PO-7)."""
        return not endpoint and self._machine.policy.round_robin and self._machine.addresses is None

    def resolved(self, outcome: Addresses | Failure) -> None:
        """Report the outcome of a resolution and handle it."""
        if self.is_closed:
            return
        found, failure = ((), outcome) if isinstance(outcome, Failure) else (outcome, None)
        self.report("NameResolution", addresses=found, failure=failure)
        self.feed(p.NameResolved(found) if failure is None else p.ResolutionFailed())

    # From the slots.

    def serves(self, number: int) -> None:
        """Handle a new connection of a slot; if its endpoint is doubted, calls wait until its peer has answered."""
        if self._machine.policy.quiet_after or self._slots[number].pool_slot.endpoint in self.liveness.doubted:
            self._watch_over(number)
        targets = {self._slots[number].pool_slot.endpoint or self._machine.target, self._machine.target}
        NEWS.reached(self, *map(spot_of, targets))
        watched, connection = self._machine.policy.health_service is not None, self._slots[number].manager.connection
        if watched and connection is not None:
            self.healths.watch(self, number, connection)
        if self.most < math.inf and connection is not None:
            connection.core_channel.room = self._make_room(self._slots[number].pool_slot.left)
        self.feed(p.SlotServes(number, self._slots[number].manager.started))
        problem = self.healths.problem(number)
        if problem:
            self.feed(p.HealthChanged(number, problem))

    def failed(self, pool_slot: PoolSlot) -> None:
        """Handle a failed attempt of a slot; if another pool gets there, the next one starts soon (LV-4)."""
        NEWS.seeks(self, self._spot(pool_slot))
        self.feed(p.SlotFailed(pool_slot.number))

    def _spot(self, pool_slot: PoolSlot) -> Hashable:
        return spot_of(pool_slot.endpoint or self._machine.target)

    def changed(self, number: int, state: State) -> None:
        """Handle the new state of a slot."""
        if state is State.CONNECTING:  # what is reached during an attempt may be too late for it
            NEWS.seeks(self, self._spot(self._slots[number].pool_slot))
        watch = self.liveness.watched.get(number)
        if watch is not None and not watch.connection.alive():
            self.liveness.drop(number)
        if state is not State.READY and self.healths.watched:
            self.healths.drop(number)
        busy = False
        if state is State.IDLE:  # only then does it matter
            used = max(self._asked, self._slots[number].manager.last_used())
            recently = self._clock.now() - used < IDLE_SHARE * self._policy.idle_timeout  # CB-14
            busy = len(self.pending) > 0 or recently
        self.feed(p.SlotChanged(number, state, busy=busy))

    def hear(self, pool_slot: PoolSlot, event: Happened) -> None:
        """Pass on an event of a slot; only the end of the last one is the channel's."""
        if event.kind == "Closed" and not self._final:
            return
        if pool_slot.number or pool_slot.endpoint:
            event = event.changed(slot=pool_slot.number, endpoint=pool_slot.endpoint)
        self.emit(event)

    def _live(self) -> list[SlotParts[ConnectionT]]:
        """Return the live slots, or all if none is left; any thread may call this."""
        slots = dict(self._slots)
        live = [slots[slot.number] for slot in self._state.live if slot.number in slots]
        # In a step that exchanges all slots, the new ones are not made yet.
        return live or list(slots.values())

    def _shown(self, parts: SlotParts[ConnectionT]) -> State:
        """Return the state of a slot that counts for the channel's; any thread may call this."""
        state = self._state
        slot = state.slot(parts.pool_slot.number)
        if slot is None or slot.role is not Role.UNHEALTHY:
            return parts.manager.state
        # In the step that opens the replacement, it has no manager yet.
        replacement = state.replacement(slot.number)
        return slot.shown if replacement is None else replacement.state

    # Driving the machine.

    def _step(self, input_: p.PoolInput) -> None:
        self._state, effects = self._machine.step(self._state, input_, self._clock.now())
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: p.PoolEffect) -> None:  # noqa: C901, PLR0912 - one branch for each effect
        slots = self._slots
        match effect:
            case p.Show():
                self._show(effect.state)
            case p.Serving():
                self._serving = tuple(tuple(slots[number] for number in group) for group in effect.groups)
                self._count()
                if self.healths.watched:
                    self._set_gates()
            case m.ReleaseCalls():
                if not self.liveness.doubted or self.takes_calls:
                    self._release()
            case m.FailCalls():
                self.pending.fail()
            case stepping.Emit():
                self.emit(effect.event)
            case p.OpenSlot():
                self._open(effect)
            case p.WantSlot():
                slots[effect.slot].manager.want()
            case p.RetireSlot():
                self.healths.drop(effect.slot)
                self._retire(slots[effect.slot])
            case p.CondemnSlot():
                self.healths.drop(effect.slot)
                self._condemn(slots[effect.slot], effect.why)
            case p.RestSlot(number):
                if (connection := slots[number].manager.connection) is not None:
                    self.rest(number, connection)
            case p.CloseSlot():
                self._close_slot(effect.slot)
            case p.TellSlot():
                slots[effect.slot].manager.feed(m.NewsArrived())
            case p.Resolve():
                self.setup.resolve(lambda outcome: self._at_home(partial(self.resolved, outcome)))
            case stepping.ArmTimer():
                self._cancel_timer()
                self._timer = self.at(effect.at, self._timer_fired)
            case stepping.CancelTimer():
                self._cancel_timer()

    def _condemn(self, slot: SlotParts[ConnectionT], why: str) -> None:
        """End a slot's connection with its calls; the slot's `ended` follows."""
        live = slot.manager.connection
        connection = live or slot.manager.draining
        if live is not None:
            slot.manager.feed(m.ConnectionLost(why, used=live.last_used(), replaced=True))
        self._retire(slot)
        if connection is not None:
            connection.retire()
            connection.core_channel.fail(f"the connection was lost: {why}")

    def _drained(self) -> None:
        if self._only is not None and not self.picks:
            self._dozes = False
            return
        live = self._state.live
        self._dozes = len(live) > 1 and any(slot.state is State.IDLE for slot in live)
        if self.picks:
            most = self._machine.policy.max_connections
            coming = any(slot.role is Role.COMING for slot in live)
            self._grows = most > 1 and not coming and len(live) < most * len({slot.endpoint for slot in live})
            if self._grows and len(self.pending):
                self.fill()

    def _open(self, effect: p.OpenSlot) -> None:
        pool_slot = PoolSlot(self, effect.slot, effect.endpoint)
        beside = next((slot for slot in self._slots.values() if slot.pool_slot.endpoint == effect.endpoint), None)
        if effect.replaces is not None:
            self._slots[effect.replaces].manager.replaced = True
        self._slots[effect.slot] = self._make(pool_slot, None if beside is None else beside.manager.membership)
        self._count()

    def _make(self, pool_slot: PoolSlot, beside: Membership | None) -> SlotParts[ConnectionT]:
        """Return the parts of a new slot, whose manager joins the schedule of `beside` if that is given."""
        connector: Any = None
        if self.resolves(pool_slot.endpoint):
            from grpc_backoff.engine.resolution import Resolution  # noqa: PLC0415 - the core resolves most names

            dials: Any = Resolution(self)
        else:
            dials = connector = self._connector_for(pool_slot.endpoint)
            if isinstance(connector, BaseConnector):  # not a script
                connector.keepalive = self.keepalive
            if self._machine.policy.health_service is not None:
                from grpc_backoff.engine.proving import Proving  # noqa: PLC0415 - few channels watch health

                dials = Proving(connector, pool_slot)
        manager: ConnectionManager[ConnectionT] = ConnectionManager(
            Machine(self._machine.target, self._policy, self._machine.channel),
            dials,
            pool_slot,
            home=self.home,
            clock=self._clock,
            rng=self.setup.rng,
            key=self.setup.key_of(pool_slot.endpoint),
            beside=beside,
        )
        if connector is not None:
            connector.lost, connector.redialled = manager.look, manager.redialled
        return SlotParts(pool_slot, manager, connector)

    def _connectors(self) -> list[Any]:
        return [slot.connector for slot in self._slots.values() if slot.connector is not None]

    def _retire(self, slot: SlotParts[ConnectionT]) -> None:
        """Stop dialling for a slot and call the slot's `ended` when no connection of it is left."""
        connector, ended = slot.connector, slot.pool_slot.ended

        def closed() -> None:
            if not connector.open:
                ended()

        slot.manager.retire()
        if connector is None or not connector.open:
            self.home.post(ended)
        else:
            connector.closed = closed

    def _close_slot(self, number: int) -> None:
        slot = self._slots[number]
        self.liveness.drop(number)
        self.healths.drop(number)
        self._final = sum(other.pool_slot.pool is not None for other in self._slots.values()) == 1
        slot.manager.close()
        if slot.connector is not None:
            slot.connector.forget()
        self._discard(slot)
        slot.pool_slot.pool = None  # otherwise, the pool and the manager would keep each other alive (CB-10)
        if not self.is_closed:
            self._made_before += slot.manager.made
            del self._slots[number]
            self._count()
            self._forget(slot.pool_slot)

    def _forget(self, pool_slot: PoolSlot) -> None:
        """Keep nothing of an endpoint without slots: over the years, a name may have any number of addresses."""
        kept = [slot.pool_slot for slot in self._slots.values()]
        if pool_slot.endpoint not in [slot.endpoint for slot in kept]:
            self.liveness.doubted.discard(pool_slot.endpoint)
        if self._spot(pool_slot) not in map(self._spot, kept):
            NEWS.gives_up(self, self._spot(pool_slot))

    def _count(self) -> None:
        parts = next(iter(self._slots.values())) if len(self._slots) == 1 else None
        slot = None if parts is None else self._state.slot(parts.pool_slot.number)
        usable = parts is not None and (slot is None or slot.role is not Role.UNHEALTHY)
        self._only = parts.manager if parts is not None and usable else None

    def _timer_fired(self) -> None:
        self._timer = None
        draining = [slot.manager.draining for slot in self._slots.values()]
        used = [slot.manager.last_used() for slot in self._slots.values()]
        used += [connection.last_used() for connection in draining if connection is not None]
        self.feed(p.PoolTimerFired(self._loads(), max(self._asked, *used)))
