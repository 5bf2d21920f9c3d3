r"""One dial on one channel of grpcio's core, and the connection that it makes, as a pure state machine.

The core does not say what happens to a connection. It has a state for the whole channel, which can be looked at, and
asyncio channels can ask to be notified when the core leaves a state. It dials on a schedule of its own, too, so each
channel of the core is used for one dial only (CB-1). This machine decides when to look, and what was seen::

    DIALLING --READY--> OBSERVING --still READY--> OPEN --left READY--> ENDING --how is known--> ENDED
        |                   |                        |                    |                        |
        |                   '--left READY: made and lost at once          '--------Retire----------'
        '--TRANSIENT_FAILURE--> FAILED --Explained--> CLOSED <--last call-- DRAINING

Three things make this harder than it looks:

* A connection that comes and goes between two looks leaves the core IDLE, as it was before the dial. So IDLE means
  "made and lost" if the core is known to have begun, and "not begun" otherwise.
* A call that is assigned to a connection just as the connection ends makes the core dial again by itself (CB-16).
  Three things limit this: a connection is observed before calls may use it (CB-15), a connection that has ended is
  retired at once, and after a connection whose calls got no answer, the next one is a trial, on which the core repeats
  no calls, so that it redials for none. Each dial that happens all the same is reported as `Redialled`, and calls that
  the peer seems to refuse end. After a failed dial, the core dials again when its own backoff is over, without a change
  of state.
* The core does not distinguish a GOAWAY from a broken connection. But calls survive only a GOAWAY, so the machine
  checks whether calls still run a moment later, unless an answer has paid for the next dial already (CB-7, CB-8).

A retired channel cannot be closed before its last call has ended, because closing it would cancel the call (CH-6).

Times are in seconds on the shell's monotonic clock. `Looked` carries what the shell saw; the effects say when to look
next. `NotifyOn` asks for a look as soon as the core has left a state: on an event loop, the core notifies; for threads,
the conductor looks from time to time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import IDLED, Failure, Link, Loss
from grpc_backoff.base.stepping import Transitions, ignored
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.decide.connections.dial_texts import failure_of

IDLE, CONNECTING, READY, TRANSIENT_FAILURE, SHUTDOWN = range(5)
"""The core's own numbers for the states of a channel."""

_BROKEN = "the peer closed it, or the network failed"
_GRACEFUL = "the server ended the connection gracefully (GOAWAY)"
_REFUSED = "the connection was lost: the peer refuses calls"
_TRIAL = "it was a trial, after calls without an answer, and the peer has answered"


class DialPhase(enum.Enum):
    """What is known about the dial."""

    __hash__ = object.__hash__  # implemented in C, because every step looks up the table

    DIALLING = enum.auto()
    """The core has been told to dial and has no outcome yet."""
    OBSERVING = enum.auto()
    """SETTINGS have arrived, but calls do not use the connection yet (CB-15)."""
    FAILED = enum.auto()
    """The dial has failed; the core is being asked why."""
    OPEN = enum.auto()
    """Calls may use the connection, which has not been seen to end."""
    ENDING = enum.auto()
    """The connection has ended; how is not known yet (CB-7)."""
    ENDED = enum.auto()
    """It is known how the connection has ended."""
    DRAINING = enum.auto()
    """No new call may use the channel; it is closed after the last one."""
    CLOSED = enum.auto()
    """The channel is closed; this phase is final."""


class DialState(NamedTuple):
    """The machine's complete state.

    Attributes:
        phase: the current phase.
        started: when the core was asked to dial.
        limit: how many seconds the dial may take.
        observe: for how long the connection is to be observed.
        paid: whether an answer or credit has paid for the dial (CB-7).
        guarded: whether the core repeats no calls by itself, so that each refusal shows (CB-16).
        begun: whether the core is known to have started the dial.
        since: when the connection was made, as far as it was seen; infinity before that.
        until: when the observation ends.
        ended: when the connection was seen to have ended; infinity before that.
        loss: how it has ended, as seen at that moment; set in ENDING.
        served: whether the server has answered a call, as far as has been reported.
        shown: the state that the core showed when it was last looked at, from READY on.
        redials: when the core dials again without a change of state, at the earliest, if it is in TRANSIENT_FAILURE.
        backoff: the core's own backoff before that, without jitter.
        calls: how many calls ran at once, at most, since the connection was retired or seen to end.
        redialled: how often the core was seen to redial for calls.
    """

    phase: DialPhase
    started: float
    limit: float
    observe: float = dial_times.SETTLE
    paid: bool = False
    guarded: bool = False
    begun: bool = False
    since: float = math.inf
    until: float = math.inf
    ended: float = math.inf
    loss: Loss | None = None
    served: bool = False
    shown: int = READY
    redials: float = math.inf
    backoff: float = 0.0
    calls: int = 0
    redialled: int = 0


