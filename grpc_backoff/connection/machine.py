"""gRPC's ConnectWithBackoff as a pure state machine: (state, input, now, random numbers) -> (state, effects).

What lives here is the whole decision about when to dial. What must not: a clock, a timer, a random generator, a
socket, grpc. The machine asks for things by returning effects, and a shell does them in their order: the asyncio shell
is `manager.py`. The table at the end of this module is the machine: a pair of phase and input that is not in it is an
`IllegalTransition`, never a guess.

How an attempt, its gap and its limit hang together (times are starts, the gaps are from start to start)::

    start of attempt 1          current_deadline            start of attempt 2
    |---- attempt, fails ----|  . . . sleeps . . .         |---- attempt ...
    |<------------- gap(1) = INITIAL ------------>|
    |<--- limit: max(current_deadline, start + MIN_CONNECT_TIMEOUT) --->|

An attempt that outlives its `current_deadline` is followed by the next without a pause.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from grpc_backoff.connection import events
from grpc_backoff.connection.events import ChannelKey, Failure, Stage, State
from grpc_backoff.effects import AbandonAttempt, ArmTimer, CancelTimer, Emit
from grpc_backoff.errors import IllegalTransition
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.record import record, value

__all__ = [
    "AbandonAttempt",
    "ArmTimer",
    "CancelTimer",
    "CloseRequested",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectionWanted",
    "CoreRedialled",
    "Effect",
    "Emit",
    "FailCalls",
    "Input",
    "Machine",
    "MachineState",
    "Phase",
    "ReleaseCalls",
    "ResetRequested",
    "SettingsReceived",
    "StartAttempt",
    "TimerFired",
    "transitions",
]

_NEVER = -math.inf

_OUTCOME_WITHIN = 0.25
"""How long after its limit an attempt is asked again for an outcome that is on its way."""


class Phase(enum.Enum):
    """Where the machine is. Several phases show as one channel state: `MachineState.state`."""

    __hash__ = object.__hash__  # in C: the table is asked for every step

    IDLE = enum.auto()
    """No connection, and none is wanted."""
    HOLDING = enum.auto()
    """A connection is wanted; the last one was lost so soon that the next start has to wait (CB-7)."""
    CONNECTING = enum.auto()
    """The first attempt of a series is in flight."""
    READY = enum.auto()
    """SETTINGS arrived and the connection stands."""
    BACKOFF = enum.auto()
    """An attempt failed; asleep until `current_deadline`."""
    RETRYING = enum.auto()
    """An attempt after a failed one is in flight. The channel still shows TRANSIENT_FAILURE (gRFC A62)."""
    CLOSED = enum.auto()
    """Final."""


_STATES = {
    Phase.IDLE: State.IDLE,
    Phase.HOLDING: State.CONNECTING,
    Phase.CONNECTING: State.CONNECTING,
    Phase.READY: State.READY,
    Phase.BACKOFF: State.TRANSIENT_FAILURE,
    Phase.RETRYING: State.TRANSIENT_FAILURE,
    Phase.CLOSED: State.SHUTDOWN,
}


@record
class MachineState(NamedTuple):
    """All that the machine remembers. Times are on the shell's monotonic clock.

    Attributes:
        phase: where it is.
        attempt: the number of the latest attempt in its series; 0 when the next start begins a new one.
        started: when the latest attempt started.
        deadline: the seed's `current_deadline`: no attempt starts before it.
        limit: when the attempt in flight is over at the latest.
        ready_since: when READY began; None when not READY.
        asked: when an RPC last asked for anything, as far as the machine was told.
        failure: why the last attempt failed or the last connection ended; None while READY.
        connections: how many connections were made.
        reset: whether the backoff was reset and no attempt has started, failed or succeeded since (CB-9).
        reset_dial: when an attempt last started because of a reset, unless one has succeeded since.
    """

    phase: Phase = Phase.IDLE
    attempt: int = 0
    started: float = _NEVER
    deadline: float = _NEVER
    limit: float = _NEVER
    ready_since: float | None = None
    asked: float = _NEVER
    failure: Failure | None = None
    connections: int = 0
    reset: bool = False
    reset_dial: float = _NEVER

    @property
    def state(self) -> State:
        """The channel state that this phase shows as."""
        return _STATES[self.phase]

    @property
    def in_flight(self) -> bool:
        """Whether an attempt is running."""
        return self.phase in (Phase.CONNECTING, Phase.RETRYING)

    @property
    def next_start(self) -> float | None:
        """When the next attempt is planned; None when none is."""
        return self.deadline if self.phase in (Phase.HOLDING, Phase.BACKOFF) else None


@record
class ConnectionWanted(NamedTuple):
    """An RPC, or somebody with `try_to_connect`, asks for a connection."""


@record
class SettingsReceived(NamedTuple):
    """The attempt in flight received SETTINGS."""


@record
class ConnectFailed(NamedTuple):
    """The attempt in flight failed; `busy` says whether a call waits."""

    failure: Failure
    busy: bool = False


@record
class TimerFired(NamedTuple):
    """The one timer is due, or late.

    Attributes:
        busy: whether a call waits.
        decided: whether the attempt in flight has an outcome that is on its way here.
    """

    busy: bool = False
    decided: bool = False


@record
class ConnectionLost(NamedTuple):
    """The established connection ended.

    Attributes:
        reason: how, in words.
        graceful: whether the peer said GOAWAY(NO_ERROR).
        served: whether an RPC was completed on it.
        used: when an RPC last used it; minus infinity if none did.
        busy: whether a call waits, which came between the end of the connection and the news of it.
    """

    reason: str
    graceful: bool = False
    served: bool = False
    used: float = _NEVER
    busy: bool = False


@record
class CoreRedialled(NamedTuple):
    """The library underneath dialled by itself, for a call that had entered a connection as it ended."""


@record
class ResetRequested(NamedTuple):
    """`reset_connect_backoff()` was called."""


@record
class CloseRequested(NamedTuple):
    """The channel is closed."""


Input = (
    ConnectionWanted
    | SettingsReceived
    | ConnectFailed
    | TimerFired
    | ConnectionLost
    | CoreRedialled
    | ResetRequested
    | CloseRequested
)


@record
class StartAttempt(NamedTuple):
    """Dial now; the attempt may last `limit` seconds. The machine's own timer ends it."""

    number: int
    limit: float


