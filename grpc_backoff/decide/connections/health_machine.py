r"""Watches the health that a server reports on one connection, as a pure state machine (RO-1, gRFC A17).

On each connection runs one call of `grpc.health.v1.Health/Watch`, whose answers say whether the server serves::

    WAITING --timer--> ASKING --answer--> ANSWERED --stream ended--> WAITING
                          '--UNIMPLEMENTED--> OVER: it serves
                          '--ended without an answer--> WAITING: it does not serve, and the next stream backs off

A connection whose health is not known serves. When a stream ends after an answer, the answer holds until the next one.
An open stream keeps grpcio's core from closing an idle connection, so this machine does that (CB-14).

The shell is `engine/health.py`. Times are in seconds on the channel's monotonic clock.
"""

from __future__ import annotations

import enum
import math

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.stepping import ArmTimer, CancelTimer
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy

PROOF_WITHIN = 5.0
"""How long a replacement waits for the first answer, in seconds, before it serves without one."""
AGAIN_AFTER = 0.1
"""The shortest pause between two streams, in seconds. If the connection has ended too, that is known by then."""

_ENDED = "its health service ended the call with {}"


class HealthPhase(enum.Enum):
    """How far the Watch has come."""

    WAITING = enum.auto()
    """The next stream is planned."""
    ASKING = enum.auto()
    """A stream is open and has not answered yet."""
    ANSWERED = enum.auto()
    """The open stream has answered."""
    OVER = enum.auto()
    """There is nothing to watch any more; this phase is final."""


class HealthState(NamedTuple):
    """The machine's complete state.

    Attributes:
        phase: the current phase.
        used: when a call last used the connection, as far as is known, or else when it was made.
        started: when the latest stream was begun.
        next_start: when the next one is to begin; infinity if none is planned.
        prove_by: when the health is taken to be good, if it is not known by then; infinity if it is not waited for.
        problem: why the server is not serving; empty if it is; None if that is not known.
        failures: how many streams in a row have ended without an answer.
    """

    phase: HealthPhase
    used: float
    started: float
    next_start: float = math.inf
    prove_by: float = math.inf
    problem: str | None = None
    failures: int = 0


class Answered(NamedTuple):
    """The stream has sent a message; `problem` is why it says that the server is not serving, empty if it is."""

    problem: str


class Ended(NamedTuple):
    """The stream has ended with a status; `alive` is whether the connection is still up."""

    code: str
    details: str = ""
    alive: bool = True


class HealthTimerFired(NamedTuple):
    """The timer is due. `used` is when a call last used the connection; `alive` is whether it is still up."""

    used: float
    alive: bool = True


class Unwatched(NamedTuple):
    """The connection takes no more new calls."""


HealthInput = Answered | Ended | HealthTimerFired | Unwatched


class BeginStream(NamedTuple):
    """Begin a stream."""


class EndStream(NamedTuple):
    """Cancel the stream, if one is open."""


class Tell(NamedTuple):
    """The health has changed: `problem` is why the server is not serving; empty if it is."""

    problem: str


class GoIdle(NamedTuple):
    """Close the connection, because no call has used it within the idle timeout (CB-14)."""


HealthEffect = BeginStream | EndStream | Tell | GoIdle | ArmTimer | CancelTimer
HealthStep = tuple[HealthState, list[HealthEffect]]


class HealthMachine(NamedTuple):
    """The rules for the Watch of one connection. The machine holds no state: its methods are pure functions."""

    policy: ConnectPolicy

    def begin(self, now: float, prove_within: float = math.inf) -> HealthState:
        """Return the first state; the shell then feeds `HealthTimerFired`.

        If the health is not known after `prove_within` seconds, it is taken to be good.
        """
        return HealthState(HealthPhase.WAITING, now, now, now, now + prove_within)

    def step(self, state: HealthState, input_: HealthInput, now: float, rng: Random) -> HealthStep:
        """Return the state after `input_`, and the effects that the shell must execute, in this order."""
        if state.phase is HealthPhase.OVER:
            return state, []
        match input_:
            case Answered(problem):
                answered = state._replace(phase=HealthPhase.ANSWERED, next_start=math.inf, failures=0)
                return self._told(answered, problem)
            case Ended():
                return self._ended(state, input_, now, rng)
            case HealthTimerFired():
                return self._timer_fired(state, input_, now)
            case Unwatched():
                return self._over(state, [EndStream()])

    def _ended(self, state: HealthState, input_: Ended, now: float, rng: Random) -> HealthStep:
        if not input_.alive:
            return self._gone(state)
        if input_.code == "UNIMPLEMENTED":
            return self._over(*self._told(state, ""))
        news: list[HealthEffect] = []
        if state.phase is HealthPhase.ANSWERED:
            soonest = state.started + self.policy.initial_backoff
        else:
            state = state._replace(failures=state.failures + 1)
            soonest = state.started + self.policy.gap(state.failures, rng)
            details = f": {input_.details}" if input_.details else ""
            state, news = self._told(state, _ENDED.format(input_.code) + details)
        state = state._replace(phase=HealthPhase.WAITING, next_start=max(now + AGAIN_AFTER, soonest))
        return state, [*news, *self._arm(state)]

    def _timer_fired(self, state: HealthState, input_: HealthTimerFired, now: float) -> HealthStep:
        if not input_.alive:  # the core would dial again for a stream
            return self._gone(state)
        state = state._replace(used=max(state.used, input_.used))
        if now >= self._idle_at(state):
            return self._over(state, [EndStream(), GoIdle()])
        effects: list[HealthEffect] = []
        if now >= state.next_start:
            state = state._replace(phase=HealthPhase.ASKING, started=now, next_start=math.inf)
            effects.append(BeginStream())
        if now >= state.prove_by:
            state, news = self._told(state, "")
            effects += news
        return state, [*effects, *self._arm(state)]

    def _gone(self, state: HealthState) -> HealthStep:
        """Stop, because the connection has ended; an attempt that waits for its health will find that out."""
        state, news = self._told(state, state.problem or "")
        return self._over(state, [*news, EndStream()])

    def _over(self, state: HealthState, effects: list[HealthEffect]) -> HealthStep:
        return state._replace(phase=HealthPhase.OVER, prove_by=math.inf), [*effects, CancelTimer()]

    def _told(self, state: HealthState, problem: str) -> HealthStep:
        effects: list[HealthEffect] = [] if problem == state.problem else [Tell(problem)]
        return state._replace(problem=problem, prove_by=math.inf), effects

    def _arm(self, state: HealthState) -> list[HealthEffect]:
        at = min(state.next_start, state.prove_by, self._idle_at(state))
        return [ArmTimer(at)] if at < math.inf else []

    def _idle_at(self, state: HealthState) -> float:
        """Return when the connection becomes idle; never while its health is waited for."""
        return math.inf if state.prove_by < math.inf else state.used + self.policy.idle_timeout
