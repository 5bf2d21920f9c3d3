"""The base class of both APIs' pools: the connections of one channel, or of those that share them (PO-1).

A pool has slots: each is a connection manager with a connector of its own. What becomes of them is up to the pool's
`SlotRules`. Most pools have one slot all their lives, and rules that only pass on what its manager says. The rules for
several are those of the pool's machine: from the beginning if the policy allows several connections or the pool
resolves names, otherwise from the first time that the connection is to be replaced. The machine then takes over the
slot as it is: so far, it would have decided nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from grpc_backoff.base.status import ConnectionStatus, Failure, SlotStatus, State
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.news import NEWS, SleepWatch, spot_of
from grpc_backoff.engine.pending import CallQueue
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.engine.slot import ConnectionT, ConnectorT, OnlySlot, ShownSlot, Slot, SlotReceiver, SlotRules
from grpc_backoff.engine.watches import LivenessWatches

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.connection.connector import CallbackConnector
    from grpc_backoff.decide.connections.pool_records import PoolInput
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.registry import Membership
    from grpc_backoff.engine.resolver import Addresses
    from grpc_backoff.engine.several_slots import SeveralSlots

_READY, _TRANSIENT_FAILURE = State.READY, State.TRANSIENT_FAILURE  # up to Python 3.11, access to a member is slow


class BasePool(ABC, Generic[ConnectionT, ConnectorT]):
    """The connections of one or more channels; subclasses know the API.

    Attributes:
        key: identifies the channel in the pool's events.
        pending: the queue of pending calls.
        setup: what it dials, how, and when.
        now: returns the time on the channel's clock, in seconds; to keep it does not keep the pool alive (CB-10).
        home: where its connections live.
        by_number: the slots, which its rules open and close.
        rules: those for its slots.
        liveness: the watches over its connections, if there is reason for them (LV-1, LV-3).
        is_closed: whether the pool is closed.
    """

    def __init__(self, setup: PoolSetup, pending: CallQueue, home: Home) -> None:
        """Make the first slots. Subclasses call this when everything else is ready."""
        self.home = home
        self.key = ChannelKey()
        self.pending = pending
        self.setup = setup
        self.now = setup.clock.now
        self.by_number: dict[int, Slot[ConnectionT, ConnectorT]] = {}
        self.rules: SlotRules[ConnectionT, ConnectorT] = SlotRules()
        self.liveness = LivenessWatches(setup.pooling, setup.target)
        self.is_closed = False
        self._made_before = 0  # how many connections, by slots that are gone
        self._sleep_watch: SleepWatch | None = None
        self._wanted = False
        if setup.picks or setup.place is not None:
            from grpc_backoff.engine.several_slots import SeveralSlots  # noqa: PLC0415 - most pools have one slot

            self.rules = rules = SeveralSlots(self)
            rules.begin()
        else:
            self.rules = OnlySlot(self, self.open_slot())

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
    def at_home(self, work: Callable[[], object]) -> None:
        """Run `work` on the event loop or thread that the pool belongs to; any thread may call this.

        On asyncio, it runs at once if the caller is there, so events and listeners may follow before this returns.
        """

    def _first_wanted(self) -> None:
        """Prepare for the first connection, which is asked for now. By default, nothing is needed."""

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` at home at the time `when`, in seconds: to its rooms and watches, a pool is a clock."""
        return self.setup.clock.call_at(when, callback)

    def _discard(self, slot: Slot[ConnectionT, ConnectorT]) -> None:
        """Clear up after a slot that was stopped for good; if the pool is not being closed, it has no connection.

        By default, its connections close themselves.
        """

    # For the channel.

    @property
    def state(self) -> State:
        """The channel's current state (PO-4)."""
        only = self.rules.only
        return self.rules.channel_state if only is None else only.state

    @property
    def is_failing(self) -> bool:
        """Whether the state is TRANSIENT_FAILURE."""
        return self.state is _TRANSIENT_FAILURE

    @property
    def has_connection(self) -> bool:
        """Whether there is a connection, as far as is currently known."""
        only = self.rules.only
        return bool(self.rules.serving) if only is None else only.connection is not None

    def want(self) -> State:
        """Ask for a connection, unless there is one or one is being made; return the channel's state then."""
        only, first = self.rules.only, not (self._wanted or self.is_closed)
        if first:
            self._first_wanted()
            self._wanted = True
            home = self.home if self.setup.clock is self.home and self.home.keeps_time else None
            self._sleep_watch = NEWS.join(self, home, network=self.setup.pooling.watch_network)
        if first or only is None:
            self.rules.want(first=first)
        else:
            only.want()
        if not first:
            self.liveness.call_waits()
        return self.state

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9). May be called from any thread, in any state."""
        self.at_home(partial(self._refresh, why))

    def _refresh(self, why: str) -> None:
        if not self.is_closed:
            self._several().refresh(why)

    def seek_another(self, connection: GatedConnection | None, status: int) -> None:
        """Seek another connection for a retry, as one has answered with this HTTP status (RT-15).

        If that connection is not known, it is the only one that serves. May be called from any thread.
        """
        self.at_home(partial(self._seek_another, connection, status))

    def _seek_another(self, connection: GatedConnection | None, status: int) -> None:
        serving = [slot for group in self.rules.serving for slot in group]
        for slot in serving:
            current = slot.manager.connection
            if current is not None and (current is connection or (connection is None and len(serving) == 1)):
                self._several().turned_away(slot.number, status, served=current.served)

    def tell_news(self, why: str, spot: Hashable = None) -> None:
        """Handle news, which concerns only one spot if one is given; any thread may call this."""
        self.at_home(partial(self.hear_news, why, spot))

    def hear_news(self, why: str, spot: Hashable = None, *, woke: bool = False) -> None:
        """Look after every connection and dial soon where an attempt is only planned (LV-4).

        With `spot`, the news concerns only attempts to connect there.
        """
        for slot in self._live():
            if spot is None or spot_of(slot.receiver.target) == spot:
                slot.manager.feed(m.NewsArrived())
        if spot is None and (self.setup.pooling.quiet_after or woke):
            for slot in tuple(self.by_number.values()):
                watch = self.liveness.watch(self, slot)
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
        return any(slot.manager.is_paid for slot in self._live())

    @property
    def made(self) -> int:
        """How many connections the live slots have made. Any thread may read this."""
        return sum(slot.manager.made for slot in self._live())

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        NEWS.leave(self)
        if self._sleep_watch is not None:
            self._sleep_watch.leave(self)
        if not self.is_closed:
            self.is_closed = True
            self.rules.close()
        # Nothing is to be left to the collector (CB-10), and these may refer to the pool.
        self.rules, self.pending = SlotRules(), CallQueue()

    def retire_connections(self) -> None:
        """Close every connection of a closed pool when its last call ends."""
        for connector in self._connectors():
            connector.retire()

    def status(self) -> ConnectionStatus:
        """Return the channel's status, without its slots (CH-11). Any thread may call this."""
        only = self.rules.only
        if only is not None and not self._made_before:
            return only.status()
        state, statuses = self.state, [slot.manager.status() for slot in self._live()]
        main = next((status for status in statuses if status.state is state), statuses[0])
        if state is _READY:  # unless the connection was lost meanwhile
            state = main.state
        ready = state is _READY
        planned = [status.next_attempt_in for status in statuses if status.next_attempt_in is not None]
        failures = [main.last_error, self.rules.failure(), *(status.last_error for status in statuses)]
        return replace(
            main,
            state=state,
            last_error=main.last_error if ready else next(filter(None, failures), None),
            ready_since=main.ready_since if ready else None,
            in_flight=any(status.in_flight for status in statuses),
            next_attempt_in=min(planned, default=None),
            made=self._made_before + sum(slot.manager.made for slot in tuple(self.by_number.values())),
        )

    def slots(self) -> tuple[SlotStatus, ...]:
        """Return the status of each slot; none before a connection is wanted (PO-11). Any thread may call this."""
        shown = self.rules.shown() if self._wanted and not self.is_closed else ()
        return tuple(self._slot_status(slot) for slot in shown)

    def _slot_status(self, shown: ShownSlot[ConnectionT, ConnectorT]) -> SlotStatus:
        slot, manager = shown.slot, shown.slot.manager
        status, connection = manager.status(), manager.connection or manager.draining
        suspected, answered = self.liveness.suspicion(slot.number)
        return SlotStatus(
            endpoint=slot.endpoint,
            role=shown.role,
            state=shown.state,
            calls=0 if connection is None else connection.running,
            since=shown.since,
            last_error=status.last_error or self.rules.failure(slot.number),
            suspected=suspected,
            answered=answered,
            spreads=slot.connector is not None and slot.connector.spreads,
        )

    def _pick(
        self,
        avoid: Container[object] | None,
        connection_of: Callable[[ConnectionManager[ConnectionT]], ConnectionT | None],
    ) -> ConnectionT | None:
        """Return the connection for the next call; None if none may take it. `avoid` is as in `SlotRules.pick`."""
        for _ in range(1 + len(self.by_number)):  # a connection that was just lost may still be picked
            manager = self.rules.pick(avoid)
            connection = None if manager is None else connection_of(manager)
            if manager is None or (connection is not None and connection.gated is None):
                return connection
            if connection is not None:
                self.at_home(partial(self.liveness.call_waits, connection))
        return None

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room, because there are connections. Thread-safe."""
        return self.rules.is_limited and bool(self.rules.serving)

    @property
    def waits_for_answer(self) -> bool:
        """Whether a call that gets no connection waits until a peer shows that it is alive (LV-1). Thread-safe."""
        return bool(self.liveness.doubted) and self.state is _READY and not self.rules.takes_calls

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for (PO-14)."""
        self.rules.fill()

    @property
    def takes_calls(self) -> bool:
        """Whether a connection may be used now: it serves, and its peer need not answer first. Thread-safe."""
        return self.rules.takes_calls

    # For the rules, and for the watches.

    def set_gate(self, number: int, connection: GatedConnection, *, shut: bool) -> None:
        """Make calls wait instead of using the connection of a slot, or start those that wait."""
        connection.set_gate(shut=shut or self.rules.is_unhealthy(number))
        if not shut and self.rules.takes_calls:
            self._release()

    def report(self, kind: str, **fields: object) -> None:
        """Emit an event of this kind, which is about no attempt."""
        about = {"target": self.setup.target, "channel": self.key, "at": self.now(), "attempt": 0}
        self.emit(Happened(kind, {**about, **fields}))

    def feed(self, input_: PoolInput) -> None:
        """Step the pool's machine."""
        if not self.is_closed:
            self._several().feed(input_)

    def resolved(self, outcome: Addresses | Failure) -> None:
        """Report the outcome of a resolution and handle it (PO-7)."""
        if not self.is_closed:
            self._several().resolved(outcome)

    def start_calls(self) -> None:
        """Start the pending calls, because there is a connection, unless they have to wait for its peer's answer."""
        if not self.liveness.doubted or self.rules.takes_calls:
            self._release()

    def _release(self) -> None:
        if self.waits_for_room:
            self.fill()
        else:
            self.pending.release()

    # The slots.

    def _several(self) -> SeveralSlots[ConnectionT, ConnectorT]:
        """Return the rules for several slots, which apply from now on."""
        # CH-12: it was loaded with a policy or a source of credentials, or else a second after the first call.
        from grpc_backoff.engine.several_slots import SeveralSlots  # noqa: PLC0415

        rules = self.rules
        if not isinstance(rules, SeveralSlots):
            several = SeveralSlots(self)
            several.take_over(rules, wanted=self._wanted)
            self.rules = rules = several
        return rules

    def _live(self) -> list[Slot[ConnectionT, ConnectorT]]:
        """Return the live slots, or all if none is left; any thread may call this."""
        return self.rules.live() or list(self.by_number.values())

    def open_slot(
        self, number: int = 0, endpoint: str = "", beside: Membership | None = None
    ) -> Slot[ConnectionT, ConnectorT]:
        """Make a slot, whose manager joins the schedule of `beside` if that is given."""
        receiver = SlotReceiver(self, number, endpoint)
        connector: ConnectorT | None = None
        dials: CallbackConnector[ConnectionT]
        if self.setup.resolves and not endpoint:
            from grpc_backoff.engine.resolver import ResolvingConnector  # noqa: PLC0415 - the core resolves most names

            dials = ResolvingConnector(self)
        else:
            dials = connector = self._connector_for(endpoint)
            if self.setup.pooling.health_service is not None:
                from grpc_backoff.engine.health import ProvingConnector  # noqa: PLC0415 - few channels watch health

                dials = ProvingConnector(connector, receiver, self.home)
        manager = ConnectionManager(
            m.ConnectionMachine(self.setup.target, self.setup.slot_policy, self.key),
            dials,
            receiver,
            home=self.home,
            clock=self.setup.clock,
            rng=self.setup.rng,
            key=self.setup.key_of(endpoint),
            beside=beside,
        )
        if connector is not None:
            connector.lost, connector.redialled = manager.look, manager.redialled
        slot = self.by_number[number] = Slot(number, endpoint, receiver, manager, connector)
        return slot

    def close_slot(self, number: int) -> None:
        """Stop a slot for good."""
        slot = self.by_number[number]
        self.liveness.drop(number)
        slot.receiver.is_last = sum(other.receiver.pool is not None for other in self.by_number.values()) == 1
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
        self._made_before += gone.manager.made
        kept = self.by_number.values()
        if gone.endpoint not in [slot.endpoint for slot in kept]:
            self.liveness.doubted.discard(gone.endpoint)
        spot = spot_of(gone.receiver.target)
        if spot not in [spot_of(slot.receiver.target) for slot in kept]:
            NEWS.gives_up(self, spot)

    def _connectors(self) -> list[ConnectorT]:
        return [slot.connector for slot in self.by_number.values() if slot.connector is not None]


AnyPool = BasePool[Any, Any]