class Looked(NamedTuple):
    """The shell has looked at the channel, at the planned time or because something has happened.

    Attributes:
        shown: the state that the core showed.
        running: how many calls are running.
        unused: for how many seconds no call has used the channel; infinity if none has.
        served: whether the server has answered a call.
        refused: whether a GOAWAY has ended a call.
        dropped: whether a call is known to have ended without an answer, and not by this side.
        left: whether the core is known to have left the state of the latest `NotifyOn`, even if it shows it again.
    """

    shown: int
    running: int = 0
    unused: float = math.inf
    served: bool = False
    refused: bool = False
    dropped: bool = False
    left: bool = False


class Explained(NamedTuple):
    """The core has reported why the dial failed, in the status of a call that it did not send."""

    code: str
    details: str


class Retire(NamedTuple):
    """No new call uses the channel from now on. A `Looked` has to follow."""


class Abandon(NamedTuple):
    """Close the channel now, with its calls; `spare` if it is up, its server has answered, and it has no calls."""

    spare: bool = False


Input = Looked | Explained | Retire | Abandon


class LookAt(NamedTuple):
    """Look at the channel at the time `at`; replaces the time of an earlier effect."""

    at: float


class NotifyOn(NamedTuple):
    """Look at the channel as soon as the core has left the state `shown`; replaces the state of an earlier effect."""

    shown: int


class Explain(NamedTuple):
    """Ask the core why the dial has failed."""


class Made(NamedTuple):
    """The dial has made a connection, which calls may use unless it has ended again already."""


class Failed(NamedTuple):
    """The dial has failed."""

    failure: Failure


class Lost(NamedTuple):
    """The connection has ended.

    If it was lost with its calls, and the peer had answered none, `guard` the next dial, which may begin now (CB-16).
    """

    loss: Loss
    guard: bool = False


class FirstAnswer(NamedTuple):
    """The server has answered a call for the first time, on a connection that may have been reported as lost (CB-7)."""


class Redialled(NamedTuple):
    """The core has dialled again by itself (CB-16); `late` if it did so because the dial was not ended in time."""

    late: bool = False


class EndCalls(NamedTuple):
    """End all calls with UNAVAILABLE, because the core would redial for them without end (CB-16)."""

    details: str


class Close(NamedTuple):
    """Close the channel; if it is `spare`, a moment later, unless another dial needs such a channel by then (SH-8)."""

    spare: bool = False


Effect = LookAt | NotifyOn | Explain | Made | Failed | Lost | FirstAnswer | Redialled | EndCalls | Close
Step = tuple[DialState, list[Effect]]


