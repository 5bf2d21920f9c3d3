"""The life of one hedged call as a pure state machine (gRFC A6): several copies of a call, of which one is chosen.

A call without a connection waits and fails as one without a policy does, which is `CallMachine`'s part. This module
decides about the copies: when the next one is sent, which one the call ends as, and what becomes of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import WaitSource
from grpc_backoff.base.stepping import ArmTimer, CancelTimer, Emit, Transitions
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.events import CallHedged, CallNotHedged, CallSucceeded, NotHedged
from grpc_backoff.decide.calls.resets import left_until
from grpc_backoff.policy.hedging import HedgingPolicy

_FIRST_ALONE = frozenset({1})

_DONE, _new = m.CallPhase.DONE, tuple.__new__  # as in `call_machine`


class Copies(NamedTuple):
    """The copies of one call, which are part of its state.

    Attributes:
        sent: how many copies were sent, including one that is about to begin.
        live: the numbers of the copies on connections. The first one of a new call counts as such, so that most calls
            need no input for it.
        starting: whether the shell has yet to say whether the latest copy is on a connection.
        more: whether further copies may follow.
        due: when the next copy follows; None if no timer runs for it.
        failed: the copy that failed last; 0 if none has.
    """

    sent: int = 1
    live: frozenset[int] = frozenset()
    starting: bool = True
    more: bool = True
    due: float | None = None
    failed: int = 0


# Inputs in addition to the call machine's.


class CopyBegun(NamedTuple):
    """The copy that was about to begin is on a connection; copies are counted from 1.

    The shell sends this only if the copy is `starting`.
    """


class CopyAnswered(NamedTuple):
    """The first message of this copy's response has arrived, or its end; `over` is whether it has ended, with OK."""

    copy: int
    over: bool = True


class CopyFailed(NamedTuple):
    """The copy ended with a status other than OK before its first message."""

    copy: int
    failure: m.FailedAttempt


class CopyHeld(NamedTuple):
    """The copy that was about to begin was not sent: its connection takes no more for `wait` seconds (HG-11)."""

    wait: float


Input = m.Input | CopyBegun | CopyAnswered | CopyFailed | CopyHeld


# Effects in addition to the call machine's.


class Choose(NamedTuple):
    """Make this copy the call's attempt, and cancel the others at the time `at` if they have not ended by then (HG-11).

    With None, cancel all of them at once. Then end the call as `end` says.
    """

    copy: int | None
    at: float | None = None
    end: m.Finish = m.AS_ATTEMPT


class EmitAtEnd(NamedTuple):
    """Emit this event when the copy that was chosen has ended, if that is with OK (HG-10)."""

    event: CallSucceeded

    def at(self, now: float) -> CallSucceeded:
        """Return the event for a copy that ends now."""
        return replace(self.event, at=now, took=self.event.took + now - self.event.at)


Effect = m.Effect | Choose | EmitAtEnd
Step = tuple[m.CallState, list[Any]]  # of `Effect`, which are more than the call machine's


