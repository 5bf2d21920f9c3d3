"""gRPC's ConnectWithBackoff as a pure state machine: (state, input, now, random numbers) -> (state, effects).

All decisions about when to dial are made here. Nothing here uses a clock, a timer, a random generator, a socket or
grpc. The machine returns effects, and a shell executes them in order: the shell for both APIs is
`engine/manager.py`. The table at the end of this module defines the machine: a pair of phase and input that is not in
the table raises `IllegalTransition`.

How an attempt, its gap and its limit are related (gaps run from start to start)::

    start of attempt 1          current_deadline            start of attempt 2
    |---- attempt, fails ----|  . . . sleeps . . .         |---- attempt ...
    |<------------- gap(1) = INITIAL ------------>|
    |<--- limit: max(current_deadline, start + MIN_CONNECT_TIMEOUT) --->|

If an attempt is still running at its `current_deadline` and then fails, the next one starts without a pause.

The backoff itself belongs to the key (`shared_schedule.py`): the state before a step contains the key's schedule at
that moment, and the state after it contains the new schedule. If no other channel has the same key, the schedule
belongs to this channel alone.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from grpc_backoff.base.base_errors import IllegalTransition
from grpc_backoff.base.record import NamedTuple, record
from grpc_backoff.base.status import Failure, Stage, State
from grpc_backoff.base.stepping import AbandonAttempt, ArmTimer, CancelTimer, Emit
from grpc_backoff.decide.connections.core_texts import NO_SETTINGS
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.decide.connections.shared_schedule import BEAT, STALLED_AFTER, Health, Schedule
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect

_NEVER = -math.inf
_ASKED_JUST_NOW = 0.01
"""Two requests for a connection within this many seconds count as one; any idle timeout is at least a hundred times as
long."""

_OUTCOME_WITHIN = 0.25
"""How many seconds an attempt past its limit waits for an outcome that is on its way, before it is checked again."""

_serials = itertools.count(1)


class Phase(enum.Enum):
    """The machine's phase.

    Attributes:
        state: the channel state that corresponds to it; several phases have the same.
    """

    __hash__ = object.__hash__  # implemented in C, because every step looks up the table

    IDLE = 1, State.IDLE
    """There is no connection, and none is wanted."""
    HOLDING = 2, State.CONNECTING
    """A connection is wanted, but its first attempt must wait (CB-7, SH-5)."""
    CONNECTING = 3, State.CONNECTING
    """The first attempt of a series is in flight."""
    READY = 4, State.READY
    """SETTINGS arrived; the connection is up."""
    BACKOFF = 5, State.TRANSIENT_FAILURE
    """An attempt by this manager, or by another one of its key, has failed; sleeping until the next one may start."""
    RETRYING = 6, State.TRANSIENT_FAILURE
    """An attempt that follows a failed one is in flight. The channel still shows TRANSIENT_FAILURE (gRFC A62)."""
    CLOSED = 7, State.SHUTDOWN
    """The channel is closed; this phase is final."""

    def __init__(self, _number: int, state: State) -> None:
        self.state = state


# Up to Python 3.11, access to a member is slow.
_IDLE = Phase.IDLE
_IN_FLIGHT = (Phase.CONNECTING, Phase.RETRYING)


@record
class MachineState(NamedTuple):
    """The machine's complete state. Times are in seconds on the shell's monotonic clock.

    Attributes:
        phase: the current phase.
        attempt: the number of the latest attempt in its series; 0 if the next start begins a new series.
        attempt_id: identifies the latest attempt in events.
        starts: how many attempts this manager has made.
        started: when its latest attempt started.
        planned: the specification's `current_deadline`, as set by the latest attempt.
        limit: when the attempt in flight times out.
        ready_since: when the manager became READY; None if it is not READY.
        asked: when an RPC last asked for a connection or used one, as far as the machine knows.
        failure: why the last attempt failed or the last connection ended; None while READY.
        connections: how many connections were made.
        last_life: how many seconds the last connection lasted; infinity if there was none, and None if an answer or
            credit pays for what follows.
        paid: whether an answer or credit paid for the latest attempt (CB-7).
        key: the schedule of the manager's key, as of the latest step.
        member: the manager's number in that schedule.
    """

    phase: Phase = Phase.IDLE
    attempt: int = 0
    attempt_id: str = ""
    starts: int = 0
    started: float = _NEVER
    planned: float = _NEVER
    limit: float = _NEVER
    ready_since: float | None = None
    asked: float = _NEVER
    failure: Failure | None = None
    connections: int = 0
    last_life: float | None = math.inf
    paid: bool = False
    key: Schedule = Schedule()
    member: int = 0

    @property
    def state(self) -> State:
        """The channel state that corresponds to this phase."""
        return self.phase.state

    def heeds_want(self, now: float) -> bool:
        """Return whether `ConnectionWanted` would change anything.

        Outside IDLE, that input only renews the time of the last request. If it would change nothing, the shell may
        skip it: of a thousand pending calls, only a few have to send it.
        """
        return self.phase is _IDLE or now - self.asked >= _ASKED_JUST_NOW

    @property
    def in_flight(self) -> bool:
        """Whether an attempt is running."""
        return self.phase in _IN_FLIGHT

    @property
    def is_paid(self) -> bool:
        """Whether an answer, or credit, has paid for the latest connection, or for the next, and it has not failed."""
        failing = self.phase in (Phase.BACKOFF, Phase.RETRYING)
        return self.connections > 1 and not failing and (self.paid or self.last_life is None)

    @property
    def dials_in_turn(self) -> bool:
        """Whether the key is in backoff and its one attempt in flight is this manager's (SH-3)."""
        return self.in_flight and self.key.failing and self.key.turn == self.member

    @property
    def awaits_turn(self) -> bool:
        """Whether this manager is waiting for the attempt of another manager of its key."""
        return self.phase is Phase.BACKOFF and self.key.failing and self.key.turn is not None

    @property
    def deadline(self) -> float:
        """The earliest time at which the next attempt may start, as currently planned."""
        return self.planned if self.in_flight or self.phase is Phase.READY else self.key.next_start

    @property
    def next_start(self) -> float | None:
        """When the next attempt is due; None if none is planned."""
        return self.key.next_start if self.phase in (Phase.HOLDING, Phase.BACKOFF) else None