class DialMachine(NamedTuple):
    """The rules for the dials of one connector. The machine holds no state: `step` is a pure function.

    Attributes:
        idle_timeout: after how many seconds without calls the core closes a connection (CB-14).
        stable_after: for how many seconds a connection is on probation (CB-8).
        longest: the longest backoff of the core, in seconds.
        notifies: whether `NotifyOn` leads to a look at once. Otherwise, dials are looked at again and again.
    """

    idle_timeout: float = math.inf
    stable_after: float = 0.0
    longest: float = math.inf
    notifies: bool = False

    def begin(
        self,
        now: float,
        limit: float,
        *,
        last_life: float | None = math.inf,
        familiar: bool = False,
        after_failure: bool = False,
        guarded: bool = False,
        made: float | None = None,
    ) -> Step:
        """Return the first state and its effects, after the shell has asked the core to dial.

        Args:
            now: the time.
            limit: how many seconds the dial may take.
            last_life: how many seconds the connector's last connection lasted; infinity if there was none, and None if
                an answer or credit pays for this dial (CB-15).
            familiar: whether this side has just closed a connection on which the peer had answered. Then this one is
                not observed, and if it comes and goes before the first look, that is noticed late.
            after_failure: whether the connector's last dial failed. Then a connection that comes and goes before the
                first look is noticed late, to save a notification for each dial in backoff.
            guarded: whether the core's channel was made to repeat no calls by itself.
            made: if the channel was spare, when its connection was made.
        """
        paid = last_life is None
        observe = dial_times.SETTLE if self.notifies or paid else dial_times.SETTLE_UNNOTIFIED
        if last_life is not None and last_life < dial_times.SHORT_LIFE:
            observe, familiar = dial_times.SHORT_LIFE, False
        elif familiar:
            observe = 0.0
        watches = self.notifies and not (after_failure or familiar)
        state = self._dialled(DialState(DialPhase.DIALLING, now, limit, observe, paid, guarded), now)
        if made is not None:
            return state._replace(since=made), [LookAt(now)]
        look = LookAt(now + self._shortest_pause(state, now))
        return state, [NotifyOn(IDLE), look] if watches else [look]

    def step(self, state: DialState, input_: Input, now: float) -> Step:
        """Return the state after `input_`, and the effects that the shell must execute, in this order."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now)

    # The attempt.

    def _look_at_dial(self, state: DialState, input_: Looked, now: float) -> Step:
        if input_.shown == TRANSIENT_FAILURE:
            state, redialled = self._redials_by(state, now)
            return state._replace(phase=DialPhase.FAILED), [*redialled, Explain()]
        if input_.shown == READY:
            # Give the connection a moment to end, but not so long that a success would miss the limit (CB-15).
            until = now + min(state.observe, max(0.0, state.started + state.limit - now) / 2)
            state = state._replace(phase=DialPhase.OBSERVING, begun=True, since=min(state.since, now), until=until)
            if not state.observe:
                return self._look_at_observed(state, input_, now)
            return state, [*([NotifyOn(READY)] if self.notifies else []), self._until(state, now)]
        begun = state.begun or input_.left or input_.shown != IDLE or now - state.started >= dial_times.BEGINS_WITHIN
        state = state._replace(begun=begun, since=math.inf)
        if input_.shown == IDLE and begun:  # it connected and lost the connection again between two looks
            return self._made(state._replace(since=now))
        return state, self._look_again(state, input_.shown, now)

    def _look_again(self, state: DialState, shown: int, now: float) -> list[Effect]:
        age = now - state.started
        if not self.notifies:
            return [LookAt(_aligned(now, max(self._shortest_pause(state, now), age * dial_times.LOOK_SHARE)))]
        if shown == IDLE and age >= dial_times.FIRST_LOOK:
            return [NotifyOn(IDLE), LookAt(state.started + dial_times.BEGINS_WITHIN)]
        if age < dial_times.LAST_LOOK:
            next_age = dial_times.FIRST_LOOK if age < dial_times.FIRST_LOOK else dial_times.LAST_LOOK
            return [LookAt(state.started + next_age)]
        return [NotifyOn(shown)]

    def _shortest_pause(self, state: DialState, now: float) -> float:
        """Return how long to wait for the next look at least."""
        early = state.paid and not self.notifies and now - state.started < dial_times.FIRST_LOOK
        return dial_times.EARLY_LOOK if early else dial_times.FIRST_LOOK

    def _look_at_observed(self, state: DialState, input_: Looked, now: float) -> Step:
        if input_.shown == READY and not input_.left and now < state.until:
            return state, [self._until(state, now)]
        state, effects = self._made(state)
        return state, effects if self.notifies else [*effects, LookAt(now + dial_times.UNPROVEN_LOOK)]

    def _until(self, state: DialState, now: float) -> LookAt:
        return LookAt(state.until if self.notifies else min(state.until, now + dial_times.RAREST_LOOK))

    def _made(self, state: DialState) -> Step:
        # A notification costs as much as a call, so a program that creates a channel for each request does without.
        waits = self.notifies and not state.observe
        watch = LookAt(state.since + dial_times.SPARE_UNTIL + dial_times.FIRST_LOOK) if waits else NotifyOn(READY)
        return state._replace(phase=DialPhase.OPEN), [Made(), watch]

    def _explained(self, state: DialState, input_: Explained, _now: float) -> Step:
        return state._replace(phase=DialPhase.CLOSED), [Close(), Failed(failure_of(input_.code, input_.details))]

    # The connection.

    def _look_at_open(self, state: DialState, input_: Looked, now: float) -> Step:
        """Notice the end: any change away from READY is one, even if a call has made the core READY again by now."""
        if input_.shown == READY and not input_.left:
            if input_.refused and not input_.served:  # if GOAWAY came together with SETTINGS, the core stays READY
                return state._replace(phase=DialPhase.ENDED, ended=now), [Lost(Loss(_GRACEFUL), guard=True)]
            if input_.served and state.guarded:  # a graceful end would fail calls, which the core repeats elsewhere
                loss = Loss(_TRIAL, graceful=True, served=True)
                return state._replace(phase=DialPhase.ENDED, ended=now, served=True), [Lost(loss)]
            state, answered = _note_answer(state, input_)
            if input_.running and not (self.notifies or state.served) and now - state.since < dial_times.YOUNG:
                return state, [*answered, LookAt(now + dial_times.UNPROVEN_LOOK)]
            if self.notifies and not (state.observe or self._may_be_spare(state, now)):
                return state, [*answered, NotifyOn(READY)]
            return state, answered
        graceful = min(input_.unused, now - state.since) >= dial_times.IDLE_SHARE * self.idle_timeout
        loss = Loss(IDLED, graceful=True) if graceful else Loss(_BROKEN)  # CB-14: the core closes it then
        return self._look_at_ending(state._replace(phase=DialPhase.ENDING, ended=now, loss=loss), input_, now)

    def _look_at_ending(self, state: DialState, input_: Looked, now: float) -> Step:
        """Report how the connection ended. Without an answer, check first whether calls survive it (CB-7, CB-8)."""
        assert state.loss is not None, "the end was seen"
        loss = state.loss._replace(served=input_.served)
        state, effects = self._look_for_redial(state, input_, now)
        probation = state.ended - state.since < self.stable_after
        if not input_.served and (input_.running or probation):
            if now - state.ended < dial_times.CALLS_BREAK_WITHIN:
                return state, [*effects, LookAt(state.ended + dial_times.CALLS_BREAK_WITHIN)]
            # If the core has left IDLE, running calls prove nothing: they may wait for the connection that it dials.
            loss = loss._replace(graceful=loss.graceful or (input_.running > 0 and input_.shown == IDLE))
        if loss.reason == _BROKEN and (loss.graceful or input_.refused):
            loss = loss._replace(reason=_GRACEFUL)
        guard = input_.dropped and not (input_.served or loss.graceful)
        return state._replace(phase=DialPhase.ENDED, served=input_.served), [Lost(loss, guard), *effects]

    def _look_at_ended(self, state: DialState, input_: Looked, now: float) -> Step:
        state, answered = _note_answer(state, input_)
        state, effects = self._look_for_redial(state, input_, now)
        return state, [*answered, *effects]

    def _look_for_redial(self, state: DialState, input_: Looked, now: float) -> Step:
        """Report the dials that the core has made by itself since the last look (CB-16)."""
        if input_.running > state.calls:
            state = state._replace(calls=input_.running)
        shown, before = input_.shown, state
        changed = input_.left or shown != state.shown
        effects = list[Effect]()
        if changed and _has_dialled(state.shown, shown):
            state = self._dialled(state, now)._replace(redialled=state.redialled + 1)
            effects.append(Redialled())
            if not input_.served and state.ended - state.since < dial_times.YOUNG and _refuses(state, input_, now):
                effects.append(EndCalls(_REFUSED))
        elif shown == TRANSIENT_FAILURE:
            state, effects = self._redials_by(state, now)
        if changed:
            effects.append(NotifyOn(shown))
        if shown == TRANSIENT_FAILURE and (changed or state.redials != before.redials):
            effects.append(LookAt(state.redials))
        elif not self.notifies and input_.running and has_ended(state) and now - state.ended < dial_times.STRAYS_FOR:
            effects.append(LookAt(_aligned(now, dial_times.RAREST_LOOK)))
        return state._replace(shown=shown), effects

    def _dialled(self, state: DialState, at: float) -> DialState:
        """Return the state after the first dial of a series of the core's own."""
        backoff = dial_times.core_backoff(state.limit)
        return state._replace(redials=at + (1 - dial_times.CORE_JITTER) * backoff, backoff=backoff)

    def _redials_by(self, state: DialState, now: float) -> Step:
        """Report each dial that the core can have made by now while it was in TRANSIENT_FAILURE."""
        effects = list[Effect]()
        while now >= state.redials:
            longest = max(self.longest, dial_times.core_backoff(state.limit))
            backoff = min(dial_times.CORE_MULTIPLIER * state.backoff, longest)
            state = state._replace(redials=state.redials + (1 - dial_times.CORE_JITTER) * backoff, backoff=backoff)
            effects.append(Redialled(late=state.phase is DialPhase.DIALLING))
        return state, effects

    def _retire(self, state: DialState, _input: Retire, _now: float) -> Step:
        watch: list[Effect] = [] if state.observe or has_ended(state) else [NotifyOn(READY)]
        return state._replace(phase=DialPhase.DRAINING), watch

    def _look_at_draining(self, state: DialState, input_: Looked, now: float) -> Step:
        """Close the channel once its last call has ended, as a graceful GOAWAY allows (CH-6)."""
        if not has_ended(state) and (input_.left or input_.shown != READY):  # it was retired while it was up
            state = state._replace(ended=now)
        state, effects = self._look_at_ended(state, input_, now)
        if input_.running:
            return state, effects
        kept: list[Effect] = [effect for effect in effects if isinstance(effect, FirstAnswer | Redialled)]
        return state._replace(phase=DialPhase.CLOSED), [*kept, Close()]

    def _abandon(self, state: DialState, input_: Abandon, now: float) -> Step:
        spare = input_.spare and state.phase is DialPhase.OPEN and self._may_be_spare(state, now)
        return state._replace(phase=DialPhase.CLOSED), [Close(spare)]

    def _may_be_spare(self, state: DialState, now: float) -> bool:
        """Return whether the channel may serve another dial: it is young, and one of several in quick turns."""
        return not state.observe and now - state.since < dial_times.SPARE_UNTIL


