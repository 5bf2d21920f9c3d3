"""gRPC's ConnectWithBackoff as a pure state machine, whose shell for both APIs is `engine/manager.py`.

All decisions about when to dial are made here. How an attempt, its gap and its limit are related (gaps run from start
to start)::

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
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import IDLED, Failure, Loss, Stage, State
from grpc_backoff.base.stepping import AbandonAttempt, ArmTimer, CancelTimer, Emit, Transitions, ignored
from grpc_backoff.decide.connections.dial_texts import NO_SETTINGS
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.decide.connections.shared_schedule import BEAT, STALLED_AFTER, Health, Schedule
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect

_NEVER = -math.inf
ASKED_JUST_NOW = 0.01
"""Two requests for a connection within this many seconds count as one; any idle timeout is at least a hundred times as
long."""

_OUTCOME_WITHIN = 0.25
"""How many seconds an attempt past its limit waits for an outcome that is on its way, before it is checked again."""


class ConnectionPhase(enum.Enum):
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
_IDLE = ConnectionPhase.IDLE
_IN_FLIGHT = (ConnectionPhase.CONNECTING, ConnectionPhase.RETRYING)


class ConnectionState(NamedTuple):
    """The machine's complete state. Times are in seconds on the shell's monotonic clock.

    Attributes:
        phase: the current phase.
        attempt: the number of the latest attempt in its series; 0 if the next start begins a new series.
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
        schedule: the one of the manager's key, as of the latest step.
        member: the manager's number in that schedule.
    """

    phase: ConnectionPhase = ConnectionPhase.IDLE
    attempt: int = 0
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
    schedule: Schedule = Schedule()
    member: int = 0

    @property
    def attempt_id(self) -> str:
        """Identifies the latest attempt in events; empty before the first. No two managers have the same number."""
        return f"{self.member}.{self.starts}" if self.starts else ""

    def heeds_want(self, now: float) -> bool:
        """Return whether `ConnectionWanted` would change anything.

        Outside IDLE, that input only renews the time of the last request. If it would change nothing, the shell may
        skip it: of a thousand pending calls, only a few have to send it.
        """
        return self.phase is _IDLE or now - self.asked >= ASKED_JUST_NOW

    @property
    def in_flight(self) -> bool:
        """Whether an attempt is running."""
        return self.phase in _IN_FLIGHT

    @property
    def is_paid(self) -> bool:
        """Whether an answer, or credit, has paid for the latest connection, or for the next, and it has not failed."""
        failing = self.phase in (ConnectionPhase.BACKOFF, ConnectionPhase.RETRYING)
        return self.connections > 1 and not failing and (self.paid or self.last_life is None)

    @property
    def dials_in_turn(self) -> bool:
        """Whether the key is in backoff and its one attempt in flight is this manager's (SH-3)."""
        return self.in_flight and self.schedule.failing and self.schedule.turn == self.member

    @property
    def awaits_turn(self) -> bool:
        """Whether this manager is waiting for the attempt of another manager of its key."""
        return self.phase is ConnectionPhase.BACKOFF and self.schedule.failing and self.schedule.turn is not None

    @property
    def deadline(self) -> float:
        """The earliest time at which the next attempt may start, as currently planned."""
        return self.planned if self.in_flight or self.phase is ConnectionPhase.READY else self.schedule.next_start

    @property
    def next_start(self) -> float | None:
        """When the next attempt is due; None if none is planned."""
        return self.schedule.next_start if self.phase in (ConnectionPhase.HOLDING, ConnectionPhase.BACKOFF) else None


class ConnectionWanted(NamedTuple):
    """An RPC, or a caller with `try_to_connect`, asks for a connection."""


class SettingsReceived(NamedTuple):
    """The attempt in flight received SETTINGS."""


class ConnectFailed(NamedTuple):
    """The attempt in flight failed; `busy` says whether a call is pending."""

    failure: Failure
    busy: bool = False


class TimerFired(NamedTuple):
    """The machine's timer is due, or overdue.

    Attributes:
        busy: whether a call is pending.
        decided: whether the attempt in flight has an outcome that has not arrived yet.
    """

    busy: bool = False
    decided: bool = False


class ConnectionLost(NamedTuple):
    """The established connection ended.

    Attributes:
        loss: how it ended.
        used: when an RPC last used it; minus infinity if none did.
        busy: whether a call is pending that arrived between the end of the connection and this input.
        replaced: whether another slot takes the place of this one, so that nothing is dialled here any more (PO-3).
    """

    loss: Loss
    used: float = _NEVER
    busy: bool = False
    replaced: bool = False