@record
class ConnectionWanted(NamedTuple):
    """An RPC, or a caller with `try_to_connect`, asks for a connection."""


@record
class SettingsReceived(NamedTuple):
    """The attempt in flight received SETTINGS."""


@record
class ConnectFailed(NamedTuple):
    """The attempt in flight failed; `busy` says whether a call is pending."""

    failure: Failure
    busy: bool = False


@record
class TimerFired(NamedTuple):
    """The machine's timer is due, or overdue.

    Attributes:
        busy: whether a call is pending.
        decided: whether the attempt in flight has an outcome that has not arrived yet.
    """

    busy: bool = False
    decided: bool = False


@record
class ConnectionLost(NamedTuple):
    """The established connection ended.

    Attributes:
        reason: why it ended, in words.
        graceful: whether the peer sent GOAWAY(NO_ERROR) and lets its calls continue.
        served: whether the server has answered a call on it.
        used: when an RPC last used it; minus infinity if none did.
        busy: whether a call is pending that arrived between the end of the connection and this input.
        replaced: whether another slot takes the place of this one, so that nothing is dialled here any more (PO-3).
        idled: whether the core closed it because no call had used it for the idle timeout (CB-14).
    """

    reason: str
    graceful: bool = False
    served: bool = False
    used: float = _NEVER
    busy: bool = False
    replaced: bool = False
    idled: bool = False


@record
class AnswerReceived(NamedTuple):
    """The server has answered a call, on the established connection or on an earlier one of this manager (CB-7)."""


@record
class CoreRedialled(NamedTuple):
    """grpc's core redialled by itself, because a connection ended just as a call was assigned to it.

    `late` says that it did so because this process ends the attempt in flight too late.
    """

    late: bool = False


@record
class ResetRequested(NamedTuple):
    """`reset_connect_backoff()` was called."""


@record
class NewsArrived(NamedTuple):
    """The target may be back: the process woke, the network or the addresses changed, or the program says so (LV-4)."""


