"""SB-1 to SB-5: the state machine of subscriptions, without grpc or an event loop; the clock is a plain number."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from grpc_backoff import Gap, Reason, StreamEnded, StreamResumed
from grpc_backoff.base.base_errors import IllegalTransition
from grpc_backoff.base.stepping import AbandonAttempt, ArmTimer, CancelTimer, Emit
from grpc_backoff.decide.calls import subscription_machine as s
from grpc_backoff.decide.calls.call_machine import (
    AttemptBroken,
    CallHook,
    CallTimerFired,
    CancelRequested,
    ChannelClosing,
    Ending,
    FailedAttempt,
    Finish,
    Hook,
    HookDone,
    SeekAnother,
)
from grpc_backoff.decide.calls.events import CallExhausted, WaitSource
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.decide.calls.subscription_machine import SubscriptionPhase as Phase
from tests.decide.calls.driving import BEGAN, METHOD, TARGET, Around, policy_of

INPUTS = {
    s.Asked: s.Asked(),
    s.MessageCame: s.MessageCame(),
    s.StreamOver: s.StreamOver(FailedAttempt("UNAVAILABLE")),
    AttemptBroken: AttemptBroken(),
    CallTimerFired: CallTimerFired(),
    HookDone: HookDone(()),
    CancelRequested: CancelRequested(),
    ChannelClosing: ChannelClosing(),
}


class Run:
    """One subscription: steps its machine and records the effects; `opens` has the times of its streams."""

    def __init__(self, *given, timeout=None, resumes=True, **policy):
        policy = policy_of(**({"max_attempts": None} | policy))
        self.machine = s.SubscriptionMachine(TARGET, METHOD, policy, timeout, resumes, "c0ffee")
        self.around = Around(random.Random(1))
        self.state, self.now = s.SubscriptionState(), BEGAN
        self.effects, self.events, self.opens, self.timer = [], [], [], None
        for each in given:
            self.feed(each)

    @property
    def phase(self):
        return self.state.phase

    def feed(self, given):
        self.state, self.effects = self.machine.step(self.state, given, self.now, self.around)
        for effect in self.effects:
            match effect:
                case ArmTimer(at):
                    self.timer = at
                case CancelTimer():
                    self.timer = None
                case Emit(event):
                    self.events.append(event)
                case s.Open():
                    self.opens.append(self.now)
        return self

    def over(self, code="UNAVAILABLE", after=0.0, *, headers=False, **how):
        self.now += after
        return self.feed(s.StreamOver(FailedAttempt(code, **how), headers))

    def wake(self):
        self.now, self.timer = self.timer, None
        return self.feed(CallTimerFired())

    def wait(self):
        """Return the wait that the machine has planned, in seconds."""
        assert self.phase is Phase.SLEEPING
        return self.timer - self.now


def streaming(**how):
    return Run(s.Asked(), s.MessageCame(), **how)


REACH = {
    Phase.IDLE: Run,
    Phase.OPENING: lambda: Run(s.Asked()),
    Phase.STREAMING: streaming,
    Phase.HOOKED: lambda: Run(s.Asked()).over("UNAUTHENTICATED", can_refresh=True),
    Phase.SLEEPING: lambda: Run(s.Asked()).over(),
    Phase.DONE: lambda: Run(CancelRequested()),
}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", INPUTS)
def test_table(phase, kind):
    """SB-1: every pair of phase and input is in the table, or raises an error that names both; DONE is final."""
    run = REACH[phase]()
    assert run.phase is phase
    if (phase, kind) in s.TRANSITIONS:
        run.feed(INPUTS[kind])
        assert (run.phase is Phase.DONE) == (run.effects[-1:] != [] and type(run.effects[-1]) is Finish)
    else:
        with pytest.raises(IllegalTransition, match=f"{kind.__name__} in phase {phase.name}"):
            run.feed(INPUTS[kind])
    assert Phase.DONE not in {source for source, _ in s.TRANSITIONS}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.DONE])
def test_cancel(phase):
    """SB-6: closing ends a subscription in every phase and leaves neither a stream nor a timer."""
    run = REACH[phase]().feed(CancelRequested())

    assert run.effects == [AbandonAttempt(), CancelTimer(), Finish(Ending.STOPPED)]
    assert run.phase is Phase.DONE


AGAIN, DONE = Phase.SLEEPING, Phase.DONE


@pytest.mark.parametrize(
    ("code", "opening", "later"),
    [
        ("OK", AGAIN, AGAIN),
        ("UNAVAILABLE", AGAIN, AGAIN),
        ("RESOURCE_EXHAUSTED", AGAIN, AGAIN),
        ("CANCELLED", AGAIN, AGAIN),
        ("INTERNAL", DONE, AGAIN),
        ("UNKNOWN", DONE, AGAIN),
        ("DEADLINE_EXCEEDED", DONE, AGAIN),
        ("PERMISSION_DENIED", DONE, DONE),
        ("UNAUTHENTICATED", DONE, DONE),
        ("OUT_OF_RANGE", DONE, DONE),
        ("DATA_LOSS", DONE, DONE),
    ],
)
def test_ends(code, opening, later):
    """SB-2: which codes are followed by another stream, before the stream's first message and after that."""
    assert Run(s.Asked()).over(code).phase is opening
    run = streaming().over(code)
    assert run.phase is later
    if run.phase is DONE:
        assert run.effects[-1] == Finish(Ending.ATTEMPT)