def is_decided(state: DialState, shown: int, now: float) -> bool:
    """Return whether the core may have an outcome of the attempt that has not been looked at yet (CB-3).

    A young dial counts, because a late shell may have asked the core to dial only just now.
    """
    young = now - state.started < min(dial_times.BEGINS_WITHIN, state.limit / 2)
    return state.phase is not DialPhase.DIALLING or shown != CONNECTING or young


def has_ended(state: DialState) -> bool:
    """Return whether the connection was seen to end. A call that entered the core's channel now would use a redial."""
    return state.ended < math.inf


def is_up(state: DialState, shown: int) -> bool:
    """Return whether calls may use the connection: the core is READY, and not because it has redialled (CB-16)."""
    return shown == READY and not has_ended(state)


def link_of(shown: int, ended_for: float) -> Link:
    """Return the state of a call's connection at the moment when the call ended.

    Args:
        shown: the state that the core shows. It is in TRANSIENT_FAILURE if it has dialled for the call without success;
            if the call was answered, on any connection, it is in another state.
        ended_for: how many seconds ago the connection was seen to have ended.
    """
    if shown == TRANSIENT_FAILURE:
        return Link.UNREACHABLE
    return Link.BROKEN if shown != READY and ended_for < dial_times.CALLS_ARE_REFUSED_WITHIN else Link.OPEN


