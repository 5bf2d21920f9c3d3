r"""What a retry policy adds to the life of a call: whether it is repeated, how long to wait, which hook is called.

::

    RUNNING ---- fails, is retried ----> SLEEPING ---- wakes ----> RUNNING ...
          \                                 ^
           `- fails, a hook is run --> DECIDING

It is loaded with the first policy, so that no failure has to load it (CH-12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpc_backoff.base.status import Reason
from grpc_backoff.base.stepping import ArmTimer, CancelTimer, Emit, Transitions, ignored
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.decision import GiveUp, Retry, costs_token, decide, is_conflict
from grpc_backoff.decide.calls.events import CallExhausted, CallRetried, CallSucceeded

_CANCEL_TIMER = CancelTimer()
_DONE = m.CallPhase.DONE
_new = tuple.__new__  # as in `call_machine`


class RetryMachine(m.CallMachine):
    """The rules for calls to one method that has a retry policy; the attributes are those of `CallMachine`."""

    __slots__ = ()

    def step(self, state: m.CallState, input_: m.Input, now: float, shared: m.Shared) -> m.Step:
        """Return the state after this input, and the effects that the shell must execute; see `CallMachine.step`."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now, shared)

    # The end of an attempt.

    def _succeeded(self, state: m.CallState, _input: m.Begun | m.OkStatus, now: float, shared: m.Shared) -> m.Step:
        if shared.tokens is not None:  # RT-9
            shared.tokens.succeeded()
        effects: list[m.Effect] = [m.AS_ATTEMPT]
        if shared.heard if state.progress.attempt > 1 else shared.observed:
            effects.append(Emit(CallSucceeded(**self._at(state, now), took=now - state.began)))
        return _new(m.CallState, (_DONE, *state[1:])), effects

    def _after(self, state: m.CallState, input_: m.FailedAttempt, now: float, shared: m.Shared) -> m.Step:
        """Decide what follows a failed attempt (RT-2 to RT-9)."""
        late = m.ran_out(input_, state.attempt_end, now)
        code, ending = (m.TIMED_OUT, m.Ending.TIMED_OUT) if late else (input_.code, m.Ending.ATTEMPT)
        if shared.closing:
            return self._end_with(state, ending, code, now, shared)
        assert self.policy is not None, "these are the rules of a policy"
        failure = input_._replace(
            code=code,
            own_timeout=state.own_timeout and (late or not m.ended_early(state.attempt_end, now)),
            committed=state.committed,
        )
        refused = input_.refused and not state.progress.refused
        if shared.tokens is not None and not refused and costs_token(self.policy, failure):  # RT-9
            shared.tokens.failed()
        left = None if state.end is None else max(0.0, state.end - now)
        if late and not state.own_timeout:
            left = 0.0
        following = decide(
            self.policy,
            state.progress,
            failure,
            left=left,
            budget_spent=shared.tokens is not None and shared.tokens.spent,
            rng=shared.rng,
        )
        if isinstance(following, Retry):
            if following.refresh and not following.delay:
                state = state._replace(failed=code, following=following)
                return self._ask(state, m.CallHook(m.Hook.REFRESH, now - state.began))
            state, effects = self._retry(state, code, following, now, shared)
            return state, [m.SeekAnother(input_.turned_away), *effects] if input_.turned_away else effects
        state = state._replace(failed=code)
        if following.reason is not None:
            return self._give_up(state, following, now, shared)
        if is_conflict(self.policy, failure) and not state.committed:  # RT-5
            return self._ask(state._replace(following=following), m.CallHook(m.Hook.CONFLICT, now - state.began))
        return self._end_with(state, ending, code, now, shared)

    # Between two attempts.

    def _retry(self, state: m.CallState, failed: str, following: Retry, now: float, shared: m.Shared) -> m.Step:
        reported: list[m.Effect] = []
        if shared.heard:
            retried = CallRetried(
                **self._at(state, now),
                code=failed,
                delay=following.delay,
                source=following.source,
                server_delay=following.asked,
                trace_id=state.trace_id,
            )
            reported.append(Emit(retried))
        if not following.delay:
            state, effects = self._next(state, following, now)
            return state, [*reported, *effects]
        wake = now + following.delay
        state = state._replace(phase=m.CallPhase.SLEEPING, failed=failed, following=following, wake=wake)
        return state, [*reported, ArmTimer(wake)]

    def _woken(self, state: m.CallState, _input: m.CallTimerFired, now: float, shared: m.Shared) -> m.Step:
        if now < state.wake:
            return state, [ArmTimer(state.wake)]
        assert isinstance(state.following, Retry), "a call sleeps only before a retry"
        if state.end is not None and not now < state.end:  # RT-7: woken too late
            return self._give_up(state, GiveUp(Reason.DEADLINE), now, shared)
        if state.following.refresh:  # RT-4: after the wait, so that the attempt has fresh credentials
            return self._ask(state, m.CallHook(m.Hook.REFRESH, now - state.began))
        return self._next(state, state.following, now)

    def _next(self, state: m.CallState, following: Retry, now: float) -> m.Step:
        metadata = state.metadata
        if following.progress.attempt > 1:  # RT-10
            metadata = m.replaced(metadata, ((m.ATTEMPTS_BEFORE, str(following.progress.attempt - 1)),))
        return self._attempt(state, now, progress=following.progress, following=None, metadata=metadata)

    def _give_up(self, state: m.CallState, decision: GiveUp, now: float, shared: m.Shared) -> m.Step:
        """Report that the call gives up and call the hook; the call ends when the hook has returned (RT-6)."""
        assert decision.reason is not None, "a call that gives up must have a reason"
        exhausted = CallExhausted(
            **self._at(state, now),
            code=state.failed,
            reason=decision.reason,
            took=now - state.began,
            trace_id=state.trace_id,
        )
        hook = m.CallHook(m.Hook.EXHAUSTED, exhausted.took, decision.reason)
        reported = self._unconnected(state, state.failed, now, shared)
        state, effects = self._ask(state._replace(following=decision), hook)
        return state, [*reported, Emit(exhausted), *effects]

    # Hooks.

    def _ask(self, state: m.CallState, hook: m.CallHook) -> m.Step:
        """Call a hook and wait for it until the call's deadline."""
        timer: list[m.Effect] = [] if state.end is None else [ArmTimer(state.end)]
        return state._replace(phase=m.CallPhase.DECIDING), [*timer, hook]

    def _answered(self, state: m.CallState, input_: m.HookDone, now: float, shared: m.Shared) -> m.Step:
        following = state.following
        if isinstance(following, Retry):
            if input_.metadata is None:
                return m.finish(state, m.Ending.ATTEMPT)
            if state.end is not None and not now < state.end:
                return self._give_up(state, GiveUp(Reason.DEADLINE), now, shared)
            state = state._replace(metadata=m.replaced(state.metadata, input_.metadata))
            again = self._next(state, following, now) if following.delay else None  # if it waited, that was reported
            state, effects = again or self._retry(state, state.failed, following, now, shared)
            return state, [_CANCEL_TIMER, *effects]
        assert isinstance(following, GiveUp), "a decision without a retry must be to give up"
        if following.reason is None:
            return m.finish(state, m.Ending.ATTEMPT)
        return m.finish(state, m.Ending.EXHAUSTED, following)

    def _hook_is_late(self, state: m.CallState, _input: m.CallTimerFired, now: float, shared: m.Shared) -> m.Step:
        return self._answered(state, m.HookDone(), now, shared)

    def _commit_to_failed(self, state: m.CallState, _input: m.Committed, now: float, shared: m.Shared) -> m.Step:
        """End the call with the failed attempt, because its caller has seen part of that attempt's response (RT-8)."""
        if isinstance(state.following, Retry):
            return self._end_with(state, m.Ending.ATTEMPT, state.failed, now, shared)
        return state._replace(committed=True), []


_Handler = Callable[[RetryMachine, m.CallState, Any, float, m.Shared], m.Step]

TRANSITIONS = Transitions[_Handler](
    {
        **m.TRANSITIONS,
        (m.CallPhase.RUNNING, m.OkStatus): RetryMachine._succeeded,
        (m.CallPhase.DECIDING, m.HookDone): RetryMachine._answered,
        (m.CallPhase.DECIDING, m.NoConnection): ignored,
        (m.CallPhase.DECIDING, m.Committed): RetryMachine._commit_to_failed,
        (m.CallPhase.DECIDING, m.CallTimerFired): RetryMachine._hook_is_late,
        (m.CallPhase.DECIDING, m.CancelRequested): RetryMachine._cancel,
        (m.CallPhase.DECIDING, m.ChannelClosing): RetryMachine._cancel,
        (m.CallPhase.SLEEPING, m.Committed): RetryMachine._commit_to_failed,
        (m.CallPhase.SLEEPING, m.CallTimerFired): RetryMachine._woken,
    }
)