@pytest.mark.parametrize("code", ["INTERNAL", "UNKNOWN", "CANCELLED", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED"])
@pytest.mark.parametrize("run", [lambda: Run(s.Asked()), streaming], ids=["opening", "later"])
def test_cut(run, code):
    """SB-2: a stream of which the core says that it was cut is opened again, with or without a message."""
    assert run().over(code, cut=True).phase is AGAIN


def test_cut_again_and_again():
    """SB-2 to SB-4: streams that are cut without a message wait longer and longer, and count for the policy's limit."""
    run, waits = Run(s.Asked()), []
    for _ in range(20):
        waits.append(run.over("INTERNAL", cut=True, headers=True).wait())
        run.wake()
    assert waits == [0.5, 1.0, *[2.0] * 18]
    run = Run(s.Asked(), max_attempts=2).over("INTERNAL", cut=True).wake().over("INTERNAL", cut=True)
    assert run.events[-1].reason is Reason.ATTEMPTS


@pytest.mark.parametrize("code", ["INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"])
def test_headers(code):
    """SB-2: headers count as delivered, until seven streams in a row have ended so; then it is the server's answer."""
    run = Run(s.Asked())
    for _ in range(6):
        assert run.over(code, headers=True).phase is AGAIN
        run.wake()
    assert run.over(code, headers=True).effects[-1] == Finish(Ending.ATTEMPT)
    assert len(run.opens) == 7


@pytest.mark.parametrize(
    "between",
    [
        lambda run: run.feed(s.MessageCame()),
        lambda run: run.over("UNAVAILABLE").wake(),
        lambda run: run.over("INTERNAL", cut=True).wake(),
        lambda run: run.over("INTERNAL", headers=True, after=s.STEADY).wake(),
    ],
    ids=["a message", "an outage", "a cut", "a quiet stream"],
)
def test_headers_in_a_row(between):
    """SB-2: a message, another end and a stream that lasted begin the row of such ends anew."""
    run = Run(s.Asked())
    for _ in range(6):
        run.over("INTERNAL", headers=True).wake()
    between(run)
    assert run.over("INTERNAL", headers=True).phase is AGAIN


def test_never_ran_only():
    """SB-2, RT-14: `never_ran_only` is for calls; reading on executes nothing again."""
    assert streaming(never_ran_only=True).over().phase is AGAIN


def test_other_ends():
    """SB-2: a deadline of the stream's own, `ends="stop"`, messages that are too large, and a closing channel."""
    assert Run(s.Asked(), timeout=5.0).over("DEADLINE_EXCEEDED", 5.0).phase is AGAIN
    assert Run(s.Asked(), timeout=5.0).over("DEADLINE_EXCEEDED", 4.9).phase is DONE, "the server's own"
    stopped = streaming(resumes=False).over("OK")
    assert stopped.effects == [CancelTimer(), Finish(Ending.STOPPED)]
    assert streaming(resumes=False).over("UNAVAILABLE").phase is AGAIN
    assert Run(s.Asked()).over("RESOURCE_EXHAUSTED", oversized=True).phase is DONE
    closing = streaming()
    closing.around.closing = True
    assert closing.over("CANCELLED").effects[-1] == Finish(Ending.ATTEMPT)


def test_waits():
    """SB-3: the waits follow the policy and start over with the first message of a stream."""
    run, waits = Run(s.Asked()), []
    for _ in range(4):
        waits.append(run.over().wait())
        run.wake()
    run.feed(s.MessageCame())
    waits.append(run.over("OK").wait())

    assert waits == [0.5, 1.0, 2.0, 2.0, 0.5]
    assert len(run.opens) == 5


def test_one_message_each():
    """SB-3: one message for each stream does not make the waits shorter than the policy's first."""
    run = streaming()
    for _ in range(5):
        assert run.over("OK").wait() == 0.5
        run.wake().feed(s.MessageCame())


def test_quiet():
    """SB-3: a stream that lasted for a while without a message puts the waits back to their beginning."""
    run = Run(s.Asked())
    run.over().wake().over().wake()

    assert run.over("OK", after=s.STEADY - 0.1).wait() == 2.0
    assert run.wake().over("OK", after=s.STEADY).wait() == 0.5


def test_server_hint():
    """SB-3, RT-3: a pushback sets the wait, and a negative one ends the subscription."""
    run = streaming().over(hint=ServerHint(7.0, WaitSource.PUSHBACK))
    assert run.wait() == 7.0
    assert run.events[-1].source is WaitSource.PUSHBACK
    run = streaming().over(hint=ServerHint(None, WaitSource.PUSHBACK))
    assert run.effects[-1] == CallHook(Hook.EXHAUSTED, 0.0, Reason.STOPPED)
    assert run.feed(HookDone()).effects[-1].ending is Ending.EXHAUSTED


def test_too_early():
    """SB-3: a timer that fires too early is armed again, and opens nothing."""
    run = Run(s.Asked()).over()
    due = run.timer
    run.now = due - 0.1

    assert run.feed(CallTimerFired()).effects == [ArmTimer(due)]
    assert len(run.opens) == 1


def test_limits():
    """SB-4: attempts and deadline count from the last message, so a subscription that delivers goes on indefinitely."""
    run = streaming(max_attempts=2)
    for _ in range(5):
        run.over().wake().feed(s.MessageCame())
    run.over().wake().over()
    assert isinstance(run.events[-1], CallExhausted)
    assert run.events[-1].reason is Reason.ATTEMPTS
    assert (run.events[-1].attempt, run.events[-1].took) == (1, 0.5)

    run = streaming(deadline=2.0)
    run.over("UNAVAILABLE", after=100.0).wake().over().wake().over()
    assert run.events[-1].reason is Reason.DEADLINE


def test_no_retries():
    """SB-4: a policy of one attempt opens no second stream."""
    assert streaming(max_attempts=1).over("UNAVAILABLE").effects[-1] == Finish(Ending.ATTEMPT)
    assert streaming(max_attempts=1).over("OK").effects[-1] == Finish(Ending.STOPPED)


def test_renewal():
    """SB-6, RT-4: UNAUTHENTICATED renews the credentials, once at once, and later after the wait."""
    run = Run(s.Asked()).over("UNAUTHENTICATED", can_refresh=True)
    assert run.effects[-1] == CallHook(Hook.REFRESH, 0.0)
    run.feed(HookDone((("token", "1"),)))
    assert run.effects == [s.Open((("token", "1"),))]
    run.over("UNAUTHENTICATED", can_refresh=True).wake()
    assert run.phase is Phase.HOOKED
    assert run.feed(HookDone((("token", "2"), ("a", "b")))).effects == [s.Open((("token", "2"), ("a", "b")))]
    run.feed(s.MessageCame())
    assert run.over("UNAUTHENTICATED", can_refresh=True).phase is Phase.HOOKED, "at once again, after a message"
    assert run.feed(HookDone(None)).effects[-1] == Finish(Ending.ATTEMPT)


def test_turned_away():
    """RT-15: before a stream is opened again after an HTTP status, another connection is sought."""
    assert Run(s.Asked()).over(turned_away=503).effects[0] == SeekAnother(503)
    assert SeekAnother(503) not in Run(s.Asked(), max_attempts=1).over(turned_away=503).effects


def test_gap():
    """SB-5: a gap counts from the first end to the next message, with the streams between; there is none at first."""
    run = Run(s.Asked(), s.MessageCame())
    assert run.effects == [s.Deliver()]
    run.over("OK", after=10.0).wake().over().wake()
    run.now += 0.25
    run.feed(s.MessageCame())

    gap = Gap(lasted=1.75, opens=2, code="OK")
    assert run.effects[-1] == s.Deliver(gap)
    assert [event.gap for event in run.events if isinstance(event, StreamResumed)] == [gap]
    ended = [event for event in run.events if isinstance(event, StreamEnded)]
    assert [(event.code, event.delay) for event in ended] == [("OK", 0.5), ("UNAVAILABLE", 1.0)]


class Subscriptions(RuleBasedStateMachine):
    """Any order of inputs: one stream at a time, none sooner than the policy's wait, and none after the end."""

    def __init__(self):
        super().__init__()
        self.run = Run()
        self.running = False
        self.due = None

    def feed(self, given):
        before = len(self.run.opens)
        self.run.feed(given)
        if len(self.run.opens) > before:
            assert not self.running
            assert self.due is None or self.run.now >= self.due
            self.running, self.due = True, None

    @precondition(lambda self: self.run.phase is Phase.IDLE)
    @rule()
    def ask(self):
        self.feed(s.Asked())

    @precondition(lambda self: self.running)
    @rule()
    def message(self):
        self.feed(s.MessageCame())

    @precondition(lambda self: self.running)
    @rule(code=st.sampled_from(["OK", "UNAVAILABLE", "CANCELLED"]), after=st.sampled_from([0.0, 1.0, 40.0]))
    def end(self, code, after):
        self.running = False
        self.run.now += after
        self.feed(s.StreamOver(FailedAttempt(code)))
        assert self.run.timer - self.run.now >= 0.5
        self.due = self.run.timer

    @precondition(lambda self: self.run.timer is not None)
    @rule(early=st.booleans())
    def wake(self, early):
        self.run.now, self.run.timer = max(self.run.now, self.run.timer - 0.1 * early), None
        self.feed(CallTimerFired())

    @precondition(lambda self: self.run.phase is not Phase.DONE)
    @rule()
    def close(self):
        self.feed(CancelRequested())
        assert AbandonAttempt() in self.run.effects
        self.running = False

    @precondition(lambda self: self.run.phase is Phase.DONE)
    @rule()
    def another(self):
        self.run, self.due = Run(), None

    @invariant()
    def nothing_is_left(self):
        if self.run.phase is Phase.DONE:
            assert not self.running
            assert self.run.timer is None


TestSubscriptions = Subscriptions.TestCase
TestSubscriptions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, derandomize=True)
