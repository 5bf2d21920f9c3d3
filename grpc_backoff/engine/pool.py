"""The base class of both APIs' pools: the connections of one channel, or of those that share them (PO-1).

A pool has slots: each is a connection manager with a connector of its own. What becomes of them is up to the pool's
`SlotRules`, which only pass on what a manager says: most pools have one slot all their lives. The rules for several are
those of the pool's machine, which `slots.py` steps: from the beginning if the policy allows several connections or the
pool resolves names, otherwise from the first time that the connection is to be replaced. The machine then takes over
the slot as it is: so far, it would have decided nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from grpc_backoff.base.record import NamedTuple, record
from grpc_backoff.base.status import ConnectionStatus, Failure, Role, SlotStatus, State
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.connection_machine import ConnectionMachine
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.engine.core_connector import BaseConnector, Keepalive, SlotConnector
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.news import NEWS, Sleeper, spot_of
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.engine.watches import HealthWatches, LivenessWatches
from grpc_backoff.policy.connect import Reconnect

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.connection.connector import CallbackConnector
    from grpc_backoff.decide.connections.pool_records import PoolInput
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.liveness import ConnectionWatch
    from grpc_backoff.engine.news import Ticking
    from grpc_backoff.engine.registry import Membership
    from grpc_backoff.engine.resolver import Addresses
    from grpc_backoff.engine.slots import Slots

    class CallQueue(Protocol):
        """A queue of pending calls, of which a pool may start some."""

        def __len__(self) -> int:
            """Return how many calls are pending."""
            ...

        def release(self, most: float = math.inf, /) -> None:
            """Start pending calls, all or the first `most` of them (PO-14), because there is a connection."""
            ...

        def fail(self) -> None:
            """Fail the pending calls that do not survive a failed attempt (CH-3)."""
            ...


ConnectionT = TypeVar("ConnectionT", bound="GatedConnection")
ConnectorT = TypeVar("ConnectorT", bound=SlotConnector[Any])

_READY, _TRANSIENT_FAILURE = State.READY, State.TRANSIENT_FAILURE  # up to Python 3.11, access to a member is slow


class SlotReceiver:
    """What a slot's manager works for: a queue of pending calls, and a receiver of events and states.

    It runs no user code (TH-5a). Without a pool, because the slot was closed, the queue is empty, and what is received
    is lost.
    """

    __slots__ = ("endpoint", "number", "pool")

    def __init__(self, pool: AnyPool, number: int, endpoint: str) -> None:
        self.pool: AnyPool | None = pool
        self.number = number
        self.endpoint = endpoint

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return 0 if self.pool is None else len(self.pool.pending)

    def release(self) -> None:
        """Tell the pool that there is a connection."""
        if self.pool is not None:
            self.pool.serves(self.number)

    def fail(self) -> None:
        """Tell the pool that an attempt has failed."""
        if self.pool is not None:
            self.pool.failed(self.number)

    def hear(self, event: Happened) -> None:
        """Pass on an event."""
        if self.pool is not None:
            self.pool.hear(self, event)

    def changed(self, state: State) -> None:
        """Tell the pool of the slot's new state, before the effects that come with it."""
        if self.pool is not None:
            self.pool.changed(self.number, state)

    def left(self) -> None:
        """Tell the pool that a call has ended, if the slot's connection has limited room. Any thread may call this."""
        pool = self.pool
        if pool is not None:
            pool.rules.call_left()


class _NoCalls:
    """The queue of a closed pool."""

    def __len__(self) -> int:
        return 0

    def release(self, _most: float = math.inf, /) -> None:
        pass

    def fail(self) -> None:
        pass


_NO_CALLS = _NoCalls()


@record
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


SlotShown = tuple[Slot[ConnectionT, ConnectorT], Role, float, State]


