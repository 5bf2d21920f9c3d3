"""Drives a call machine in place of a shell, without grpc or an event loop; the clock is a plain number."""

from __future__ import annotations

import random

from grpc_backoff import BackoffPolicy, Exponential, NoJitter, RetryPolicy
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.budget import RetryTokens
from grpc_backoff.decide.calls.call_machine import CallPhase, Ending
from grpc_backoff.decide.calls.events import WaitSource
from grpc_backoff.decide.calls.resets import Calm
from grpc_backoff.decide.calls.retry_machine import RetryMachine
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.policy.budget import RetryBudget

BEGAN = 100.0
TARGET, METHOD, CALL_ID = "dns:shop:443", "/shop.Orders/Place", "c0ffee"
RETRYABLE = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})


def policy_of(**changes):
    """Return a policy of four attempts that waits exactly 0.5, 1 and 2 seconds, with the given fields changed."""
    backoff = BackoffPolicy(Exponential(0.5, 2.0), 2.0, NoJitter())
    values = {"backoff": backoff, "max_attempts": 4, "codes": RETRYABLE, "server_delay_jitter": 0.0}
    return RetryPolicy(**(values | changes))


def play(run, *steps):
    """Take a run through these steps: methods by name, seconds that pass, and inputs."""
    for step in steps:
        if isinstance(step, str):
            getattr(run, step)()
        elif isinstance(step, float):
            run.now += step
        else:
            run.feed(step)
    return run


class Around:
    """The state that all calls on one channel share."""

    def __init__(self, rng=None, tokens=None):
        self.rng = rng or random.Random(1)
        self.tokens = tokens
        self.closing = self.observed = False
        self.heard = True
        self.calm = Calm()


class Run:
    """One call: steps its machine, records the effects, and checks the invariants of every step.

    Attributes:
        effects: the effects of the last step.
        in_flight: whether an attempt is on a connection, or about to be.
        begun: for each attempt that the machine began, its time, its timeout in seconds and its metadata.
        timer: when the machine's timer fires; None while it is not armed.
        soon: how many `NoConnection` inputs the shell still has to deliver.
        hooks: the hooks that were called.
        asked: whether a hook is still running.
        events: the events that listeners received.
        ended: when the call ended; None while it runs.
        finish: the effect that ended the call.
    """

    def __init__(self, policy=None, *, timeout=None, limit=None, trace_id=None, rng=None, tokens=None, **rules):
        kind = m.CallMachine if policy is None else RetryMachine
        self.machine = kind(TARGET, METHOD, policy, **rules)
        self.around = Around(rng, tokens)
        self.now = BEGAN
        self.begun, self.hooks, self.events = [], [], []
        self.in_flight = self.asked = False
        self.timer = self.ended = self.finish = None
        self.soon = 0
        self.state, first = self.machine.begin(self.now, timeout, limit, call_id=CALL_ID, trace_id=trace_id)
        self.effects = [first]
        self._carry_out(first)

    @property
    def phase(self):
        """The call's phase."""
        return self.state.phase

    def feed(self, given, after=0.0):
        """Advance the clock by `after` seconds and give the machine an input; return the effects."""
        self.now += after
        if isinstance(given, m.OkStatus | m.FailedAttempt | m.AttemptBroken | m.NotConnected | m.Begun):
            self.in_flight = False
        elif isinstance(given, m.CallTimerFired):
            self.timer = None
        elif isinstance(given, m.HookDone):
            self.asked = False
        self.state, self.effects = self.machine.step(self.state, given, self.now, self.around)
        for effect in self.effects:
            self._carry_out(effect)
        assert (self.phase is m.CallPhase.DONE) == (self.finish is not None)
        return self.effects

    def _carry_out(self, effect):
        assert self.finish is None or isinstance(effect, m.Emit), f"{effect} behind the end"
        match effect:
            case m.Begin(seconds, metadata):
                assert not self.in_flight, "two attempts at once"
                self.in_flight = True
                self.begun.append((self.now, seconds, metadata))
            case m.AbandonAttempt():
                assert self.in_flight
                self.in_flight = False
            case m.ArmTimer(at):
                self.timer = at
            case m.CancelTimer():
                self.timer = None
            case m.FailSoon():
                self.soon += 1
            case m.CallHook():
                assert not self.asked, "two hooks at once"
                self.asked = True
                self.hooks.append(effect)
            case m.Emit(event):
                self.events.append(event)
            case m.Finish():
                self.ended, self.finish = self.now, effect
            case _:
                assert isinstance(effect, m.Enqueue | m.FailAttempt | m.SeekAnother)

    # Shorthands.

    def fail(self, code="UNAVAILABLE", after=0.0, **how):
        """Fail the running attempt with this code."""
        return self.feed(m.FailedAttempt(code, **how), after)

    def succeed(self, after=0.0):
        """Let the running attempt succeed."""
        return self.feed(m.OkStatus(), after)

    def wake(self, late=0.0):
        """Fire the timer, this many seconds late."""
        self.now = max(self.now, self.timer)
        return self.feed(m.CallTimerFired(), late)

    def retry(self, code="UNAVAILABLE"):
        """Fail the attempt, wait, and begin the next one."""
        self.fail(code)
        return self.wake()

    @property
    def header(self):
        """The metadata of the last attempt."""
        return self.begun[-1][2]

    @property
    def left(self):
        """How many tokens are left."""
        return self.around.tokens.left

    @property
    def codes(self):
        """The codes of the failed attempts, taken from the events."""
        return [event.code for event in self.events]


POLICY = policy_of()
OWN_TIME = policy_of(timeout=1.0)
STOP = ServerHint(None, WaitSource.PUSHBACK)
AT_ONCE = ServerHint(0.0, WaitSource.PUSHBACK)
TOKEN = (("token", "new"),)
AT = {"target": TARGET, "method": METHOD, "call_id": CALL_ID}
OVER = [m.CancelTimer(), m.Finish(Ending.ATTEMPT)]


def running(policy=POLICY, **how):
    return Run(policy, **how)


def waiting(policy=POLICY, *, failing=False, **how):
    run = Run(policy, **how)
    run.feed(m.NotConnected(failing))
    assert run.phase is CallPhase.WAITING
    return run


def sleeping(policy=POLICY, **how):
    run = Run(policy, **how)
    run.fail()
    assert run.phase is CallPhase.SLEEPING
    return run


def refreshing(policy=POLICY, **how):
    run = Run(policy, **how)
    run.fail("UNAUTHENTICATED", can_refresh=True)
    assert run.phase is CallPhase.DECIDING
    return run


def refreshing_again(**how):
    """Return a call whose renewed credentials were also rejected, so that the hook will be called after the wait."""
    run = refreshing(**how)
    run.feed(m.HookDone(TOKEN))
    run.fail("UNAUTHENTICATED", can_refresh=True)
    assert run.phase is CallPhase.SLEEPING
    return run


def closing():
    """Return a call with an attempt on a channel that is being closed."""
    run = Run(POLICY, repeatable=True, tokens=RetryTokens(RetryBudget(10, 0.1)))
    run.around.closing = True
    return run


def settling(policy=POLICY, **how):
    run = Run(policy, **how)
    run.fail("ABORTED")
    assert run.phase is CallPhase.DECIDING
    return run


def exhausted(policy=POLICY, **how):
    run = Run(policy, **how)
    run.fail(hint=STOP)
    assert run.phase is CallPhase.DECIDING
    return run


def done(policy=POLICY, **how):
    run = Run(policy, **how)
    run.succeed()
    assert run.phase is CallPhase.DONE
    return run