class AnswerReceived(NamedTuple):
    """The server has answered a call, on the established connection or on an earlier one of this manager (CB-7)."""


class CoreRedialled(NamedTuple):
    """grpc's core redialled by itself, because a connection ended just as a call was assigned to it.

    `late` says that it did so because this process ends the attempt in flight too late.
    """

    late: bool = False


class ResetRequested(NamedTuple):
    """`reset_connect_backoff()` was called."""


class NewsArrived(NamedTuple):
    """The target may be back: the process woke, the network or the addresses changed, or the program says so (LV-4)."""


class CloseRequested(NamedTuple):
    """The channel is being closed."""


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


class StartAttempt(NamedTuple):
    """Dial now, for up to `limit` seconds; the machine's own timer ends the attempt then.

    The other fields are as in `CallbackConnector`.
    """

    limit: float
    last_life: float | None = math.inf
    familiar: bool = False


class ReleaseCalls(NamedTuple):
    """There is a connection: start the pending calls."""


class FailCalls(NamedTuple):
    """There is no connection: fail the pending calls that do not survive a failure (CH-3)."""


class TellOthers(NamedTuple):
    """Notify the key's other managers that the schedule has changed, and their listeners of `event`, if given."""

    event: Happened | None = None


Effect = StartAttempt | AbandonAttempt | ArmTimer | CancelTimer | ReleaseCalls | FailCalls | Emit[Happened] | TellOthers
Step = tuple[ConnectionState, list[Effect]]
_Kind = Literal["AttemptStarted", "AttemptFailed", "Connected", "Disconnected", "CoreRedial", "BackoffReset", "Closed"]
"""The name of an event's class in `events.py`."""


