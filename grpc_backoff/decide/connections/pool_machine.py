r"""A channel's pool of slots as a pure state machine.

Between a channel and its connections stands the pool. It has *slots*: a slot is an endpoint (the whole target, or one
address of it), a connection machine (`decide/connections/connection_machine.py`) on the schedule of that endpoint, and
at most one connection. When a slot dials is that machine's decision; here it is decided which slots there are, and what
each is for::

    opened --> COMING --READY--> SERVING --replaced, gone, or no longer needed--> RETIRING --last call--> closed
                 ^                |   |                                                                     ^
                 '-----lost-------'   '--known to be dead--> CONDEMNED --its calls have ended---------------'

By default a channel has one slot for its whole target, whose role is COMING or SERVING. A second slot for the same
endpoint either replaces the first (PO-3) or is opened beside it (PO-8)::

    slot 0   SERVING ............................... RETIRING ... closed
    slot 1             COMING, replaces slot 0 ..... SERVING ...................

If the replacement fails, it backs off, and slot 0 goes on serving. If slot 0 loses its connection meanwhile, the
replacement takes its place at once: it is the attempt, and slot 0 only waits for the end of its calls.

A slot whose server says that it is not serving is UNHEALTHY (RO-1): it keeps its connection, but new calls do not use
it. It is replaced in the same way, and if the server serves again before that, so does the slot.

With round_robin (PO-6) there is a slot for each address. Until the addresses are known, one slot with an empty endpoint
stands for the target. Its attempts are resolutions, so a name that cannot be resolved backs off as any attempt does.

States, inputs and effects are in `pool_records.py`, and the table is at the end. The shell, `engine/several_slots.py`,
carries out the effects and reports what has happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Role, State
from grpc_backoff.base.stepping import ArmTimer, CancelTimer, Emit, Transitions, ignored
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections import pool_records as p
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.pooling import PoolPolicy

UNUSED_FOR = 30.0
"""After how many seconds without a call a connection that is not needed retires (PO-8)."""

_LOST = "its connection was lost, and the replacement takes its place"
_REPLACED = "it was replaced"
_GONE = "the name no longer has this address"
_RESOLVED = "the name was resolved"
_FOUND = "the name has this address"
_FULL = "every connection has as many calls as it may have"
_UNNEEDED = "it is no longer needed"
_MOVED = "the name no longer has an address that it had when the connection was made"
_DEAD = "another connection was condemned"
_HEALTHY = "its server is serving again"
_TURNED_AWAY = "a call was answered with HTTP status {}"


_Kind = Literal["SlotOpened", "SlotServing", "SlotRetiring", "SlotClosed", "SlotCondemned", "SlotUnhealthy"]
"""The name of an event's class in `slot_events.py`."""