@record
class CloseRequested(NamedTuple):
    """The channel is being closed."""


@record
class ScheduleChanged(NamedTuple):
    """Another manager has changed the key's schedule; `busy` says whether a call is pending."""

    busy: bool = False


Input = (
    ConnectionWanted
    | SettingsReceived
    | ConnectFailed
    | TimerFired
    | ConnectionLost
    | AnswerReceived
    | CoreRedialled
    | ResetRequested
    | NewsArrived
    | CloseRequested
    | ScheduleChanged
)


@record
class StartAttempt(NamedTuple):
    """Dial now.

    Attributes:
        number: the attempt's number in its series.
        limit: how many seconds the attempt may take; the machine's own timer ends it then.
        last_life: how many seconds the last connection lasted; infinity if there was none, and None if an answer or
            credit pays for this attempt (CB-15).
        familiar: whether this side has just closed a connection on which the peer had answered (CB-15).
    """

    number: int
    limit: float
    last_life: float | None = math.inf
    familiar: bool = False


@record
class ReleaseCalls(NamedTuple):
    """There is a connection: start the pending calls."""


@record
class FailCalls(NamedTuple):
    """There is no connection: fail the pending calls that do not survive a failure (CH-3)."""


@record
class TellOthers(NamedTuple):
    """Notify the key's other managers that the schedule has changed, and their listeners of `event`, if given."""

    event: Happened | None = None


Effect = StartAttempt | AbandonAttempt | ArmTimer | CancelTimer | ReleaseCalls | FailCalls | Emit[Happened] | TellOthers
Step = tuple[MachineState, list[Effect]]
_Kind = Literal["AttemptStarted", "AttemptFailed", "Connected", "Disconnected", "CoreRedial", "BackoffReset", "Closed"]
"""The name of an event's class in `events.py`."""