class ConnectionMachine(NamedTuple):
    """The rules for one target under one policy. The machine holds no state: `step` is a pure function."""

    target: str
    policy: ConnectPolicy
    channel: ChannelKey

    def step(self, state: ConnectionState, input_: Input, now: float, rng: Random) -> Step:
        """Return the state after `input_`, and the effects that the shell must execute, in this order."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now, rng)

    def _happened(self, kind: _Kind, state: ConnectionState, now: float, **fields: object) -> Happened:
        about = {"attempt": state.attempt, "attempt_id": state.attempt_id}
        return Happened(kind, {"target": self.target, "channel": self.channel, "at": now, **about, **fields})

    # Starting and waiting.

    def _wanted(self, state: ConnectionState, _input: ConnectionWanted, now: float, rng: Random) -> Step:
        schedule = state.schedule
        nobody_dials = schedule.turn is None or now >= schedule.lease
        unused = nobody_dials and now - schedule.asked >= self.policy.idle_timeout
        if schedule.failing and (unused or schedule.ready):
            state = state._replace(schedule=schedule.forgotten())  # CB-14, SH-3: a new series
        return self._go_on(_asked(state, now, phase=ConnectionPhase.HOLDING), now, rng)

    def _noted(self, state: ConnectionState, _input: ConnectionWanted, now: float, _rng: Random) -> Step:
        return _asked(state, now), []

    def _go_on(self, state: ConnectionState, now: float, rng: Random) -> Step:
        """Dial if the key's schedule allows it, or else sleep. A backoff applies to every manager of the key (SH-3).

        In HOLDING, this begins a series, now (CB-1) or as soon as the schedule allows it (CB-7, SH-5).
        """
        schedule, holding = state.schedule, state.phase is ConnectionPhase.HOLDING
        if now >= schedule.opens(state.member):
            return self._start(state, now, rng)
        if not schedule.failing:
            return self._sleep(state, state.phase, now)
        news: list[Effect] = [FailCalls()] if holding or schedule.failure is not state.failure else []
        if schedule.failure is not state.failure or schedule.attempt != state.attempt:
            state = state._replace(failure=schedule.failure, attempt=schedule.attempt)
        state, effects = self._sleep(state, ConnectionPhase.BACKOFF, now)
        return state, news + effects

    def _start(self, state: ConnectionState, now: float, rng: Random) -> Step:
        schedule = state.schedule
        failing, shared = schedule.failing, schedule.shared
        if failing and now < schedule.deadline:
            # LV-4: news caused this attempt, and the gap goes on as planned.
            number, planned = schedule.attempt, schedule.deadline
            limit = now + self.policy.limit(planned - now)
        else:
            number = schedule.attempt + 1
            previous = schedule.deadline - schedule.started if schedule.attempt else None
            gap = self.policy.gap(number, rng, previous)  # CB-2, CB-5
            planned, limit = now + gap, now + self.policy.limit(gap)  # CB-3
        lease = limit + 2 * _OUTCOME_WITHIN
        if shared:
            lease = min(lease, planned + STALLED_AFTER)
        state = state._replace(
            phase=ConnectionPhase.CONNECTING if state.phase is ConnectionPhase.HOLDING else ConnectionPhase.RETRYING,
            attempt=number,
            starts=state.starts + 1,
            started=now,
            planned=planned,
            limit=limit,
            paid=state.last_life is None,
            schedule=schedule.begun(state.member, number, now, planned, lease),
        )
        event = self._happened("AttemptStarted", state, now, limit=limit - now)
        # SH-3: once the next start is due, the others wait only for this attempt, and need signs of life from its
        # manager.
        wake = min(limit, planned) if shared and failing else limit
        notices = _tell_others(state, event) if failing else []
        start = StartAttempt(limit - now, state.last_life, now < schedule.familiar)
        return state, [start, Emit(event), ArmTimer(wake), *notices]

    def _sleep(self, state: ConnectionState, phase: ConnectionPhase, now: float) -> Step:
        """Sleep until the next start, or until the channel becomes idle if that comes first (CB-14)."""
        at = min(max(now, state.schedule.opens(state.member)), state.asked + self.policy.idle_timeout)
        return state if state.phase is phase else state._replace(phase=phase), [ArmTimer(at)]

    def _woken(self, state: ConnectionState, input_: TimerFired, now: float, rng: Random) -> Step:
        """Continue after a sleep. Even a very late wake-up leads to only one attempt (CB-12)."""
        return self._resume(self._attended(state, now, busy=input_.busy), now, rng)

    def _resume(self, state: ConnectionState, now: float, rng: Random) -> Step:
        """Dial, or sleep. If the channel is idle, stop dialling (CB-14).

        The backoff ends too then, unless another manager of the key was recently asked to connect.
        """
        if not self._is_idle(state, now):
            return self._go_on(state, now, rng)
        schedule = state.schedule
        if now - schedule.asked >= self.policy.idle_timeout:
            schedule = schedule.forgotten()
        return state._replace(phase=ConnectionPhase.IDLE, attempt=0, schedule=schedule), [CancelTimer()]

    # The end of an attempt.

    def _succeeded(self, state: ConnectionState, _input: SettingsReceived, now: float, _rng: Random) -> Step:
        """Become READY: only the SETTINGS frame counts as success, and nothing that comes before it (CB-6)."""
        before = state.schedule
        state = state._replace(
            phase=ConnectionPhase.READY,
            ready_since=now,
            failure=None,
            connections=state.connections + 1,
            schedule=before.succeeded(state.member, state.started, now, self.policy.initial_backoff),
        )
        took, connections = now - state.started, state.connections
        connected = self._happened("Connected", state, now, took=took, connections=connections)
        notices = [] if before.health is Health.WELL else _tell_others(state, connected)  # SH-4
        return state, [CancelTimer(), Emit(connected), ReleaseCalls(), *notices]

    def _limit_reached(self, state: ConnectionState, input_: TimerFired, now: float, rng: Random) -> Step:
        if now < state.limit:
            return self._show_life(state, now, min(state.limit, now + BEAT))
        if input_.decided:
            return self._show_life(state, now, now + _OUTCOME_WITHIN)  # CB-3: only the loop was late
        failed = ConnectFailed(Failure(Stage.SETTINGS, NO_SETTINGS), input_.busy)
        state, effects = self._failed(state, failed, now, rng)
        return state, [AbandonAttempt(), *effects]

    def _show_life(self, state: ConnectionState, now: float, wake: float) -> Step:
        """Continue the attempt and signal to the managers that wait for it that it has not stalled (SH-3)."""
        if not (state.dials_in_turn and state.schedule.shared):
            return state, [ArmTimer(state.limit if now < state.limit else wake)]
        before, lease = state.schedule.lease, max(now, state.planned) + STALLED_AFTER
        state = state._replace(schedule=state.schedule.alive(state.member, lease))
        # If the manager was alone when the attempt began, the lease lasts until the attempt's limit, and a manager that
        # has joined since then would sleep that long.
        notices = _tell_others(state) if lease < before else []
        return state, [ArmTimer(wake), *notices]

    def _failed(self, state: ConnectionState, input_: ConnectFailed, now: float, rng: Random) -> Step:
        """Sleep until `current_deadline`, or not at all if it has passed, and start the next attempt (CB-4)."""
        before = state.schedule
        state = self._attended(self._count_failure(state, input_.failure), now, busy=input_.busy)
        state = self._heed(state, now, rng)
        failed = self._failure_event(state, now)
        state, effects = self._resume(state._replace(phase=ConnectionPhase.BACKOFF), now, rng)
        notices = _tell_others(state, failed) if not before.failing or before.turn == state.member else []
        return state, [Emit(failed), FailCalls(), *notices, *effects]

    def _count_failure(self, state: ConnectionState, failure: Failure) -> ConnectionState:
        schedule = state.schedule.failed(
            state.member, failure, state.attempt, state.started, state.planned, self.policy.initial_backoff
        )
        return state._replace(failure=failure, schedule=schedule)

    def _failure_event(self, state: ConnectionState, now: float) -> Happened:
        took, retry_in = now - state.started, max(0.0, state.schedule.next_start - now)
        return self._happened("AttemptFailed", state, now, failure=state.failure, took=took, retry_in=retry_in)

    # Changes made by other managers of the key (SH-3).

    def _told_asleep(self, state: ConnectionState, input_: ScheduleChanged, now: float, rng: Random) -> Step:
        return self._resume(self._heed(self._attended(state, now, busy=input_.busy), now, rng), now, rng)

    def _told_in_flight(self, state: ConnectionState, _input: ScheduleChanged, now: float, rng: Random) -> Step:
        """Abandon the attempt if the key is in backoff and it is not this manager's turn."""
        schedule = state.schedule
        if not schedule.failing:
            return state, []
        if schedule.turn == state.member:  # the backoff was reset, or another manager now waits for this attempt
            state = state._replace(attempt=schedule.attempt, planned=schedule.deadline)
            return self._show_life(state, now, min(state.limit, max(state.planned, now + BEAT)))
        assert schedule.failure is not None, "a key in backoff has a failure"
        state = self._count_failure(state, schedule.failure)
        given_up = self._failure_event(state, now)
        state, effects = self._go_on(state._replace(phase=ConnectionPhase.BACKOFF), now, rng)
        return state, [AbandonAttempt(), Emit(given_up), FailCalls(), *effects]

    # The end of a connection.

    def _lost(self, state: ConnectionState, input_: ConnectionLost, now: float, rng: Random) -> Step:
        assert state.ready_since is not None, "READY has a start time"
        lived, loss = now - state.ready_since, input_.loss
        # CB-8: this is opt-in. By default every SETTINGS frame resets the backoff, as the protocol requires.
        counts = lived < self.policy.stable_after and not loss.served and not loss.graceful
        failure = Failure(Stage.ESTABLISHED, f"the connection was lost: {loss.reason}")
        lost = self._happened("Disconnected", state, now, failure=failure, lived=lived, counted_as_failure=counts)
        state = state._replace(ready_since=None, failure=failure, asked=max(state.asked, input_.used), last_life=lived)
        if counts:
            state = self._attended(self._count_failure(state, failure), now, busy=input_.busy)
            notices = _tell_others(state)
            if input_.replaced:
                state, effects = state._replace(phase=ConnectionPhase.IDLE, attempt=0), notices
            else:
                state, effects = self._resume(state._replace(phase=ConnectionPhase.BACKOFF), now, rng)
                effects = [FailCalls(), *notices, *effects]
        else:
            if state.schedule.pays(loss):
                state = state._replace(last_life=None)
            schedule = state.schedule.lost(state.member, self._guarded(state), now, loss)
            state = self._attended(state._replace(schedule=schedule), now, busy=input_.busy)
            state, effects = self._let_go(state, now, rng, input_)
        return state, [Emit(lost.changed(retry_in=self._retry_in(state, now))), *effects]

    def _let_go(self, state: ConnectionState, now: float, rng: Random, input_: ConnectionLost) -> Step:
        """Become IDLE until the next call; if the channel is eager or a call is pending, dial right away (CB-7)."""
        state = state._replace(phase=ConnectionPhase.IDLE, attempt=0)
        wanted = input_.busy or (self.policy.reconnect is Reconnect.EAGER and input_.loss.reason != IDLED)
        if wanted and not input_.replaced and not self._is_idle(state, now):
            return self._go_on(state._replace(phase=ConnectionPhase.HOLDING), now, rng)
        return state, []

    def _answered(self, state: ConnectionState, _input: AnswerReceived, now: float, rng: Random) -> Step:
        """Let the answer pay for the next attempt (CB-7), even if the connection that it came on has ended."""
        before, schedule = state.schedule, state.schedule.earned()
        if schedule is before:
            return state if state.last_life is None else state._replace(last_life=None), []
        state = state._replace(schedule=schedule, last_life=None)
        if schedule.next_start >= before.next_start:
            return state, []
        notices = _tell_others(state)
        if state.phase is not ConnectionPhase.HOLDING:
            return state, notices
        state, effects = self._go_on(state, now, rng)
        return state, [*effects, *notices]

    def _redialled(self, state: ConnectionState, input_: CoreRedialled, now: float, _rng: Random) -> Step:
        """Report a redial by the core. If the next start must wait, it waits one INITIAL_BACKOFF longer (CB-16)."""
        redial = Emit(self.redial(state, now))
        initial, schedule = self.policy.initial_backoff, state.schedule
        if input_.late and state.in_flight:
            until = max(state.planned, now + initial)
            return state._replace(planned=until, schedule=schedule.postponed(until)), [redial]
        if state.in_flight or schedule.redialled or now >= state.deadline:
            return state, [redial]
        if state.phase is ConnectionPhase.READY:
            return state._replace(planned=state.planned + initial, schedule=schedule._replace(redialled=True)), [redial]
        state = state._replace(schedule=schedule.postponed(schedule.deadline + initial))
        if state.next_start is None:
            return state, [redial]
        state, effects = self._sleep(state, state.phase, now)
        return state, [redial, *effects]

    def redial(self, state: ConnectionState, now: float) -> Happened:
        """Return the event of a redial by the core."""
        return self._happened("CoreRedial", state, now, attempt=max(1, state.attempt))

    def _retry_in(self, state: ConnectionState, now: float) -> float | None:
        if state.in_flight:
            return 0.0
        return None if state.next_start is None else max(0.0, state.next_start - now)

    def _guarded(self, state: ConnectionState) -> float:
        """Return the earliest start of a new series: one INITIAL_BACKOFF after the last start (CB-7).

        The connection has reset the backoff, so the deadline of an earlier, longer backoff no longer applies.
        """
        if state.attempt > 1:
            return min(state.planned, state.started + self.policy.initial_backoff)
        return state.planned

    # Reset and close.

    def _reset(self, state: ConnectionState, _input: ResetRequested, now: float, rng: Random) -> Step:
        """Reset the backoff (CB-9).

        A sleeping manager dials now, or INITIAL_BACKOFF after the last dial that a reset caused (SH-6).
        """
        schedule, before = state.schedule, state.attempt
        if schedule.reset:
            return state, []
        if schedule.failing and schedule.turn is not None:
            # The attempt in flight continues, as the first of a new series.
            state = state._replace(schedule=schedule.reset_in_flight(self.policy.gap(1, rng)))
            if state.dials_in_turn:
                state = state._replace(attempt=1, planned=state.schedule.deadline)
        elif state.in_flight:
            planned = state.started + self.policy.gap(1, rng)
            state = state._replace(attempt=1, planned=planned, schedule=schedule._replace(reset=True))
        else:
            state = state._replace(attempt=0, schedule=schedule.reset_asleep(self.policy.initial_backoff))
        if state.phase is ConnectionPhase.READY:  # also clears the backoff from which stable_after would continue
            state = state._replace(planned=self._guarded(state._replace(attempt=before)), attempt=1)
        retry_in = None if state.in_flight else self._retry_in(state, now)
        event = self._happened("BackoffReset", state, now, retry_in=retry_in)
        effects: list[Effect] = [Emit(event), *_tell_others(state, event)]
        if state.next_start is not None:
            state, more = self._go_on(state, now, rng)
            effects += more
        return state, effects

    def _hear(self, state: ConnectionState, _input: NewsArrived, now: float, rng: Random) -> Step:
        """Start one attempt soon; if it fails, the backoff goes on from where it stood (LV-4)."""
        schedule = state.schedule.told(now + self.policy.initial_backoff * rng.random())
        if schedule is state.schedule:
            return state, []
        state, effects = self._sleep(state._replace(schedule=schedule), ConnectionPhase.BACKOFF, now)
        return state, [*effects, *_tell_others(state)]

    def _heed(self, state: ConnectionState, now: float, rng: Random) -> ConnectionState:
        """Take in the news that came during an attempt which has ended."""
        if not state.schedule.later:
            return state
        return state._replace(schedule=state.schedule.told(now + self.policy.initial_backoff * rng.random()))

    def _hear_in_flight(self, state: ConnectionState, _input: NewsArrived, _now: float, _rng: Random) -> Step:
        """Keep news until the attempt has failed, which may have begun before what the news is about (LV-4)."""
        return state._replace(schedule=state.schedule.told_in_flight()), []

    def _close(self, state: ConnectionState, _input: CloseRequested, now: float, _rng: Random) -> Step:
        effects: list[Effect] = [CancelTimer()]
        schedule = state.schedule
        if state.in_flight:
            effects.append(AbandonAttempt())
            state = state._replace(schedule=schedule.given_up(state.member))
        elif state.phase is ConnectionPhase.READY and state.last_life is None and not schedule.failing:
            state = state._replace(schedule=schedule._replace(familiar=now + self.policy.initial_backoff))
        lived = None if state.ready_since is None else now - state.ready_since
        closed = self._happened("Closed", state, now, lived=lived)
        notices = _tell_others(state) if state.in_flight and state.schedule is not schedule else []
        return state._replace(phase=ConnectionPhase.CLOSED, ready_since=None), [*effects, Emit(closed), *notices]

    # Idleness (CB-14).

    def _attended(self, state: ConnectionState, now: float, *, busy: bool) -> ConnectionState:
        """Renew the time of the last request if a call is pending."""
        return _asked(state, now) if busy else state

    def _is_idle(self, state: ConnectionState, now: float) -> bool:
        return now - state.asked >= self.policy.idle_timeout