class PoolMachine(NamedTuple):
    """The rules for one channel's slots. The machine holds no state: `step` is a pure function.

    Attributes:
        target: the channel's target.
        policy: which connections there are.
        connect: when connections are made.
        channel: identifies the channel in events.
        addresses: the addresses of a target that names them; None if there is a name to resolve.
    """

    target: str
    policy: PoolPolicy
    connect: ConnectPolicy
    channel: ChannelKey
    addresses: tuple[str, ...] | None = None

    def begin(self, now: float) -> p.PoolStep:
        """Return the first state, and the effects that make the first slots."""
        state, effects = p.PoolState(addresses=self.addresses), []
        endpoints = self.addresses if self.policy.round_robin and self.addresses else ("",)
        for endpoint in endpoints:
            state, more = self._open(state, now, endpoint, _FOUND)
            effects += more
        return state, effects

    def taken_over(self, role: Role, since: float, state: State, started: float, *, wanted: bool) -> p.PoolState:
        """Return the state of a pool whose only slot did without the machine until now; `wanted` is as in `PoolPhase`.

        The others are as in `SlotState`.
        """
        made = since if role is Role.SERVING else math.inf
        slot = p.SlotState(0, role=role, state=state, since=since, started=started, made=made)
        return p.PoolState(p.PoolPhase.WANTED if wanted else p.PoolPhase.UNWANTED, (slot,), 1, self.addresses)

    def step(self, state: p.PoolState, input_: p.PoolInput, now: float) -> p.PoolStep:
        """Return the state after `input_`, and the effects that the shell must execute, in this order."""
        after, effects = TRANSITIONS[state.phase, type(input_)](self, state, input_, now)
        if after is state:  # a timer that fires changes it: what is planned stays so, and its timer is armed
            return after, effects
        if after.phase is not p.PoolPhase.CLOSED:
            after, planned = self._plan(after, now)
            effects += planned
            effects = [*_news(state, after), *effects]
        return after, effects

    # Slots come, serve and go.

    def _wanted(self, state: p.PoolState, _input: m.ConnectionWanted, now: float) -> p.PoolStep:
        wanted: list[p.PoolEffect] = [p.WantSlot(slot.number) for slot in state.live]
        for slot in state.live if len(wanted) > 1 else ():  # the state of a single one is the channel's
            state = self._begins(state, slot, now)
        return state if state.phase is p.PoolPhase.WANTED else state._replace(phase=p.PoolPhase.WANTED), wanted

    def _begins(self, state: p.PoolState, slot: p.SlotState, now: float) -> p.PoolState:
        """Let an idle slot that is asked for a connection count as CONNECTING at once.

        Its machine may not have been told yet, and a caller who sees the states meanwhile must not find that no slot
        has hope.
        """
        if slot.state is not State.IDLE:
            return state
        state = state.put(slot._replace(state=State.CONNECTING))
        if now >= state.resolved + self.policy.min_resolve_interval:
            state = self._look_up(state, now, at_once=False)
        return state

    def _slot_changed(self, state: p.PoolState, input_: p.SlotChanged, now: float) -> p.PoolStep:
        slot = state.slot(input_.slot)
        if slot is None or not slot.live:
            return state, []
        if input_.state is State.CONNECTING and self.policy.round_robin:  # only then is there a name to look up
            state = self._begins(state, slot, now)
        slot = slot._replace(state=input_.state)
        if slot.role in p.CONNECTED and input_.state is not State.READY:
            return self._lost(state, slot, now, busy=input_.busy)
        return self._seek(state.put(slot), slot, now, busy=input_.busy)

    def _lost(self, state: p.PoolState, slot: p.SlotState, now: float, *, busy: bool) -> p.PoolStep:
        replacement = state.replacement(slot.number)
        slot = slot._replace(role=Role.COMING, since=now, due="", problem="")
        state = self._look_up(state.put(slot), now, at_once=True)
        if replacement is not None:  # PO-3: the replacement is the attempt
            return self._retire(state.put(replacement._replace(replaces=None)), slot.number, now, _LOST)
        if len(state.of(slot.endpoint)) > 1:  # PO-8: another one is opened when it is needed
            return self._retire(state, slot.number, now, _UNNEEDED)
        return self._seek(state, slot, now, busy=busy)

    def _seek(self, state: p.PoolState, slot: p.SlotState, now: float, *, busy: bool) -> p.PoolStep:
        """Wake an idle slot that should keep seeking a connection (PO-3, PO-6).

        One that no call has used within the idle timeout waits for the next call of the channel. If another slot that
        was used a little later woke it, the channel would never become idle (CB-14).
        """
        eager = self.policy.max_connections > 1 and self.connect.reconnect is Reconnect.EAGER
        seeks = self.policy.round_robin or slot.replaces is not None or eager
        if not (seeks and busy and slot.state is State.IDLE):
            return state, []
        return self._begins(state, slot, now), [p.WantSlot(slot.number)]

    def _slot_serves(self, state: p.PoolState, input_: p.SlotServes, now: float) -> p.PoolStep:
        slot = state.slot(input_.slot)
        if slot is None or not slot.live:
            return state, []
        before, replaces = slot.role, slot.replaces
        due = slot.due if input_.started <= slot.due_since else ""  # PO-9: later attempts need no successor
        slot = slot._replace(role=Role.SERVING, since=now, replaces=None, started=input_.started, made=now, due=due)
        state = state.put(slot)
        if self.policy.round_robin:
            state = state._replace(rest_at=min(state.rest_at, now + self.connect.idle_timeout))
        effects: list[p.PoolEffect] = []
        if before is not Role.SERVING:
            effects += self._announce("SlotServing", slot, now, "it has a connection")
        if replaces is not None:
            state, more = self._retire(state, replaces, now, _REPLACED)
            effects += more
        if self.policy.resolve_every and self.addresses is None and not self.policy.round_robin:
            # Which addresses the name has now is what later resolutions are compared with.
            state = state._replace(addresses=None, resolve_at=now)
        return state, [*effects, m.ReleaseCalls()]

    def _slot_failed(self, state: p.PoolState, input_: p.SlotFailed, now: float) -> p.PoolStep:
        slot = state.slot(input_.slot)
        if slot is None or not slot.live:
            return state, []
        state = self._look_up(state, now, at_once=False)
        return state, [m.FailCalls()] if state.state is State.TRANSIENT_FAILURE else []

    def _slot_ended(self, state: p.PoolState, input_: p.SlotEnded, now: float) -> p.PoolStep:
        slot = state.slot(input_.slot)
        if slot is None or slot.live:
            return state, []
        state = state._replace(slots=tuple(other for other in state.slots if other is not slot))
        lived = now - slot.made if slot.made <= now else None
        closed = self._event("SlotClosed", slot, now, "its last call has ended", lived=lived)
        return state, [p.CloseSlot(slot.number), Emit(closed)]

    def _condemned(self, state: p.PoolState, input_: p.Condemned, now: float) -> p.PoolStep:
        """Condemn a connection. New calls use its replacement, or wait for one (PO-2)."""
        slot = state.slot(input_.slot)
        if slot is None or slot.role not in (*p.CONNECTED, Role.RETIRING):
            return state, []
        was_live, replacement = slot.live, state.replacement(slot.number)
        slot = slot._replace(role=Role.CONDEMNED, since=now)
        state = state.put(slot)
        effects: list[p.PoolEffect] = []
        if replacement is not None:
            state = state.put(replacement._replace(replaces=None))
        elif was_live and not state.of(slot.endpoint):
            state, effects = self._open(state, now, slot.endpoint, _DEAD)
        condemned = self._event("SlotCondemned", slot, now, input_.why)
        return state, [*effects, p.CondemnSlot(slot.number, input_.why), Emit(condemned)]

    def _health_changed(self, state: p.PoolState, input_: p.HealthChanged, now: float) -> p.PoolStep:
        """Keep new calls from a connection and seek another one, or let them use it again (RO-1)."""
        slot = state.slot(input_.slot)
        if slot is None or slot.role is not (Role.SERVING if input_.problem else Role.UNHEALTHY):
            return state, []
        if input_.problem:
            problem = input_.problem if state.replacement(slot.number) is None else ""
            slot = slot._replace(role=Role.UNHEALTHY, since=now, problem=problem, row=0, gap=0.0)
            state = self._look_up(state.put(slot), now, at_once=True)
            failed: list[p.PoolEffect] = [m.FailCalls()] if state.state is State.TRANSIENT_FAILURE else []
            return state, [Emit(self._event("SlotUnhealthy", slot, now, input_.problem)), *failed]
        slot = slot._replace(role=Role.SERVING, since=now, problem="")
        return state.put(slot), [Emit(self._event("SlotServing", slot, now, _HEALTHY)), m.ReleaseCalls()]

    def _open(self, state: p.PoolState, now: float, endpoint: str, why: str, replaces: int | None = None) -> p.PoolStep:
        wanted = state.phase is p.PoolPhase.WANTED
        shown = State.CONNECTING if wanted else State.IDLE
        slot = p.SlotState(state.opened, endpoint, state=shown, since=now, replaces=replaces)
        state = state._replace(slots=(*state.slots, slot), opened=state.opened + 1)
        effects: list[p.PoolEffect] = [p.OpenSlot(slot.number, endpoint, replaces)]
        effects += self._announce("SlotOpened", slot, now, why)
        if wanted:
            effects.append(p.WantSlot(slot.number))
        return state, effects

    def _retire(self, state: p.PoolState, number: int, now: float, why: str) -> p.PoolStep:
        slot = state.slot(number)
        if slot is None or not slot.live:
            return state, []
        slot = slot._replace(role=Role.RETIRING, since=now, replaces=None, due="", problem="")
        effects: list[p.PoolEffect] = [p.RetireSlot(number), Emit(self._event("SlotRetiring", slot, now, why))]
        state, replacement = state.put(slot), state.replacement(number)
        if replacement is not None:  # the endpoint is gone, or the slot is not needed any more
            state, more = self._retire(state, replacement.number, now, why)
            effects += more
        return state, effects

    # Replacement (PO-3, PO-9).

    def _refresh(self, state: p.PoolState, input_: p.Refresh, now: float) -> p.PoolStep:
        """Mark every connection for replacement, even one whose attempt began before this, in backoff as well."""
        for slot in state.live:
            if slot.state is not State.IDLE:
                state = state.put(slot._replace(due=input_.why, due_since=now, row=0, gap=0.0))
        return self._look_up(state, now, at_once=True), []

    def _turned_away(self, state: p.PoolState, input_: p.TurnedAway, now: float) -> p.PoolStep:
        """Mark a connection for replacement; one on which no call was answered, after a gap that grows (RT-15)."""
        slot = state.slot(input_.slot)
        if slot is None or slot.role is not Role.SERVING or state.replacement(slot.number) is not None:
            return state, []
        if slot.due and not (slot.gap and input_.served):
            return state, []
        row, gap = (0, 0.0) if input_.served else (slot.row + 1, slot.gap)
        if row:
            gap = self.connect.window(row, gap or None).at(input_.draw)
        return state.put(slot._replace(due=_TURNED_AWAY.format(input_.status), due_since=now, row=row, gap=gap)), []

    def _answered(self, state: p.PoolState, loads: Sequence[p.Load]) -> p.PoolState:
        """End the series of connections that turn calls away where one has answered a call (RT-15)."""
        for load in loads:
            slot = state.slot(load.slot)
            if load.served and slot is not None and slot.gap:
                state = state.put(slot._replace(due="", row=0, gap=0.0))
        return state

    def _replaceable(self, state: p.PoolState) -> list[tuple[float, p.SlotState]]:
        """Return each slot that is to be replaced, with the earliest start of its replacement."""
        return [
            (slot.started + max(self.connect.initial_backoff, slot.gap), slot)
            for slot in state.slots
            if (slot.due or slot.problem) and slot.role in p.CONNECTED and state.replacement(slot.number) is None
        ]

    # Names (PO-7).

    def _look_up(self, state: p.PoolState, now: float, *, at_once: bool) -> p.PoolState:
        """Plan a resolution because of a loss or a failure."""
        if not self.policy.round_robin or self.addresses is not None or state.addresses is None:
            return state
        allowed = state.resolved + self.policy.min_resolve_interval
        if at_once and now >= state.early + self.policy.min_resolve_interval:
            return state._replace(resolve_at=now, early=now)
        return state._replace(resolve_at=min(state.resolve_at, max(now, allowed)))

    def _resolved(self, state: p.PoolState, input_: p.NameResolved, now: float) -> p.PoolStep:
        known, new = state.addresses, tuple(dict.fromkeys(input_.addresses))
        if not state.resolving:  # by an attempt of the slot that stands for the target
            state = state._replace(resolved=now)
        effects = self._appeared(state, new)
        state = state._replace(resolving=False, found=new)
        if not new:
            return state, []
        state = state._replace(addresses=new)
        if not self.policy.round_robin:
            if known is not None and not set(known) <= set(new):
                state, _ = self._refresh(state, p.Refresh(_MOVED), now)
                return state, effects
            return state._replace(addresses=known or new), effects
        opened = {slot.endpoint for slot in state.live}
        for endpoint in [address for address in new if address not in opened]:
            state, more = self._open(state, now, endpoint, _FOUND)
            effects += more
        for slot in state.live:
            if slot.endpoint not in new:
                state, more = self._retire(state, slot.number, now, _GONE if slot.endpoint else _RESOLVED)
                effects += more
        if state.state is State.TRANSIENT_FAILURE:  # of those that are left, none has hope
            effects.append(m.FailCalls())
        return state, effects

    def _appeared(self, state: p.PoolState, new: Sequence[str]) -> list[p.PoolEffect]:
        """Tell the slots asleep in backoff whose name has an address that it did not have before (LV-4)."""
        if state.found is None:
            return []
        fresh = set(new) - set(state.found)
        return [
            p.TellSlot(slot.number)
            for slot in state.live
            if slot.state is State.TRANSIENT_FAILURE and (slot.endpoint in fresh or (fresh and not slot.endpoint))
        ]

    def _resolve_regularly(self, state: p.PoolState, now: float) -> p.PoolState:
        """Plan the next resolution while there is a connection, or a slot is in backoff."""
        every = self.policy.resolve_every
        if not every or self.addresses is not None or state.resolving:
            return state
        if not any(slot.role is Role.SERVING or slot.state is State.TRANSIENT_FAILURE for slot in state.live):
            return state
        return state._replace(resolve_at=min(state.resolve_at, max(now, state.resolved + every)))

    # The number of connections (PO-8).

    def _busy(self, state: p.PoolState, input_: p.PoolBusy, now: float) -> p.PoolStep:
        """Open one more connection for each endpoint whose connections are all full, one attempt at a time."""
        calls = {load.slot: load.calls for load in input_.loads}
        effects: list[p.PoolEffect] = []
        for endpoint in dict.fromkeys(slot.endpoint for slot in state.live):
            slots = [slot for slot in state.of(endpoint) if slot.replaces is None]
            full = all(
                slot.role is Role.SERVING and calls.get(slot.number, 0) >= self.policy.streams_per_connection
                for slot in slots
            )
            if full and len(slots) < self.policy.max_connections:
                state, more = self._open(state, now, endpoint, _FULL)
                effects += more
        return state._replace(look_at=min(state.look_at, now + UNUSED_FOR)), effects

    def _timer_fired(self, state: p.PoolState, input_: p.PoolTimerFired, now: float) -> p.PoolStep:
        state, effects = self._rest(self._answered(state._replace(armed=math.inf), input_.loads), input_.used, now)
        if now < state.look_at:
            return state, effects
        state, more = self._shrink(state, input_.loads, now)
        return state, [*effects, *more]

    def _rest(self, state: p.PoolState, used: float, now: float) -> p.PoolStep:
        """Close all connections of a channel that is idle: the core never closes one that no call has used (CB-14)."""
        if now < state.rest_at:
            return state, []
        if now < used + self.connect.idle_timeout:
            return state._replace(rest_at=min(used, now) + self.connect.idle_timeout), []
        resting: list[p.PoolEffect] = [p.RestSlot(slot.number) for slot in state.live if slot.role in p.CONNECTED]
        return state._replace(rest_at=math.inf), resting

    def _shrink(self, state: p.PoolState, loads: Sequence[p.Load], now: float) -> p.PoolStep:
        """Retire the connections that are not needed and have had no call for a while."""
        by_slot = {load.slot: load for load in loads}
        effects: list[p.PoolEffect] = []
        more_than_one = False
        for endpoint in dict.fromkeys(slot.endpoint for slot in state.live):
            slots = [slot for slot in state.of(endpoint) if slot.replaces is None]
            total = sum(by_slot[slot.number].calls for slot in slots if slot.number in by_slot)
            needed = max(1, math.ceil(total / self.policy.streams_per_connection))
            for slot in reversed(slots):
                load = by_slot.get(slot.number, p.Load(slot.number, 0))
                unused = not load.calls and now - max(load.used, slot.since) >= UNUSED_FOR
                unused = unused and slot.role is not Role.UNHEALTHY
                if len(state.of(endpoint)) > needed and unused and not self._only_server(state, slot):
                    state, more = self._retire(state, slot.number, now, _UNNEEDED)
                    effects += more
            more_than_one = more_than_one or len(state.of(endpoint)) > 1
        return state._replace(look_at=now + UNUSED_FOR if more_than_one else math.inf), effects

    def _only_server(self, state: p.PoolState, slot: p.SlotState) -> bool:
        others = [other for other in state.of(slot.endpoint) if other is not slot]
        return slot.role is Role.SERVING and all(other.role is not Role.SERVING for other in others)

    # The plan, and the end.

    def _plan(self, state: p.PoolState, now: float) -> p.PoolStep:
        """Do what is due, and arm the timer for what is to follow."""
        effects: list[p.PoolEffect] = []
        replaceable = self._replaceable(state)
        for at, slot in replaceable:
            if at <= now:
                state = state.put(slot._replace(due="", problem=""))
                state, more = self._open(state, now, slot.endpoint, slot.cause, slot.number)
                state = state.put(state.slots[-1]._replace(row=slot.row, gap=slot.gap))
                effects += more
        state = self._resolve_regularly(state, now)
        if state.resolve_at <= now and not state.resolving:
            state = state._replace(resolving=True, resolved=now, resolve_at=math.inf)
            effects.append(p.Resolve())
        next_look = math.inf if state.resolving else state.resolve_at
        due = min(state.look_at, state.rest_at, next_look, *[at for at, _ in replaceable if at > now])
        if due != state.armed:
            state = state._replace(armed=due)
            effects.append(CancelTimer() if due == math.inf else ArmTimer(due))
        return state, effects

    def _close(self, state: p.PoolState, _input: m.CloseRequested, _now: float) -> p.PoolStep:
        """Discard all slots. The one that serves, or else the first, comes last: its end is the channel's (CB-10)."""
        last = max(state.slots, key=lambda slot: (slot.live, slot.role is Role.SERVING, -slot.number))
        others = [p.CloseSlot(slot.number) for slot in state.slots if slot is not last]
        timer = [CancelTimer()] if state.armed != math.inf else []
        closed = state._replace(phase=p.PoolPhase.CLOSED, slots=())
        return closed, [p.Show(State.SHUTDOWN), *timer, *others, p.CloseSlot(last.number)]

    # Events.

    def _announce(self, kind: _Kind, slot: p.SlotState, now: float, why: str) -> list[p.PoolEffect]:
        """Return the event of this class; nothing for the slot that every channel begins with."""
        if slot.number == 0 and not slot.endpoint:
            return []
        return [Emit(self._event(kind, slot, now, why))]

    def _event(self, kind: _Kind, slot: p.SlotState, now: float, why: str, **more: object) -> Happened:
        about = {"target": self.target, "channel": self.channel, "at": now, "attempt": 0}
        return Happened(kind, {**about, "endpoint": slot.endpoint, "slot": slot.number, "why": why, **more})