class Machine:
    """The rules for one target under one policy. The machine holds no state: `step` is a pure function."""

    __slots__ = ("channel", "policy", "serial", "target")

    def __init__(self, target: str, policy: ConnectPolicy, channel: ChannelKey | None = None) -> None:
        """Take what the events say of the channel; without a key, they have one of their own."""
        self.target = target
        self.policy = policy
        self.channel = ChannelKey() if channel is None else channel
        self.serial = next(_serials)

    def step(self, state: MachineState, input_: Input, now: float, rng: Random) -> Step:
        """Return the state after `input_`, and the effects that the shell must execute, in this order.

        Raises:
            IllegalTransition: the table has no entry for this phase and input.
        """
        handler = _TABLE.get((state.phase, type(input_)))
        if handler is None:
            raise IllegalTransition(f"{type(input_).__name__} in phase {state.phase.name}")
        return handler(self, state, input_, now, rng)

    def _happened(self, kind: _Kind, state: MachineState, now: float, **fields: object) -> Happened:
        """Return what has happened, with the fields that all events have; these may be given, too."""
        about = {"attempt": state.attempt, "attempt_id": state.attempt_id}
        return Happened(kind, {"target": self.target, "channel": self.channel, "at": now, **about, **fields})

    # Starting and waiting.

    def _wanted(self, state: MachineState, _input: ConnectionWanted, now: float, rng: Random) -> Step:
        key = state.key
        nobody_dials = key.turn is None or now >= key.lease
        unused = nobody_dials and now - key.asked >= self.policy.idle_timeout
        if key.failing and (unused or key.ready):
            state = state._replace(key=key.forgotten())  # CB-14, SH-3: a new series
        return self._go_on(_asked(state, now, phase=Phase.HOLDING), now, rng)

    def _noted(self, state: MachineState, _input: ConnectionWanted, now: float, _rng: Random) -> Step:
        return _asked(state, now), []

    def _go_on(self, state: MachineState, now: float, rng: Random) -> Step:
        """Dial if the key's schedule allows it, or else sleep. A backoff applies to every manager of the key (SH-3).

        In HOLDING, this begins a series, now (CB-1) or as soon as the schedule allows it (CB-7, SH-5).
        """
        key, holding = state.key, state.phase is Phase.HOLDING
        if now >= key.opens(state.member):
            return self._start(state, now, rng, Phase.CONNECTING if holding else Phase.RETRYING)
        if not key.failing:
            return self._sleep(state, state.phase, now)
        news: list[Effect] = [FailCalls()] if holding or key.failure is not state.failure else []
        if key.failure is not state.failure or key.attempt != state.attempt:
            state = state._replace(failure=key.failure, attempt=key.attempt)
        state, effects = self._sleep(state, Phase.BACKOFF, now)
        return state, news + effects

    def _start(self, state: MachineState, now: float, rng: Random, phase: Phase) -> Step:
        key = state.key
        if key.failing and now < key.deadline:  # LV-4: news caused this attempt, and the gap goes on as planned
            number, planned = key.attempt, key.deadline
            limit = now + self.policy.limit(planned - now)
        else:
            number = key.attempt + 1
            previous = key.deadline - key.started if key.attempt else None
            gap = self.policy.gap(number, rng, previous)  # CB-2, CB-5
            planned, limit = now + gap, now + self.policy.limit(gap)  # CB-3
        lease = limit + 2 * _OUTCOME_WITHIN
        if key.shared:
            lease = min(lease, planned + STALLED_AFTER)
        state = state._replace(
            phase=phase,
            attempt=number,
            attempt_id=f"{self.serial}.{state.starts + 1}",
            starts=state.starts + 1,
            started=now,
            planned=planned,
            limit=limit,
            paid=state.last_life is None,
            key=key.begun(state.member, number, now, planned, lease),
        )
        event = self._happened("AttemptStarted", state, now, limit=limit - now)
        # SH-3: once the next start is due, the others wait only for this attempt, and need signs of life from its
        # manager.
        wake = min(limit, planned) if key.shared and key.failing else limit
        notices = _tell_others(state, event) if key.failing else []
        start = StartAttempt(number, limit - now, state.last_life, now < key.familiar)
        return state, [start, Emit(event), ArmTimer(wake), *notices]

    def _sleep(self, state: MachineState, phase: Phase, now: float) -> Step:
        """Sleep until the next start, or until the channel becomes idle if that comes first (CB-14)."""
        at = min(max(now, state.key.opens(state.member)), state.asked + self.policy.idle_timeout)
        return state if state.phase is phase else state._replace(phase=phase), [ArmTimer(at)]

    def _woken(self, state: MachineState, input_: TimerFired, now: float, rng: Random) -> Step:
        """Continue after a sleep. Even a very late wake-up leads to only one attempt (CB-12)."""
        state = self._attended(state, now, busy=input_.busy)
        if self._is_idle(state, now):
            return self._rest(state, now), []
        return self._go_on(state, now, rng)

    # The end of an attempt.

    def _succeeded(self, state: MachineState, _input: SettingsReceived, now: float, _rng: Random) -> Step:
        """Become READY: only the SETTINGS frame counts as success, and nothing that comes before it (CB-6)."""
        before = state.key
        state = state._replace(
            phase=Phase.READY,
            ready_since=now,
            failure=None,
            connections=state.connections + 1,
            key=before.succeeded(state.member, state.started, now, self.policy.initial_backoff),
        )
        took, connections = now - state.started, state.connections
        connected = self._happened("Connected", state, now, took=took, connections=connections)
        notices = [] if before.health is Health.WELL else _tell_others(state, connected)  # SH-4
        return state, [CancelTimer(), Emit(connected), ReleaseCalls(), *notices]

    def _failed(self, state: MachineState, input_: ConnectFailed, now: float, rng: Random) -> Step:
        return self._after_failure(state, input_.failure, now, rng, busy=input_.busy)

    def _limit_reached(self, state: MachineState, input_: TimerFired, now: float, rng: Random) -> Step:
        if now < state.limit:
            return self._show_life(state, now, min(state.limit, now + BEAT))
        if input_.decided:
            return self._show_life(state, now, now + _OUTCOME_WITHIN)  # CB-3: only the loop was late
        failure = Failure(Stage.SETTINGS, NO_SETTINGS)
        state, effects = self._after_failure(state, failure, now, rng, busy=input_.busy)
        return state, [AbandonAttempt(), *effects]

    def _show_life(self, state: MachineState, now: float, wake: float) -> Step:
        """Continue the attempt and signal to the managers that wait for it that it has not stalled (SH-3)."""
        if not (state.dials_in_turn and state.key.shared):
            return state, [ArmTimer(state.limit if now < state.limit else wake)]
        before, lease = state.key.lease, max(now, state.planned) + STALLED_AFTER
        state = state._replace(key=state.key.alive(state.member, lease))
        # If the manager was alone when the attempt began, the lease lasts until the attempt's limit, and a manager that
        # has joined since then would sleep that long.
        notices = _tell_others(state) if lease < before else []
        return state, [ArmTimer(wake), *notices]

    def _after_failure(self, state: MachineState, failure: Failure, now: float, rng: Random, *, busy: bool) -> Step:
        """Sleep until `current_deadline`, or not at all if it has passed, and start the next attempt (CB-4)."""
        before = state.key
        state = self._attended(self._count_failure(state, failure), now, busy=busy)
        state = self._heed(state, now, rng)
        failed = self._failure_event(state, failure, now)
        effects: list[Effect] = [Emit(failed), FailCalls()]
        state, more = self._back_off(state, now, rng)
        notices = _tell_others(state, failed) if not before.failing or before.turn == state.member else []
        return state, [*effects, *notices, *more]

    def _count_failure(self, state: MachineState, failure: Failure) -> MachineState:
        key = state.key.failed(
            state.member, failure, state.attempt, state.started, state.planned, self.policy.initial_backoff
        )
        return state._replace(failure=failure, key=key)

    def _failure_event(self, state: MachineState, failure: Failure, now: float) -> Happened:
        retry_in = max(0.0, state.key.next_start - now)
        return self._happened("AttemptFailed", state, now, failure=failure, took=now - state.started, retry_in=retry_in)

    def _back_off(self, state: MachineState, now: float, rng: Random) -> Step:
        if self._is_idle(state, now):
            return self._rest(state, now), [CancelTimer()]
        return self._go_on(state._replace(phase=Phase.BACKOFF), now, rng)

    # Changes made by other managers of the key (SH-3).

    def _told_asleep(self, state: MachineState, input_: ScheduleChanged, now: float, rng: Random) -> Step:
        state = self._heed(self._attended(state, now, busy=input_.busy), now, rng)
        if self._is_idle(state, now):
            return self._rest(state, now), [CancelTimer()]
        return self._go_on(state, now, rng)

    def _told_in_flight(self, state: MachineState, _input: ScheduleChanged, now: float, rng: Random) -> Step:
        """Abandon the attempt if the key is in backoff and it is not this manager's turn."""
        key = state.key
        if not key.failing:
            return state, []
        if key.turn == state.member:  # the backoff was reset, or another manager now waits for this attempt
            state = state._replace(attempt=key.attempt, planned=key.deadline)
            return self._show_life(state, now, min(state.limit, max(state.planned, now + BEAT)))
        assert key.failure is not None, "a key in backoff has a failure"
        state = self._count_failure(state, key.failure)._replace(failure=key.failure)
        given_up = self._failure_event(state, key.failure, now)
        state, effects = self._go_on(state._replace(phase=Phase.BACKOFF), now, rng)
        return state, [AbandonAttempt(), Emit(given_up), FailCalls(), *effects]

    # The end of a connection.

    def _lost(self, state: MachineState, input_: ConnectionLost, now: float, rng: Random) -> Step:
        assert state.ready_since is not None, "READY has a start time"
        lived = now - state.ready_since
        # CB-8: this is opt-in. By default every SETTINGS frame resets the backoff, as the protocol requires.
        counts = lived < self.policy.stable_after and not input_.served and not input_.graceful
        failure = Failure(Stage.ESTABLISHED, f"the connection was lost: {input_.reason}")
        attempt, attempt_id = state.attempt, state.attempt_id
        state = state._replace(ready_since=None, failure=failure, asked=max(state.asked, input_.used), last_life=lived)
        if counts:
            state = self._attended(self._count_failure(state, failure), now, busy=input_.busy)
            notices = _tell_others(state)
            if input_.replaced:
                state, effects = state._replace(phase=Phase.IDLE, attempt=0), notices
            else:
                state, effects = self._back_off(state, now, rng)
                effects = [FailCalls(), *notices, *effects]
        else:
            ending = {"served": input_.served, "graceful": input_.graceful}
            if state.key.pays(**ending):
                state = state._replace(last_life=None)
            key = state.key.lost(state.member, self._guarded(state), now, **ending)
            state = self._attended(state._replace(key=key), now, busy=input_.busy)
            state, effects = self._let_go(state, now, rng, input_)
        lost = self._happened(
            "Disconnected",
            state,
            now,
            attempt=attempt,
            attempt_id=attempt_id,
            failure=failure,
            lived=lived,
            counted_as_failure=counts,
            retry_in=self._retry_in(state, now),
        )
        return state, [Emit(lost), *effects]

    def _let_go(self, state: MachineState, now: float, rng: Random, input_: ConnectionLost) -> Step:
        """Become IDLE until the next call; if the channel is eager or a call is pending, dial right away (CB-7)."""
        state = state._replace(phase=Phase.IDLE, attempt=0)
        wanted = input_.busy or (self.policy.reconnect is Reconnect.EAGER and not input_.idled)
        if wanted and not input_.replaced and not self._is_idle(state, now):
            return self._go_on(state._replace(phase=Phase.HOLDING), now, rng)
        return state, []

    def _answered(self, state: MachineState, _input: AnswerReceived, now: float, rng: Random) -> Step:
        """Let the answer pay for the next attempt (CB-7), even if the connection that it came on has ended."""
        key = state.key.earned()
        if key is state.key and state.last_life is None:
            return state, []
        lifted = key.next_start < state.key.next_start
        state = state._replace(key=key, last_life=None)
        if not lifted:
            return state, []
        notices = _tell_others(state)
        if state.phase is not Phase.HOLDING:
            return state, notices
        state, effects = self._go_on(state, now, rng)
        return state, [*effects, *notices]

    def _redialled(self, state: MachineState, input_: CoreRedialled, now: float, _rng: Random) -> Step:
        """Report a redial by the core. If the next start must wait, it waits one INITIAL_BACKOFF longer (CB-16)."""
        redial = Emit(self.redial(state, now))
        initial, key = self.policy.initial_backoff, state.key
        if input_.late and state.in_flight:
            until = max(state.planned, now + initial)
            return state._replace(planned=until, key=key.postponed(until)), [redial]
        if state.in_flight or key.redialled or now >= state.deadline:
            return state, [redial]
        if state.phase is Phase.READY:
            return state._replace(planned=state.planned + initial, key=key._replace(redialled=True)), [redial]
        state = state._replace(key=key.postponed(key.deadline + initial))
        if state.next_start is None:
            return state, [redial]
        state, effects = self._sleep(state, state.phase, now)
        return state, [redial, *effects]

    def redial(self, state: MachineState, now: float) -> Happened:
        """Return the event of a redial by the core."""
        return self._happened("CoreRedial", state, now, attempt=max(1, state.attempt))

    def _retry_in(self, state: MachineState, now: float) -> float | None:
        if state.in_flight:
            return 0.0
        return None if state.next_start is None else max(0.0, state.next_start - now)

    def _guarded(self, state: MachineState) -> float:
        """Return the earliest start of a new series: one INITIAL_BACKOFF after the last start (CB-7).

        The connection has reset the backoff, so the deadline of an earlier, longer backoff no longer applies.
        """
        if state.attempt > 1:
            return min(state.planned, state.started + self.policy.initial_backoff)
        return state.planned

    # Reset and close.

    def _reset(self, state: MachineState, _input: ResetRequested, now: float, rng: Random) -> Step:
        """Reset the backoff (CB-9).

        A sleeping manager dials now, or INITIAL_BACKOFF after the last dial that a reset caused (SH-6).
        """
        key, before = state.key, state.attempt
        if key.reset:
            return state, []
        if key.failing and key.turn is not None:  # the attempt in flight continues, as the first of a new series
            state = state._replace(key=key.reset_in_flight(self.policy.gap(1, rng)))
            if state.dials_in_turn:
                state = state._replace(attempt=1, planned=state.key.deadline)
        elif state.in_flight:
            planned = state.started + self.policy.gap(1, rng)
            state = state._replace(attempt=1, planned=planned, key=key._replace(reset=True))
        else:
            state = state._replace(attempt=0, key=key.reset_asleep(self.policy.initial_backoff))
        if state.phase is Phase.READY:  # also clears the backoff from which stable_after would continue
            state = state._replace(planned=self._guarded(state._replace(attempt=before)), attempt=1)
        retry_in = None if state.in_flight else self._retry_in(state, now)
        event = self._happened("BackoffReset", state, now, retry_in=retry_in)
        effects: list[Effect] = [Emit(event), *_tell_others(state, event)]
        if state.next_start is not None:
            state, more = self._go_on(state, now, rng)
            effects += more
        return state, effects

    def _hear(self, state: MachineState, _input: NewsArrived, now: float, rng: Random) -> Step:
        """Start one attempt soon; if it fails, the backoff goes on from where it stood (LV-4)."""
        key = state.key.told(now + self.policy.initial_backoff * rng.random())
        if key is state.key:
            return state, []
        state, effects = self._sleep(state._replace(key=key), Phase.BACKOFF, now)
        return state, [*effects, *_tell_others(state)]

    def _heed(self, state: MachineState, now: float, rng: Random) -> MachineState:
        """Take in the news that came during an attempt which has ended."""
        if not state.key.later:
            return state
        return state._replace(key=state.key.told(now + self.policy.initial_backoff * rng.random()))

    def _hear_in_flight(self, state: MachineState, _input: NewsArrived, _now: float, _rng: Random) -> Step:
        """Keep news until the attempt has failed, which may have begun before what the news is about (LV-4)."""
        return state._replace(key=state.key.told_in_flight()), []

    def _close(self, state: MachineState, _input: CloseRequested, now: float, _rng: Random) -> Step:
        effects: list[Effect] = [CancelTimer()]
        key = state.key
        if state.in_flight:
            effects.append(AbandonAttempt())
            state = state._replace(key=key.given_up(state.member))
        elif state.phase is Phase.READY and state.last_life is None and not key.failing:
            state = state._replace(key=key._replace(familiar=now + self.policy.initial_backoff))
        lived = None if state.ready_since is None else now - state.ready_since
        closed = self._happened("Closed", state, now, lived=lived)
        notices = _tell_others(state) if state.in_flight and state.key is not key else []
        return state._replace(phase=Phase.CLOSED, ready_since=None), [*effects, Emit(closed), *notices]

    def _ignored(self, state: MachineState, _input: Input, _now: float, _rng: Random) -> Step:
        return state, []

    # Idleness (CB-14).

    def _attended(self, state: MachineState, now: float, *, busy: bool) -> MachineState:
        """Renew the time of the last request if a call is pending."""
        return _asked(state, now) if busy else state

    def _is_idle(self, state: MachineState, now: float) -> bool:
        return now - state.asked >= self.policy.idle_timeout

    def _rest(self, state: MachineState, now: float) -> MachineState:
        """Stop dialling. The backoff ends too, unless another manager of the key was recently asked to connect."""
        key = state.key
        if now - key.asked >= self.policy.idle_timeout:
            key = key.forgotten()
        return state._replace(phase=Phase.IDLE, attempt=0, key=key)