def _asked(state: ConnectionState, now: float, **changes: Any) -> ConnectionState:
    return state._replace(asked=now, schedule=state.schedule._replace(asked=max(now, state.schedule.asked)), **changes)


def _tell_others(state: ConnectionState, event: Happened | None = None) -> list[Effect]:
    return [TellOthers(event)] if state.schedule.shared else []


_Handler = Callable[[ConnectionMachine, ConnectionState, Any, float, Random], Step]

_OPEN: Mapping[type[Input], _Handler] = {
    AnswerReceived: ConnectionMachine._answered,
    CoreRedialled: ConnectionMachine._redialled,
    ResetRequested: ConnectionMachine._reset,
    CloseRequested: ConnectionMachine._close,
}
_ASLEEP: Mapping[type[Input], _Handler] = {
    **_OPEN,
    ConnectionWanted: ConnectionMachine._noted,
    TimerFired: ConnectionMachine._woken,
    ScheduleChanged: ConnectionMachine._told_asleep,
}
_DIALLING: Mapping[type[Input], _Handler] = {
    **_OPEN,
    ConnectionWanted: ConnectionMachine._noted,
    SettingsReceived: ConnectionMachine._succeeded,
    ConnectFailed: ConnectionMachine._failed,
    TimerFired: ConnectionMachine._limit_reached,
    ScheduleChanged: ConnectionMachine._told_in_flight,
    NewsArrived: ConnectionMachine._hear_in_flight,
}
TRANSITIONS: Transitions[_Handler] = Transitions.by_phase(
    {
        ConnectionPhase.IDLE: {
            **_OPEN,
            ConnectionWanted: ConnectionMachine._wanted,
            ScheduleChanged: ignored,
            NewsArrived: ignored,
        },
        ConnectionPhase.HOLDING: {**_ASLEEP, NewsArrived: ignored},
        ConnectionPhase.CONNECTING: _DIALLING,
        ConnectionPhase.READY: {
            **_OPEN,
            ConnectionWanted: ConnectionMachine._noted,
            ConnectionLost: ConnectionMachine._lost,
            ScheduleChanged: ignored,
            NewsArrived: ignored,
        },
        ConnectionPhase.BACKOFF: {**_ASLEEP, NewsArrived: ConnectionMachine._hear},
        ConnectionPhase.RETRYING: _DIALLING,
        ConnectionPhase.CLOSED: dict.fromkeys((*_OPEN, ScheduleChanged, NewsArrived), ignored),
    }
)