@record
class ReleaseCalls(NamedTuple):
    """The connection stands: let the waiting calls go."""


@record
class FailCalls(NamedTuple):
    """There is no connection: fail the waiting calls that do not outlast a failure (CH-3)."""


Effect = (
    StartAttempt | AbandonAttempt | ArmTimer | CancelTimer | ReleaseCalls | FailCalls | Emit[events.ConnectionEvent]
)
Step = tuple[MachineState, list[Effect]]


@value(frozen=True, slots=True)
class Machine:
    """The rules, for one target under one policy. It holds no state: `step` is a function."""

    target: str
    policy: ConnectPolicy
    channel: ChannelKey = field(default_factory=ChannelKey, repr=False, compare=False)

    def step(self, state: MachineState, given: Input, now: float, rng: Random) -> Step:
        """Return the state after `given`, and what the shell has to do, in this order.

        Raises:
            IllegalTransition: the table has no such pair of phase and input.
        """
        handler = _TABLE.get((state.phase, type(given)))
        if handler is None:
            raise IllegalTransition(f"{type(given).__name__} in phase {state.phase.name}")
        return handler(self, state, given, now, rng)

    # Starting and waiting.

    def _wanted(self, state: MachineState, _given: ConnectionWanted, now: float, rng: Random) -> Step:
        return self._dial(state._replace(asked=now), now, rng)

    def _noted(self, state: MachineState, _given: ConnectionWanted, now: float, _rng: Random) -> Step:
        return state._replace(asked=now), []

    def _dial(self, state: MachineState, now: float, rng: Random) -> Step:
        """Begin a series: at once (CB-1), or when the flood guard allows (CB-7)."""
        if now < state.deadline:
            return self._sleep(state, Phase.HOLDING)
        return self._start(state, now, rng, Phase.CONNECTING)

    def _start(self, state: MachineState, now: float, rng: Random, phase: Phase) -> Step:
        number = state.attempt + 1
        previous = state.deadline - state.started if state.attempt else None
        gap = self.policy.gap(number, rng, previous)  # CB-2, CB-5
        deadline, limit = now + gap, now + self.policy.limit(gap)  # CB-3
        reset_dial = now if state.reset else state.reset_dial
        state = state._replace(
            phase=phase,
            attempt=number,
            started=now,
            deadline=deadline,
            limit=limit,
            reset=False,
            reset_dial=reset_dial,
        )
        started = events.AttemptStarted(
            target=self.target, channel=self.channel, at=now, attempt=number, limit=limit - now
        )
        return state, [Emit(started), ArmTimer(limit), StartAttempt(number, limit - now)]

    def _sleep(self, state: MachineState, phase: Phase) -> Step:
        """Wait for `current_deadline`, or for the moment at which the channel is idle if that comes first (CB-14)."""
        at = min(state.deadline, state.asked + self.policy.idle_timeout)
        return state._replace(phase=phase), [ArmTimer(at)]

    def _woken(self, state: MachineState, given: TimerFired, now: float, rng: Random) -> Step:
        """Go on after a wait. However late the wake-up is, it leads to one attempt (CB-12)."""
        state = self._attended(state, now, busy=given.busy)
        if self._is_idle(state, now):
            return self._fresh(state._replace(phase=Phase.IDLE)), []
        if now < state.deadline:
            return self._sleep(state, state.phase)
        return self._start(state, now, rng, Phase.CONNECTING if state.phase is Phase.HOLDING else Phase.RETRYING)

    # The end of an attempt.

    def _succeeded(self, state: MachineState, _given: SettingsReceived, now: float, _rng: Random) -> Step:
        """Be READY: SETTINGS arrived, and nothing earlier is success (CB-6)."""
        state = state._replace(
            phase=Phase.READY,
            ready_since=now,
            failure=None,
            connections=state.connections + 1,
            reset=False,
            reset_dial=_NEVER,
        )
        connected = events.Connected(
            target=self.target,
            channel=self.channel,
            at=now,
            attempt=state.attempt,
            took=now - state.started,
            connections=state.connections,
        )
        return state, [CancelTimer(), Emit(connected), ReleaseCalls()]

    def _failed(self, state: MachineState, given: ConnectFailed, now: float, rng: Random) -> Step:
        return self._after_failure(state, given.failure, now, rng, busy=given.busy)

    def _limit_reached(self, state: MachineState, given: TimerFired, now: float, rng: Random) -> Step:
        if now < state.limit:
            return state, [ArmTimer(state.limit)]
        if given.decided:
            return state, [ArmTimer(now + _OUTCOME_WITHIN)]  # CB-3: it came in time, and the loop was late
        failure = Failure(Stage.SETTINGS, "no SETTINGS frame within the attempt's time limit")  # CH-4: the same text
        state, effects = self._after_failure(state, failure, now, rng, busy=given.busy)
        return state, [AbandonAttempt(), *effects]

    def _after_failure(self, state: MachineState, failure: Failure, now: float, rng: Random, *, busy: bool) -> Step:
        """CB-4: sleep until `current_deadline`, not at all if it has passed, then start the next attempt."""
        state = self._attended(state._replace(failure=failure, reset=False), now, busy=busy)
        failed = events.AttemptFailed(
            target=self.target,
            channel=self.channel,
            at=now,
            attempt=state.attempt,
            failure=failure,
            took=now - state.started,
            retry_in=max(0.0, state.deadline - now),
        )
        effects: list[Effect] = [Emit(failed), FailCalls()]
        state, more = self._back_off(state, now, rng)
        return state, effects + more

    def _back_off(self, state: MachineState, now: float, rng: Random) -> Step:
        if self._is_idle(state, now):
            return self._fresh(state._replace(phase=Phase.IDLE)), [CancelTimer()]
        if now < state.deadline:
            return self._sleep(state, Phase.BACKOFF)
        return self._start(state, now, rng, Phase.RETRYING)

    # The end of a connection.

    def _lost(self, state: MachineState, given: ConnectionLost, now: float, rng: Random) -> Step:
        assert state.ready_since is not None, "READY has a beginning"
        lived = now - state.ready_since
        # CB-8: opt-in; without it every SETTINGS frame resets the backoff, as the protocol says.
        counts = lived < self.policy.stable_after and not given.served and not given.graceful
        failure = Failure(Stage.ESTABLISHED, f"the connection was lost: {given.reason}")
        state = state._replace(ready_since=None, failure=failure, asked=max(state.asked, given.used), reset=False)
        state = self._attended(state, now, busy=given.busy)
        attempt = state.attempt
        if counts:
            state, effects = self._back_off(state, now, rng)
            effects = [FailCalls(), *effects]
        else:
            state, effects = self._let_go(state, now, rng, busy=given.busy)
        lost = events.Disconnected(
            target=self.target,
            channel=self.channel,
            at=now,
            attempt=attempt,
            failure=failure,
            lived=lived,
            counted_as_failure=counts,
            retry_in=self._retry_in(state, now),
        )
        return state, [Emit(lost), *effects]

    def _let_go(self, state: MachineState, now: float, rng: Random, *, busy: bool) -> Step:
        """Be without a connection; the next call dials, or an eager channel itself does (CB-7)."""
        state = self._fresh(state._replace(phase=Phase.IDLE))
        if (busy or self.policy.reconnect is Reconnect.EAGER) and not self._is_idle(state, now):
            return self._dial(state, now, rng)
        return state, []

    def _redialled(self, state: MachineState, _given: CoreRedialled, now: float, _rng: Random) -> Step:
        """CB-7: announce a dial that could not be prevented. Where the next one has to wait, it takes its place."""
        told = Emit(events.CoreRedial(target=self.target, channel=self.channel, at=now, attempt=max(1, state.attempt)))
        if state.in_flight or now >= state.deadline:
            return state, [told]
        state = state._replace(deadline=state.deadline + self.policy.initial_backoff)
        if state.next_start is None:
            return state, [told]
        state, effects = self._sleep(state, state.phase)
        return state, [told, *effects]

    def _retry_in(self, state: MachineState, now: float) -> float | None:
        if state.in_flight:
            return 0.0
        return None if state.next_start is None else max(0.0, state.next_start - now)

    def _fresh(self, state: MachineState) -> MachineState:
        """Let the next start begin a new series, one INITIAL_BACKOFF after the last start at the earliest (CB-7).

        The backoff is reset, so a deadline that an earlier, longer backoff had set does not outlive it.
        """
        deadline = state.deadline
        if state.attempt > 1:
            deadline = min(deadline, state.started + self.policy.initial_backoff)
        return state._replace(attempt=0, deadline=deadline)

    # Reset and close.

    def _reset_waiting(self, state: MachineState, _given: ResetRequested, now: float, rng: Random) -> Step:
        """CB-9: a sleeping channel dials at once, or when INITIAL_BACKOFF has passed since the last reset's dial."""
        if state.reset:
            return state, []
        state, effects = self._reset_idle(state, _given, now, rng)
        if now < state.deadline:
            state, more = self._sleep(state, state.phase)
        else:
            phase = Phase.CONNECTING if state.phase is Phase.HOLDING else Phase.RETRYING
            state, more = self._start(state, now, rng, phase)
        return state, [*effects, *more]

    def _reset_in_flight(self, state: MachineState, _given: ResetRequested, now: float, rng: Random) -> Step:
        """CB-9: the attempt in flight goes on, under its limit, as the first of a new series."""
        if state.reset:
            return state, []
        deadline = state.started + self.policy.gap(1, rng)
        return self._reset(state, now, attempt=1, deadline=deadline)

    def _reset_ready(self, state: MachineState, _given: ResetRequested, now: float, _rng: Random) -> Step:
        if state.reset:
            return state, []
        deadline = self._fresh(state).deadline  # also forgets what stable_after would have gone on from
        return self._reset(state, now, attempt=1, deadline=deadline)

    def _reset_idle(self, state: MachineState, _given: ResetRequested, now: float, _rng: Random) -> Step:
        """CB-9: the next start is as free as the last reset's dial lets it be."""
        if state.reset:
            return state, []
        deadline = min(state.deadline, state.reset_dial + self.policy.initial_backoff)
        return self._reset(state, now, attempt=0, deadline=deadline)

    def _reset(self, before: MachineState, now: float, *, attempt: int, deadline: float) -> Step:
        after = before._replace(attempt=attempt, deadline=deadline, reset=True)
        reset = events.BackoffReset(
            target=self.target,
            channel=self.channel,
            at=now,
            attempt=before.attempt,
            retry_in=None if after.in_flight else self._retry_in(after, now),
        )
        return after, [Emit(reset)]

    def _close(self, state: MachineState, _given: CloseRequested, now: float, _rng: Random) -> Step:
        effects: list[Effect] = [CancelTimer()]
        if state.in_flight:
            effects.append(AbandonAttempt())
        lived = None if state.ready_since is None else now - state.ready_since
        closed = events.Closed(target=self.target, channel=self.channel, at=now, attempt=state.attempt, lived=lived)
        return state._replace(phase=Phase.CLOSED, ready_since=None), [*effects, Emit(closed)]

    def _ignored(self, state: MachineState, _given: Input, _now: float, _rng: Random) -> Step:
        return state, []

    # Idleness (CB-14).

    def _attended(self, state: MachineState, now: float, *, busy: bool) -> MachineState:
        """Count a call that waits as asking all the while."""
        return state._replace(asked=now) if busy else state

    def _is_idle(self, state: MachineState, now: float) -> bool:
        return now - state.asked >= self.policy.idle_timeout