class HedgingMachine(m.CallMachine):
    """The rules for hedged calls to one method; the attributes are those of `CallMachine`.

    Such a call is a copy's own from the moment that it has an attempt, so it is always handed over.
    """

    __slots__ = ()
    hedging: HedgingPolicy
    reports = True

    def begin(
        self, now: float, timeout: float | None = None, limit: float | None = None, **ids: Any
    ) -> tuple[m.CallState, m.Begin]:
        """Start a call with its first copy; the arguments are as for `CallMachine.begin`."""
        if self.hedging.deadline is not None:
            limit = self.hedging.deadline if limit is None else min(limit, self.hedging.deadline)
        call, first = super().begin(now, timeout, limit, **ids)
        due = now + self.hedging.hedging_delay
        copies = _new(Copies, (1, _FIRST_ALONE, False, True, due, 0))
        return _new(m.CallState, (*call[:-1], copies)), _new(m.Begin, (first.seconds, first.metadata, due))

    def shown_end(self, now: float, timeout: float | None) -> float | None:
        """Return the deadline for `time_remaining`, as `CallMachine.shown_end` does."""
        return m.earliest(now, timeout, self.hedging.deadline)

    def step(self, state: m.CallState, input_: Input, now: float, shared: m.Shared) -> Step:
        """Return the state after this input, and the effects that the shell must execute, in this order."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now, shared)

    def _begun(self, state: m.CallState, _input: CopyBegun, now: float, _shared: m.Shared) -> Step:
        copies = state.copies
        copies = copies._replace(live=copies.live | {copies.sent}, starting=False)
        state, effects = self._await_next(state, copies, now + self.hedging.hedging_delay)
        if copies.sent > 1:
            effects.append(Emit(CallHedged(**self._about(state, copies.sent, now))))
        return state, effects

    def _about(self, state: m.CallState, copy: int, now: float) -> dict[str, Any]:
        return {**self._at(state, now), "attempt": copy}

    def _await_next(self, state: m.CallState, copies: Copies, at: float) -> Step:
        """Let the next copy follow at this time, if there is one."""
        left = copies.more and copies.sent < self.hedging.max_attempts
        return state._replace(copies=copies._replace(due=at if left else None)), [ArmTimer(at)] if left else []

    def _send(self, state: m.CallState, now: float) -> Step:
        copies = state.copies
        header = ((m.ATTEMPTS_BEFORE, str(copies.sent)),)
        seconds = None if state.end is None else max(0.0, state.end - now)
        state = state._replace(
            phase=m.CallPhase.RUNNING,
            attempt_began=now,
            progress=m.Progress(attempt=copies.sent + 1),
            metadata=header,
            waited=False,
            missed=None,
            copies=copies._replace(sent=copies.sent + 1, starting=True, due=None),
        )
        return state, [m.Begin(seconds, header)]

    def _timer_fired(self, state: m.CallState, _input: m.CallTimerFired, now: float, shared: m.Shared) -> Step:
        due = state.copies.due
        if due is None:
            return state, []
        if now < due:
            return state, [ArmTimer(due)]
        if not self._may_send(state, now, shared):  # dropped, not delayed
            if not state.copies.live:
                return self._end_as(state, state.copies.failed, now)
            return state._replace(copies=state.copies._replace(more=False, due=None)), []
        return self._send_or_hold(state, now, shared)

    def _send_or_hold(self, state: m.CallState, now: float, shared: m.Shared) -> Step:
        """Send the next copy, unless it would run beside others while the server wants calm."""
        pause = shared.calm.lasts(now) if state.copies.live else 0.0
        if pause:
            return self._hold(state, now, pause, NotHedged.CALM, first=shared.calm.tell())
        return self._send(state, now)

    def _hold(self, state: m.CallState, now: float, wait: float, reason: NotHedged, *, first: bool) -> Step:
        """Send no copy beside those that run until `wait` seconds have passed, or all of them have failed."""
        about = self._about(state, state.copies.sent + 1, now)
        state, effects = self._await_next(state, state.copies, now + max(wait, _LEAST_PAUSE))
        return state, [Emit(CallNotHedged(**about, reason=reason, delay=wait, first=first)), *effects]

    def _held(self, state: m.CallState, input_: CopyHeld, now: float, _shared: m.Shared) -> Step:
        copies = state.copies
        state = state._replace(copies=copies._replace(sent=copies.sent - 1, starting=False))
        if not copies.live:  # the last one has failed meanwhile
            return self._send(state, now)
        return self._hold(state, now, input_.wait, NotHedged.RESETS, first=False)

    def _may_send(self, state: m.CallState, now: float, shared: m.Shared) -> bool:
        spent = shared.tokens is not None and shared.tokens.spent
        expired = state.end is not None and not now < state.end
        left = state.copies.more and state.copies.sent < self.hedging.max_attempts
        return left and not (spent or shared.closing or expired)

    def _copy_failed(self, state: m.CallState, input_: CopyFailed, now: float, shared: m.Shared) -> Step:
        state, effects = self._after_failure(state, input_, now, shared)
        status = input_.failure.turned_away
        if status and state.phase is not _DONE and state.copies.more:  # RT-15
            effects = [m.SeekAnother(status), *effects]
        return state, effects

    def _after_failure(self, state: m.CallState, input_: CopyFailed, now: float, shared: m.Shared) -> Step:
        copies, failure = state.copies, input_.failure
        hint = failure.hint if failure.hint and failure.hint.source is WaitSource.PUSHBACK else None
        late = m.ran_out(failure, state.end, now)  # RT-7
        fatal = late or failure.oversized or not (failure.refused or failure.code in self.hedging.non_fatal_codes)
        stopped = hint is not None and hint.delay is None
        if shared.tokens is not None and (stopped or not (fatal or failure.refused)):
            shared.tokens.failed()
        if fatal:
            return self._end_as(state, input_.copy, now, m.Finish(m.Ending.TIMED_OUT) if late else m.AS_ATTEMPT)
        more = copies.more and not stopped
        copies = copies._replace(live=copies.live - {input_.copy}, more=more, failed=input_.copy)
        state = state._replace(copies=copies)
        if copies.starting:  # the next copy, which this failure would send, is on its way
            return state, []
        wake = now if hint is None or hint.delay is None else now + hint.delay
        late = state.end is not None and not wake < state.end
        if not self._may_send(state, now, shared) or late:
            if not copies.live:
                return self._end_as(state, input_.copy, now)
            return state._replace(copies=copies._replace(more=False, due=None)), [CancelTimer()]
        if wake <= now:
            state, effects = self._send_or_hold(state, now, shared)
            return state, [CancelTimer(), *effects]
        if not copies.live:
            state = state._replace(phase=m.CallPhase.SLEEPING)
        return self._await_next(state, copies, wake)

    def _answered(self, state: m.CallState, input_: CopyAnswered, now: float, shared: m.Shared) -> Step:
        if shared.tokens is not None:
            shared.tokens.succeeded()
        copy = input_.copy
        state, effects = self._end_as(state, copy, now)
        if copy > 1 or shared.observed:
            event = CallSucceeded(**self._about(state, copy, now), took=now - state.began)
            effects.append(Emit(event) if input_.over else EmitAtEnd(event))
        return state, effects

    def _end_as(self, state: m.CallState, copy: int, now: float, end: m.Finish = m.AS_ATTEMPT) -> Step:
        copies = state.copies
        at = left_until(state.began, now) if copies.starting or len(copies.live) > 1 else None
        return _new(m.CallState, (_DONE, *state[1:])), [_new(Choose, (copy, at, end))]

    def _cancel_all(self, state: m.CallState, _input: m.CancelRequested, _now: float, _shared: m.Shared) -> Step:
        return self.ended(state), [Choose(None, end=m.Finish(m.Ending.CANCELLED))]

    def _copy_not_connected(self, state: m.CallState, input_: m.NotConnected, now: float, shared: m.Shared) -> Step:
        """Without a connection, skip this copy if there are others; otherwise, wait as any call does."""
        copies = state.copies
        if not copies.starting:
            return self._not_connected(state._replace(copies=Copies()), input_, now, shared)
        if not copies.live:
            return self._not_connected(state, input_, now, shared)
        skipped = copies._replace(sent=copies.sent - 1, starting=False)
        return self._await_next(state, skipped, now + max(self.hedging.hedging_delay, _LEAST_PAUSE))

    def _copy_broken(self, state: m.CallState, input_: m.AttemptBroken, now: float, shared: m.Shared) -> Step:
        copies = state.copies
        if copies.live and copies.starting:
            return state._replace(copies=copies._replace(starting=False, more=False, due=None)), []
        return self._broken(state, input_, now, shared)


_LEAST_PAUSE = 0.01
"""The shortest wait, in seconds, before a copy that had no connection is tried again."""

_Handler = Callable[[HedgingMachine, m.CallState, Any, float, m.Shared], Step]
_RUNNING, _SLEEPING = m.CallPhase.RUNNING, m.CallPhase.SLEEPING
_OF_AN_ATTEMPT = {(_RUNNING, kind) for kind in (m.Begun, m.OkStatus, m.FailedAttempt, m.Committed)}
"""The pairs in whose place hedged calls have inputs about one of the copies."""

TRANSITIONS = Transitions[_Handler](
    {
        **{pair: handler for pair, handler in m.TRANSITIONS.items() if pair not in _OF_AN_ATTEMPT},
        (_RUNNING, m.NotConnected): HedgingMachine._copy_not_connected,
        (_RUNNING, CopyBegun): HedgingMachine._begun,
        (_RUNNING, CopyAnswered): HedgingMachine._answered,
        (_RUNNING, CopyFailed): HedgingMachine._copy_failed,
        (_RUNNING, CopyHeld): HedgingMachine._held,
        (_RUNNING, m.AttemptBroken): HedgingMachine._copy_broken,
        (_RUNNING, m.CallTimerFired): HedgingMachine._timer_fired,
        (_RUNNING, m.CancelRequested): HedgingMachine._cancel_all,
        (_SLEEPING, m.CallTimerFired): HedgingMachine._timer_fired,
    }
)