def _news(before: p.PoolState, after: p.PoolState) -> list[p.PoolEffect]:
    """Return what has changed for calls and watchers; this comes first, so that released calls find a connection."""
    if before.slots is after.slots:
        return []
    news: list[p.PoolEffect] = []
    serving, state = after.serving, after.state
    if before.serving != serving:
        news.append(p.Serving(serving))
    if before.state is not state:
        news.append(p.Show(state))
    return news


_Handler = Callable[[PoolMachine, p.PoolState, Any, float], p.PoolStep]

_OPEN: Mapping[type[p.PoolInput], _Handler] = {
    m.ConnectionWanted: PoolMachine._wanted,
    p.SlotChanged: PoolMachine._slot_changed,
    p.SlotServes: PoolMachine._slot_serves,
    p.SlotFailed: PoolMachine._slot_failed,
    p.SlotEnded: PoolMachine._slot_ended,
    p.NameResolved: PoolMachine._resolved,
    p.Refresh: PoolMachine._refresh,
    p.Condemned: PoolMachine._condemned,
    p.HealthChanged: PoolMachine._health_changed,
    p.TurnedAway: PoolMachine._turned_away,
    p.PoolBusy: PoolMachine._busy,
    p.PoolTimerFired: PoolMachine._timer_fired,
    m.CloseRequested: PoolMachine._close,
}
TRANSITIONS = Transitions.by_phase(
    {
        p.PoolPhase.UNWANTED: _OPEN,
        p.PoolPhase.WANTED: _OPEN,
        p.PoolPhase.CLOSED: dict.fromkeys(_OPEN, ignored),
    }
)