def _asked(state: MachineState, now: float, **changes: Any) -> MachineState:
    return state._replace(asked=now, key=state.key._replace(asked=max(now, state.key.asked)), **changes)


def _tell_others(state: MachineState, event: Happened | None = None) -> list[Effect]:
    return [TellOthers(event)] if state.key.shared else []


_Handler = Callable[[Machine, MachineState, Any, float, Random], Step]

_TABLE: Mapping[tuple[Phase, type[Input]], _Handler] = {
    (Phase.IDLE, ConnectionWanted): Machine._wanted,
    (Phase.IDLE, AnswerReceived): Machine._answered,
    (Phase.IDLE, CoreRedialled): Machine._redialled,
    (Phase.IDLE, ScheduleChanged): Machine._ignored,
    (Phase.IDLE, ResetRequested): Machine._reset,
    (Phase.IDLE, NewsArrived): Machine._ignored,
    (Phase.IDLE, CloseRequested): Machine._close,
    (Phase.HOLDING, ConnectionWanted): Machine._noted,
    (Phase.HOLDING, TimerFired): Machine._woken,
    (Phase.HOLDING, AnswerReceived): Machine._answered,
    (Phase.HOLDING, CoreRedialled): Machine._redialled,
    (Phase.HOLDING, ScheduleChanged): Machine._told_asleep,
    (Phase.HOLDING, ResetRequested): Machine._reset,
    (Phase.HOLDING, NewsArrived): Machine._ignored,
    (Phase.HOLDING, CloseRequested): Machine._close,
    (Phase.CONNECTING, ConnectionWanted): Machine._noted,
    (Phase.CONNECTING, SettingsReceived): Machine._succeeded,
    (Phase.CONNECTING, ConnectFailed): Machine._failed,
    (Phase.CONNECTING, TimerFired): Machine._limit_reached,
    (Phase.CONNECTING, AnswerReceived): Machine._answered,
    (Phase.CONNECTING, CoreRedialled): Machine._redialled,
    (Phase.CONNECTING, ScheduleChanged): Machine._told_in_flight,
    (Phase.CONNECTING, ResetRequested): Machine._reset,
    (Phase.CONNECTING, NewsArrived): Machine._hear_in_flight,
    (Phase.CONNECTING, CloseRequested): Machine._close,
    (Phase.READY, ConnectionWanted): Machine._noted,
    (Phase.READY, ConnectionLost): Machine._lost,
    (Phase.READY, AnswerReceived): Machine._answered,
    (Phase.READY, CoreRedialled): Machine._redialled,
    (Phase.READY, ScheduleChanged): Machine._ignored,
    (Phase.READY, ResetRequested): Machine._reset,
    (Phase.READY, NewsArrived): Machine._ignored,
    (Phase.READY, CloseRequested): Machine._close,
    (Phase.BACKOFF, ConnectionWanted): Machine._noted,
    (Phase.BACKOFF, TimerFired): Machine._woken,
    (Phase.BACKOFF, AnswerReceived): Machine._answered,
    (Phase.BACKOFF, CoreRedialled): Machine._redialled,
    (Phase.BACKOFF, ScheduleChanged): Machine._told_asleep,
    (Phase.BACKOFF, ResetRequested): Machine._reset,
    (Phase.BACKOFF, NewsArrived): Machine._hear,
    (Phase.BACKOFF, CloseRequested): Machine._close,
    (Phase.RETRYING, ConnectionWanted): Machine._noted,
    (Phase.RETRYING, SettingsReceived): Machine._succeeded,
    (Phase.RETRYING, ConnectFailed): Machine._failed,
    (Phase.RETRYING, TimerFired): Machine._limit_reached,
    (Phase.RETRYING, AnswerReceived): Machine._answered,
    (Phase.RETRYING, CoreRedialled): Machine._redialled,
    (Phase.RETRYING, ScheduleChanged): Machine._told_in_flight,
    (Phase.RETRYING, ResetRequested): Machine._reset,
    (Phase.RETRYING, NewsArrived): Machine._hear_in_flight,
    (Phase.RETRYING, CloseRequested): Machine._close,
    (Phase.CLOSED, AnswerReceived): Machine._ignored,
    (Phase.CLOSED, CoreRedialled): Machine._ignored,
    (Phase.CLOSED, ScheduleChanged): Machine._ignored,
    (Phase.CLOSED, ResetRequested): Machine._ignored,
    (Phase.CLOSED, NewsArrived): Machine._ignored,
    (Phase.CLOSED, CloseRequested): Machine._ignored,
}


def transitions() -> frozenset[tuple[Phase, type[Input]]]:
    """Return the pairs of phase and input in the table, for tests and diagrams."""
    return frozenset(_TABLE)