def _refuses(state: DialState, input_: Looked, now: float) -> bool:
    """Return whether the core has redialled so often that the peer must be refusing the calls.

    A peer that accepts one call on each connection costs a redial for each call that it had not accepted yet. Once a
    GOAWAY has ended a call, or the calls have had `REDIALS_FOR` seconds, two redials are enough.
    """
    known = input_.refused or now - state.ended >= dial_times.REDIALS_FOR
    return state.redialled > (1 if known else max(1, state.calls))


def _note_answer(state: DialState, input_: Looked) -> Step:
    if state.served or not input_.served:
        return state, []
    return state._replace(served=True), [FirstAnswer()]


def _has_dialled(before: int, after: int) -> bool:
    """Return whether the core has begun to dial since it was in the state `before`, which it has left.

    In TRANSIENT_FAILURE, the core dials again without a change of state, when its own backoff is over.
    """
    if after == READY:
        return before not in (CONNECTING, TRANSIENT_FAILURE)
    if after == IDLE:
        return before == IDLE
    return after == CONNECTING or (after == TRANSIENT_FAILURE and before != CONNECTING)


def _aligned(now: float, pause: float) -> float:
    rarest = dial_times.RAREST_LOOK
    return now + pause if pause < rarest else (math.floor(now / rarest) + 1) * rarest


_Handler = Callable[[DialMachine, DialState, Any, float], Step]

TRANSITIONS = Transitions[_Handler](
    {
        **{(phase, Abandon): DialMachine._abandon for phase in DialPhase},
        (DialPhase.DIALLING, Looked): DialMachine._look_at_dial,
        (DialPhase.OBSERVING, Looked): DialMachine._look_at_observed,
        (DialPhase.FAILED, Looked): ignored,
        (DialPhase.FAILED, Explained): DialMachine._explained,
        (DialPhase.OPEN, Looked): DialMachine._look_at_open,
        (DialPhase.OPEN, Retire): DialMachine._retire,
        (DialPhase.ENDING, Looked): DialMachine._look_at_ending,
        (DialPhase.ENDING, Retire): DialMachine._retire,
        (DialPhase.ENDED, Looked): DialMachine._look_at_ended,
        (DialPhase.ENDED, Retire): DialMachine._retire,
        (DialPhase.DRAINING, Looked): DialMachine._look_at_draining,
        (DialPhase.DRAINING, Retire): ignored,
        **{(DialPhase.CLOSED, kind): ignored for kind in (Looked, Explained, Retire, Abandon)},
    }
)