class SlotRules(Generic[ConnectionT, ConnectorT]):
    """What a pool asks about its slots, and tells of them. `Slots` has the rules for several.

    As they stand, the rules for the only slot, as long as it has not been replaced: it serves while it has a
    connection. Without a pool, because that was closed, nothing happens.
    """

    def __init__(self, pool: BasePool[ConnectionT, ConnectorT] | None) -> None:
        self._of = pool
        self._since = math.inf if pool is None else pool.now()
        """When the slot got its connection, or lost it."""

    @property
    def channel_state(self) -> State:
        """The channel's state (PO-4), unless it is that of an only slot."""
        return State.SHUTDOWN

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room, because there are connections. Thread-safe."""
        return False

    def want(self, *, first: bool) -> None:  # noqa: ARG002 - the manager knows
        """Ask for a connection; `first` is whether that is the first time."""
        pool = self._of  # once, because a finalizer may close the pool at any point
        if pool is not None:
            pool.by_number[0].manager.want()

    def serves(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Handle a new connection of a slot."""
        pool = self._of
        if pool is not None:
            pool.serving, self._since = ((slot,),), pool.now()
            pool.start_calls()

    def failed(self, _slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Handle a failed attempt of a slot."""
        pool = self._of
        if pool is not None and pool.is_failing:
            pool.pending.fail()

    def changed(self, _slot: Slot[ConnectionT, ConnectorT], state: State) -> None:
        """Handle the new state of a slot."""
        pool = self._of
        if pool is not None:
            if pool.serving and state is not _READY:
                pool.serving, self._since = (), pool.now()
            pool.show(state)

    def resolved(self, outcome: Addresses | Failure) -> None:
        """Handle the outcome of a resolution (PO-7)."""

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for (PO-14)."""

    def call_left(self) -> None:
        """Handle the end of a call on a connection with limited room. Any thread may call this."""

    def pick(self, _avoid: Container[object] | None = ()) -> ConnectionManager[ConnectionT] | None:
        """Return the manager whose connection takes the next call; None if no connection serves, or all are full.

        A connection to avoid takes it only if no other connection does. None stands for a call that has just been made
        and lets those go first that wait for room.
        """

    def live(self) -> list[Slot[ConnectionT, ConnectorT]]:
        """Return the live slots; none if all are. Any thread may call this."""
        return []

    def shown(self) -> list[SlotShown[ConnectionT, ConnectorT]]:
        """Return each slot, with its role, since when it has it, and its state. Any thread may call this."""
        pool = self._of
        if pool is None:
            return []
        role, since = Role.SERVING if pool.serving else Role.COMING, self._since
        return [(slot, role, since, slot.manager.state) for slot in tuple(pool.by_number.values())]

    def is_replacement(self, _number: int) -> bool:
        """Return whether a slot is to replace another, so that its server has to say that it is serving (RO-1)."""
        return False

    def is_unhealthy(self, _number: int) -> bool:
        """Return whether the server of a slot's connection says that it is not serving (RO-1)."""
        return False

    def close(self) -> None:
        """Stop for good (CB-10)."""
        pool, self._of = self._of, None
        if pool is not None:
            pool.show(State.SHUTDOWN)
            pool.close_slot(0)

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connections belong to another process (FK-1)."""
        self._of = None


class BasePool(ABC, Generic[ConnectionT, ConnectorT]):
    """The connections of one or more channels; subclasses know the API.

    Attributes:
        key: identifies the channel in the pool's events.
        pending: the queue of pending calls.
        setup: what it dials, how, and when.
        home: where its connections live.
        policy: when its connections are made.
        by_number: the slots.
        only: the manager of the only slot; None if there are several, or if its server is not serving (RO-1).
        serving: the slots whose connections take new calls, one group for each endpoint.
        rules: those for its slots.
        made_before: how many connections were made by slots that are gone.
        asked: when a call last asked for a connection, in seconds on the channel's clock; while there is one slot, only
            the first call that asks is noted.
        liveness: the watches over its connections, if there is reason for them (LV-1, LV-3).
        healths: the watches over the health of its servers (RO-1).
        keepalive: how often its connections ping.
        picks: whether several connections may serve at a time, so that each call has to ask for one.
        is_closed: whether the pool is closed.
    """

    def __init__(self, setup: PoolSetup, pending: CallQueue, home: Home) -> None:
        """Make the first slots. Subclasses call this when everything else is ready."""
        self.home = home
        self.key = ChannelKey()
        self.pending = pending
        self.setup = setup
        pooling, self._clock = setup.pooling, setup.clock
        self.picks = pooling.round_robin or pooling.max_connections > 1
        self.policy = replace(setup.policy, reconnect=Reconnect.LAZY) if self.picks else setup.policy
        self.by_number: dict[int, Slot[ConnectionT, ConnectorT]] = {}
        self.only: ConnectionManager[ConnectionT] | None = None
        self.rules: SlotRules[ConnectionT, ConnectorT] = SlotRules(self)
        self.serving: tuple[tuple[Slot[ConnectionT, ConnectorT], ...], ...] = ()
        self.made_before = 0
        self.asked = -math.inf
        self.liveness = LivenessWatches(pooling, setup.target)
        self.keepalive = Keepalive()
        self.healths = HealthWatches(self.policy, pooling.health_service, setup.rng)
        self._sleeper: Sleeper | None = None
        self._wanted = False
        self._final = False
        self.is_closed = False
        if self.picks or setup.place is not None:
            from grpc_backoff.engine.slots import Slots  # noqa: PLC0415 - most pools have one slot

            self.rules = Slots(self)
        else:
            self.open_slot()

    # For subclasses to implement.

    @abstractmethod
    def _connector_for(self, endpoint: str) -> ConnectorT:
        """Return a connector for a new slot."""

    @abstractmethod
    def emit(self, event: Happened) -> None:
        """Notify the listeners of an event."""

    @abstractmethod
    def show(self, state: State) -> None:
        """Report the channel's new state."""

    @abstractmethod
    def _ticking(self) -> Ticking | None:
        """Return the event loop, or the conductor; None if the channel's clock is not the machine's."""

    @abstractmethod
    def at_home(self, work: Callable[[], None]) -> None:
        """Run `work` on the event loop or thread that the pool belongs to; any thread may call this.

        On asyncio, it runs at once if the caller is there, so events and listeners may follow before this returns.
        """

    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` at home when the clock reaches `when`, in seconds."""
        return self._clock.call_at(when, callback)

    def _discard(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Clear up after a slot that was stopped for good; if the pool is not being closed, it has no connection.

        By default, its connections close themselves.
        """

    # For the channel.

    @property
    def state(self) -> State:
        """The channel's current state (PO-4)."""
        only = self.only
        return self.rules.channel_state if only is None else only.state

    @property
    def is_failing(self) -> bool:
        """Whether the state is TRANSIENT_FAILURE."""
        return self.state is _TRANSIENT_FAILURE

    @property
    def has_connection(self) -> bool:
        """Whether there is a connection, as far as is currently known."""
        only = self.only
        return bool(self.serving) if only is None else only.connection is not None

    @property
    def is_unwanted(self) -> bool:
        """Whether no connection has been asked for, and the pool is open."""
        return not self._wanted and not self.is_closed

    def want(self) -> None:
        """Ask for a connection; harmless if there already is one, or if one is being made."""
        first = self.is_unwanted
        if first:
            self._wanted = True
            self._sleeper = NEWS.join(self, self._ticking(), network=self.setup.pooling.watch_network)
        if first or self.only is None:
            self.asked = self._clock.now()
        self.rules.want(first=first)
        if not first:
            self.liveness.call_waits()

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9). May be called from any thread, in any state."""
        self.at_home(partial(self._refresh, why))

    def _refresh(self, why: str) -> None:
        if not self.is_closed:
            self._machine().refresh(why)

    def seek_another(self, connection: object, status: int) -> None:
        """Seek another connection for a retry, as one has answered with this HTTP status (RT-15).

        If that connection is not known, it is the only one that serves. May be called from any thread.
        """
        self.at_home(partial(self._seek_another, connection, status))

    def _seek_another(self, connection: object, status: int) -> None:
        serving = () if self.is_closed else [slot for group in self.serving for slot in group]
        for slot in serving:
            current = slot.manager.connection
            if current is not None and (current is connection or (connection is None and len(serving) == 1)):
                self._machine().turned_away(slot.number, status, served=current.served)

    def tell_news(self, why: str, spot: Hashable = None) -> None:
        """Handle news, which concerns only one spot if one is given; any thread may call this."""
        self.at_home(partial(self.hear_news, why, spot))

    def hear_news(self, why: str, spot: Hashable = None, *, woke: bool = False) -> None:
        """Look after every connection and dial soon where an attempt is only planned (LV-4).

        With `spot`, the news concerns only attempts to connect there.
        """
        for slot in self._live():
            if spot is None or self._spot(slot.endpoint) == spot:
                slot.manager.feed(m.NewsArrived())
        if spot is None and (self.setup.pooling.quiet_after or woke):
            for slot in tuple(self.by_number.values()):
                watch = self._watch_over(slot)
                if watch is not None:
                    watch.hear(why, woke=woke)

    def reset(self) -> None:
        """Reset the backoff of every slot (CB-9, PO-4). May be called from any thread, in any state."""
        self.at_home(self._reset)

    def _reset(self) -> None:
        for slot in self._live():
            slot.manager.feed(m.ResetRequested())

    @property
    def is_paid(self) -> bool:
        """Whether an answer has paid for a live slot's latest connection, or for the next. Any thread may read this."""
        only = self.only
        return any(slot.manager.is_paid for slot in self._live()) if only is None else only.is_paid

    @property
    def made(self) -> int:
        """How many connections the live slots have made. Any thread may read this."""
        only = self.only
        return sum(slot.manager.made for slot in self._live()) if only is None else only.made

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        NEWS.leave(self)
        if self._sleeper is not None:
            self._sleeper.leave(self)
        if not self.is_closed:
            self.is_closed = True
            self.rules.close()
        # Nothing is to be left to the collector (CB-10), and both may refer to the pool.
        self.rules, self.pending = SlotRules(None), _NO_CALLS

    def retire_connections(self) -> None:
        """Close every connection of a closed pool when its last call ends."""
        for connector in self._connectors():
            connector.retire()

    def status(self) -> ConnectionStatus:
        """Return the channel's status, without its slots (CH-11). Any thread may call this."""
        only = self.only
        if only is not None and not self.made_before:
            return only.status()
        state, statuses = self.state, [slot.manager.status() for slot in self._live()]
        main = next((status for status in statuses if status.state is state), statuses[0])
        if state is _READY:  # unless the connection was lost meanwhile
            state = main.state
        ready = state is _READY
        planned = [status.next_attempt_in for status in statuses if status.next_attempt_in is not None]
        return replace(
            main,
            state=state,
            last_error=main.last_error if ready else main.last_error or self.healths.failure(),
            ready_since=main.ready_since if ready else None,
            in_flight=any(status.in_flight for status in statuses),
            next_attempt_in=min(planned, default=None),
            made=self.made_before + sum(slot.manager.made for slot in tuple(self.by_number.values())),
        )

    def slots(self) -> tuple[SlotStatus, ...]:
        """Return the status of each slot; none before a connection is wanted (PO-11). Any thread may call this."""
        shown = self.rules.shown() if self._wanted and not self.is_closed else ()
        return tuple(self._slot_status(*known) for known in shown)

    def _slot_status(self, slot: Slot[ConnectionT, ConnectorT], role: Role, since: float, state: State) -> SlotStatus:
        manager = slot.manager
        status, connection = manager.status(), manager.connection or manager.draining
        suspected, answered = self.liveness.suspicion(slot.number)
        return SlotStatus(
            endpoint=slot.endpoint,
            role=role,
            state=state,
            calls=0 if connection is None else connection.running,
            since=since,
            last_error=status.last_error or self.healths.failure(slot.number),
            suspected=suspected,
            answered=answered,
            spreads=slot.connector is not None and slot.connector.spreads,
        )

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room, because there are connections. Thread-safe."""
        return self.rules.waits_for_room

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for (PO-14)."""
        self.rules.fill()

    # Liveness (LV-1 to LV-3).

    @property
    def takes_calls(self) -> bool:
        """Whether a connection may be used now: it serves, and its peer need not answer first. Thread-safe."""
        return any(
            (connection := slot.manager.connection) is not None and connection.held is None
            for group in self.serving
            for slot in group
        )

    def now(self) -> float:
        """Return the time on the channel's clock, in seconds."""
        return self._clock.now()

    def set_gate(self, connection: GatedConnection, *, shut: bool) -> None:
        """Make calls wait instead of using a connection, or start those that wait."""
        rules, slots = self.rules, self._live()
        unhealthy = any(slot.manager.connection is connection and rules.is_unhealthy(slot.number) for slot in slots)
        connection.hold(shut=shut or unhealthy)
        if not shut and self.takes_calls:
            self._release()

    def report(self, kind: str, **fields: object) -> None:
        """Emit an event of this kind, which is about no attempt."""
        about = {"target": self.setup.target, "channel": self.key, "at": self.now(), "attempt": 0}
        self.emit(Happened(kind, {**about, **fields}))

    def feed(self, input_: PoolInput) -> None:
        """Step the pool's machine."""
        if not self.is_closed:
            self._machine().feed(input_)

    def rest(self, number: int, connection: object = None) -> None:
        """Close the connection of a slot, if it still is the one given, because no call uses it (CB-14)."""
        manager = self.by_number[number].manager
        current = manager.connection
        if current is not None and (connection is None or connection is current):
            manager.rest(current)

    def _watch_over(self, slot: Slot[ConnectionT, ConnectorT]) -> ConnectionWatch | None:
        """Return the watch over a slot's connection; None if the slot has no connection."""
        connection = slot.manager.connection or slot.manager.draining
        return self.liveness.watch(self, slot.number, slot.endpoint, connection)

    # From the slots.

    def serves(self, number: int) -> None:
        """Handle a new connection of a slot; if its endpoint is doubted, calls wait until its peer has answered."""
        slot, target = self.by_number[number], self.setup.target
        if self.setup.pooling.quiet_after or slot.endpoint in self.liveness.doubted:
            self._watch_over(slot)
        NEWS.reached(self, *map(spot_of, {slot.endpoint or target, target}))
        self.rules.serves(slot)  # only now: on asyncio, a listener may have replaced the connection meanwhile

    def failed(self, number: int) -> None:
        """Handle a failed attempt of a slot; if another pool gets there, the next one starts soon (LV-4)."""
        slot = self.by_number[number]
        NEWS.seeks(self, self._spot(slot.endpoint))
        self.rules.failed(slot)

    def _spot(self, endpoint: str) -> Hashable:
        """Return what the slots of an endpoint dial, as in the news."""
        return spot_of(endpoint or self.setup.target)

    def changed(self, number: int, state: State) -> None:
        """Handle the new state of a slot."""
        slot = self.by_number[number]
        if state is State.CONNECTING:  # what is reached during an attempt may be too late for it
            NEWS.seeks(self, self._spot(slot.endpoint))
        watch = self.liveness.watched.get(number)
        if watch is not None and not watch.connection.alive():
            self.liveness.drop(number)
        self.rules.changed(slot, state)

    def hear(self, receiver: SlotReceiver, event: Happened) -> None:
        """Pass on an event of a slot; only the end of the last one is the channel's."""
        if event.kind == "Closed" and not self._final:
            return
        if receiver.number or receiver.endpoint:
            event = event.changed(slot=receiver.number, endpoint=receiver.endpoint)
        self.emit(event)

    def start_calls(self) -> None:
        """Start the pending calls, because there is a connection, unless they have to wait for its peer's answer."""
        if not self.liveness.doubted or self.takes_calls:
            self._release()

    def _release(self) -> None:
        if self.waits_for_room:
            self.fill()
        else:
            self.pending.release()

    # The slots.

    def _machine(self) -> Slots[ConnectionT, ConnectorT]:
        """Return the rules for several slots, which apply from now on."""
        # CH-12: it was loaded with a policy or a source of credentials, or else a second after the first call.
        from grpc_backoff.engine.slots import Slots  # noqa: PLC0415

        rules = self.rules
        if not isinstance(rules, Slots):
            rules = self.rules = Slots(self, rules)
        return rules

    def _live(self) -> list[Slot[ConnectionT, ConnectorT]]:
        """Return the live slots, or all if none is left; any thread may call this."""
        return self.rules.live() or list(self.by_number.values())

    def open_slot(self, number: int = 0, endpoint: str = "", beside: Membership | None = None) -> None:
        """Make a slot, whose manager joins the schedule of `beside` if that is given."""
        receiver = SlotReceiver(self, number, endpoint)
        connector: ConnectorT | None = None
        dials: CallbackConnector[ConnectionT]
        if self.setup.resolves(endpoint):
            from grpc_backoff.engine.resolver import Resolution  # noqa: PLC0415 - the core resolves most names

            dials = Resolution(self)
        else:
            dials = connector = self._connector_for(endpoint)
            if isinstance(connector, BaseConnector):  # not a script
                connector.keepalive = self.keepalive
            if self.setup.pooling.health_service is not None:
                from grpc_backoff.engine.health import Proving  # noqa: PLC0415 - few channels watch health

                dials = Proving(connector, receiver, self.home)
        manager = ConnectionManager(
            ConnectionMachine(self.setup.target, self.policy, self.key),
            dials,
            receiver,
            home=self.home,
            clock=self._clock,
            rng=self.setup.rng,
            key=self.setup.key_of(endpoint),
            beside=beside,
        )
        if connector is not None:
            connector.lost, connector.redialled = manager.look, manager.redialled
        self.by_number[number] = Slot(number, endpoint, receiver, manager, connector)
        self._find_only()

    def use(self, groups: tuple[tuple[int, ...], ...]) -> None:
        """Let new calls use the connections of these slots, one group for each endpoint."""
        self.serving = tuple(tuple(self.by_number[number] for number in group) for group in groups)
        self._find_only()

    def _find_only(self) -> None:
        only = None
        if len(self.by_number) == 1:
            (slot,) = self.by_number.values()
            if not self.rules.is_unhealthy(slot.number):
                only = slot.manager
        self.only = only  # at once, because other threads read it

    def close_slot(self, number: int) -> None:
        """Stop a slot for good."""
        slot = self.by_number[number]
        self.liveness.drop(number)
        self.healths.drop(number)
        self._final = sum(other.receiver.pool is not None for other in self.by_number.values()) == 1
        slot.manager.close()
        if slot.connector is not None:
            slot.connector.forget()
        self._discard(slot)
        slot.receiver.pool = None  # otherwise, the pool and the manager would keep each other alive (CB-10)
        if not self.is_closed:
            self._forget(slot)

    def _forget(self, gone: Slot[ConnectionT, ConnectorT]) -> None:
        """Keep nothing of a closed slot, or of an endpoint without slots: in time, a name may have many addresses."""
        del self.by_number[gone.number]
        self.made_before += gone.manager.made
        self._find_only()
        kept = [slot.endpoint for slot in self.by_number.values()]
        if gone.endpoint not in kept:
            self.liveness.doubted.discard(gone.endpoint)
        if self._spot(gone.endpoint) not in map(self._spot, kept):
            NEWS.gives_up(self, self._spot(gone.endpoint))

    def _connectors(self) -> list[ConnectorT]:
        return [slot.connector for slot in self.by_number.values() if slot.connector is not None]


AnyPool = BasePool[Any, Any]
