"""Invariants of every call, tested with random inputs, each sent only in situations where it can occur."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.budget import RetryTokens
from grpc_backoff.decide.calls.call_machine import CallPhase
from grpc_backoff.decide.calls.events import CallRetried, WaitSource
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.policy.budget import RetryBudget
from tests.decide.calls.driving import Run, policy_of

ATTEMPTS_BEFORE = "grpc-previous-rpc-attempts"
spans = st.sampled_from([None, 0.25, 1.0, 5.0, 60.0])
policies = st.none() | st.builds(
    policy_of,
    max_attempts=st.none() | st.none() | st.integers(1, 5),
    timeout=spans,
    deadline=spans,
    server_delay_jitter=st.just(1.0),
)
sources = st.sampled_from([WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER])
MADE = st.integers(1, 3)
hints = st.none() | st.builds(ServerHint, st.none() | st.sampled_from([0.0, 0.125, 3.0]), sources)
codes = st.sampled_from([*["UNAVAILABLE"] * 5, "UNAUTHENTICATED", "ABORTED", "CANCELLED", "INTERNAL"])
ROUNDING = 1e-9
"""How much longer than its limit an attempt may seem, because its length is its end minus its start."""
SETTLED = 20
"""How many steps must pass before an answer, the caller or the channel may end the call; with no minimum, most runs
would be short."""


class Lives(RuleBasedStateMachine):
    """A random call: its attempts end by their deadlines, and its timers fire, sometimes late."""

    @initialize(
        policy=policies,
        timeout=spans,
        limit=spans,
        wait_for_ready=st.booleans(),
        by_config=st.booleans(),
        repeatable=st.booleans(),
        budget=st.none() | st.integers(1, 10),
        prompt=st.booleans(),
    )
    def begin(self, policy, timeout, limit, wait_for_ready, by_config, repeatable, budget, prompt):
        tokens = None if budget is None else RetryTokens(RetryBudget(budget, 0.5))
        how = {"wait_for_ready": wait_for_ready, "by_config": by_config, "repeatable": repeatable}
        self.run = Run(policy, timeout=timeout, limit=limit, tokens=tokens, **how)
        self.prompt = prompt
        self.late = False
        self.steps = 0
        self.missed = set()
        self.fresh = True  # the attempt has begun, but may still be told that there is no connection

    # How the shell handles every input.

    def feed(self, given):
        run = self.run
        self.steps += 1
        if run.phase is CallPhase.DONE:
            return  # the end is final; inputs that arrive later are ignored
        waited, before = run.phase is CallPhase.WAITING, len(run.begun)
        run.feed(given)
        if isinstance(given, m.Missed | m.NotConnected) and run.state.missed is not None:
            self.missed.add(run.state.missed)
        self.fresh = len(run.begun) > before
        if self.fresh:
            self.begins()
        if any(isinstance(effect, m.CallHook) and effect.hook is not m.Hook.EXHAUSTED for effect in run.effects):
            assert not run.state.committed, "RT-8: the caller has seen something of it"
        if isinstance(given, m.NoConnection) and waited:
            machine = run.machine
            stays = machine.wait_for_ready and (given.resolved or not machine.by_config)
            assert stays == (run.phase is CallPhase.WAITING)

    def begins(self):
        """Check the attempt that has just begun, if it is not the first (RT-7, RT-10)."""
        run = self.run
        now, seconds, metadata = run.begun[-1]
        if not run.state.waited:
            self.missed = set()
        assert run.state.end is None or now < run.state.end, "an attempt began when the time was up"
        assert (seconds is None) == (run.state.attempt_end is None)
        assert seconds is None or 0 < seconds <= run.state.attempt_end - now
        assert run.state.end is None or run.state.attempt_end <= run.state.end
        if seconds is not None and run.machine.policy is not None and run.machine.policy.timeout is not None:
            assert seconds <= run.machine.policy.timeout + ROUNDING
        retried = [event for event in run.events if isinstance(event, CallRetried)]
        counted = sum(event.source is not WaitSource.REFUSED for event in retried)
        assert run.state.progress.attempt == 1 + counted
        said = [value for key, value in metadata if key == ATTEMPTS_BEFORE]
        assert said == ([str(counted)] if counted else [])
        policy = run.machine.policy
        assert not retried if policy is None else counted < (policy.max_attempts or counted + 1)
        assert not run.state.committed or len(run.begun) == 1 or run.state.waited, "RT-8: committed, and made again"

    def running(self):
        return self.run.in_flight and not (self.fresh and self.run.machine.handed_over)

    # Time.

    @rule(
        seconds=st.sampled_from([0.0, 0.125, 0.5, 1.0, 10.0]),
        late=st.sampled_from([0.0, 0.0, 0.5, 50.0]),
        ends_as=st.sampled_from(["DEADLINE_EXCEEDED", "CANCELLED", "unsent"]),
    )
    def time_passes(self, seconds, late, ends_as):
        run = self.run
        until = run.now + seconds
        for _ in range(1000):
            if self.fresh and run.phase is CallPhase.RUNNING:
                self.connects(there=True)  # the shell reports at once whether there is a connection
            while run.soon:
                self.soon()
            ends = run.state.attempt_end if run.in_flight else None
            due = [at for at in (run.timer, ends) if at is not None and at <= until]
            if not due or run.phase is CallPhase.DONE:
                break
            if min(due) == ends:
                run.now = max(run.now, ends)
                unsent = ends_as == "unsent"
                self.feed(m.FailedAttempt("UNAVAILABLE" if unsent else ends_as, unsent=unsent))
            elif late and not self.prompt:  # other inputs may arrive before a late timer
                self.late = True
                run.now = max(run.now, run.timer) + late
                until = max(until, run.now)
                break
            else:
                run.now = max(run.now, run.timer)
                self.feed(m.CallTimerFired())
        else:
            raise AssertionError("time stands still")
        run.now = max(run.now, until)

    # Connections.

    @rule(there=st.booleans(), failing=st.booleans(), resolved=st.booleans(), made=MADE)
    @precondition(lambda self: self.run.phase is CallPhase.RUNNING and self.fresh)
    def connects(self, there, failing=False, resolved=True, made=1):
        if not there:
            self.feed(m.NotConnected(failing, resolved, made))
        elif self.run.machine.handed_over:
            self.feed(m.Begun())
        self.fresh = False

    @rule()
    @precondition(lambda self: self.run.phase is CallPhase.WAITING)
    def connected(self):
        self.feed(m.ConnectionReady())

    @rule(made=MADE)
    @precondition(lambda self: self.run.phase is CallPhase.WAITING)
    def misses(self, made):
        self.feed(m.Missed(made))

    @rule(resolved=st.booleans())
    @precondition(lambda self: self.run.phase is CallPhase.WAITING)
    def dial_fails(self, resolved):
        self.feed(m.NoConnection(resolved))

    @rule(resolved=st.booleans())
    @precondition(lambda self: self.run.soon)
    def soon(self, resolved=False):
        self.run.soon -= 1
        self.feed(m.NoConnection(resolved))

    # The attempt.

    @rule(observed=st.booleans())
    @precondition(lambda self: self.running() and self.steps > SETTLED)
    def attempt_succeeds(self, observed):
        self.run.around.observed = observed
        self.feed(m.OkStatus())

    @rule(
        code=codes,
        hint=hints,
        kind=st.sampled_from(["", "", "", "unsent", "refused", "oversized"]),
        can_refresh=st.booleans(),
    )
    @precondition(lambda self: self.running())
    def attempt_fails(self, code, hint, kind, can_refresh):
        run = self.run
        progress, events = run.state.progress, len(run.events)
        self.feed(m.FailedAttempt(code, hint, can_refresh=can_refresh, **({kind: True} if kind else {})))
        if kind == "unsent" and run.machine.repeatable and self.fresh and len(run.events) == events:
            assert run.state.progress == progress, "what never left counts for nothing"

    @rule()
    @precondition(lambda self: self.run.in_flight and self.fresh and len(self.run.begun) > 1)
    def attempt_cannot_be_made(self):
        self.feed(m.AttemptBroken())

    # The program.

    @rule(renews=st.booleans())
    @precondition(lambda self: self.run.asked)
    def hook_returns(self, renews):
        self.feed(m.HookDone((("token", "new"),) if renews else None))

    @rule()
    @precondition(lambda self: self.run.phase is not CallPhase.DONE and self.steps > 8)
    def caller_sees_something(self):
        self.feed(m.Committed())

    @rule()
    @precondition(lambda self: self.run.phase is not CallPhase.DONE and self.steps > SETTLED)
    def caller_cancels(self):
        self.feed(m.CancelRequested())
        assert self.run.phase is CallPhase.DONE

    @rule()
    @precondition(lambda self: self.run.phase is not CallPhase.DONE and self.steps > SETTLED)
    def channel_closes(self):
        run = self.run
        run.around.closing = True
        self.feed(m.ChannelClosing())
        assert run.phase in {CallPhase.RUNNING, CallPhase.WAITING, CallPhase.DONE}

    # Invariants after every step. The driver itself checks that there is at most one attempt at a time, and a single
    # end with nothing but events after it.

    @invariant()
    def phase_and_attempt_agree(self):
        assert self.run.in_flight == (self.run.phase is CallPhase.RUNNING)
        assert self.run.phase is not CallPhase.DECIDING or self.run.asked

    @invariant()
    def a_timer_runs_exactly_while_something_is_awaited(self):
        run = self.run
        awaited = {
            CallPhase.WAITING: run.state.attempt_end,
            CallPhase.SLEEPING: run.state.wake,
            CallPhase.DECIDING: run.state.end,
        }
        assert run.timer == awaited.get(run.phase)

    @invariant()
    def the_deadline_is_never_passed(self):
        run = self.run
        if run.finish is not None and run.state.end is not None and not self.late:
            assert run.ended <= run.state.end

    @invariant()
    def fail_fast_calls_do_not_wait_through_two_failures(self):
        run = self.run
        if run.phase is CallPhase.WAITING and not run.machine.wait_for_ready and len(self.missed) > 1:
            assert run.soon

    def teardown(self):
        """CH-7: the call ends once its attempts end; no call is lost."""
        if not hasattr(self, "run"):
            return
        run = self.run
        for _ in range(10):
            if run.phase is CallPhase.DONE:
                return
            if run.phase is CallPhase.RUNNING:
                self.feed(m.Begun() if run.machine.handed_over else m.OkStatus())
            elif run.phase is CallPhase.WAITING:
                self.feed(m.ConnectionReady())
            elif run.phase is CallPhase.DECIDING:
                self.feed(m.HookDone())
            else:
                run.now = max(run.now, run.timer)
                self.feed(m.CallTimerFired())
        pytest.fail(f"lost in {run.phase}")


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestLives.__doc__ = (
    "CH-3, CH-7, RT-1, RT-7, RT-8, RT-10: one attempt at a time, one end, none lost, none past its deadline."
)