_Handler = Callable[[Machine, MachineState, Any, float, Random], Step]

_TABLE: Mapping[tuple[Phase, type[Input]], _Handler] = {
    (Phase.IDLE, ConnectionWanted): Machine._wanted,
    (Phase.IDLE, CoreRedialled): Machine._redialled,
    (Phase.IDLE, ResetRequested): Machine._reset_idle,
    (Phase.IDLE, CloseRequested): Machine._close,
    (Phase.HOLDING, ConnectionWanted): Machine._noted,
    (Phase.HOLDING, TimerFired): Machine._woken,
    (Phase.HOLDING, CoreRedialled): Machine._redialled,
    (Phase.HOLDING, ResetRequested): Machine._reset_waiting,
    (Phase.HOLDING, CloseRequested): Machine._close,
    (Phase.CONNECTING, ConnectionWanted): Machine._noted,
    (Phase.CONNECTING, SettingsReceived): Machine._succeeded,
    (Phase.CONNECTING, ConnectFailed): Machine._failed,
    (Phase.CONNECTING, TimerFired): Machine._limit_reached,
    (Phase.CONNECTING, CoreRedialled): Machine._redialled,
    (Phase.CONNECTING, ResetRequested): Machine._reset_in_flight,
    (Phase.CONNECTING, CloseRequested): Machine._close,
    (Phase.READY, ConnectionWanted): Machine._noted,
    (Phase.READY, ConnectionLost): Machine._lost,
    (Phase.READY, CoreRedialled): Machine._redialled,
    (Phase.READY, ResetRequested): Machine._reset_ready,
    (Phase.READY, CloseRequested): Machine._close,
    (Phase.BACKOFF, ConnectionWanted): Machine._noted,
    (Phase.BACKOFF, TimerFired): Machine._woken,
    (Phase.BACKOFF, CoreRedialled): Machine._redialled,
    (Phase.BACKOFF, ResetRequested): Machine._reset_waiting,
    (Phase.BACKOFF, CloseRequested): Machine._close,
    (Phase.RETRYING, ConnectionWanted): Machine._noted,
    (Phase.RETRYING, SettingsReceived): Machine._succeeded,
    (Phase.RETRYING, ConnectFailed): Machine._failed,
    (Phase.RETRYING, TimerFired): Machine._limit_reached,
    (Phase.RETRYING, CoreRedialled): Machine._redialled,
    (Phase.RETRYING, ResetRequested): Machine._reset_in_flight,
    (Phase.RETRYING, CloseRequested): Machine._close,
    (Phase.CLOSED, CoreRedialled): Machine._ignored,
    (Phase.CLOSED, ResetRequested): Machine._ignored,
    (Phase.CLOSED, CloseRequested): Machine._ignored,
}


def transitions() -> frozenset[tuple[Phase, type[Input]]]:
    """Return the pairs that the table has, for tests and for drawing."""
    return frozenset(_TABLE)
