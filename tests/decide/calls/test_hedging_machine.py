"""The hedging machine, rule by rule, without grpc or an event loop; the clock is a plain number."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.budget import RetryTokens
from grpc_backoff.decide.calls.call_machine import CallPhase
from grpc_backoff.decide.calls.events import CallHedged, CallNotHedged, CallSucceeded, NotHedged, WaitSource
from grpc_backoff.decide.calls.hedging_machine import (
    Choose,
    CopyAnswered,
    CopyBegun,
    CopyFailed,
    CopyHeld,
    EmitAtEnd,
    HedgingMachine,
)
from grpc_backoff.decide.calls.resets import CALM
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.errors import IllegalTransition
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.hedging import HedgingPolicy
from tests.decide.calls.driving import BEGAN, METHOD, TARGET, Around, play

DELAY = 0.05
STOP = ServerHint(None, WaitSource.PUSHBACK)
LATER = ServerHint(0.2, WaitSource.PUSHBACK)
RETRY_INFO = ServerHint(0.2, WaitSource.RETRY_INFO)


class Hedged:
    """One hedged call: steps its machine, and tracks the copies and the timer as a shell would."""

    def __init__(self, *, timeout=None, tokens=None, wait_for_ready=False, **policy):
        hedging = HedgingPolicy(**{"hedging_delay": DELAY, "max_attempts": 3} | policy)
        self.machine = HedgingMachine(TARGET, METHOD, wait_for_ready=wait_for_ready, hedging=hedging)
        self.around = Around(tokens=tokens)
        self.now, self.timer, self.starting = BEGAN, None, True
        self.chosen, self.finish, self.events, self.left_until = [], None, [], None
        self.state, first = self.machine.begin(self.now, timeout)
        self.begun = [first]

    def feed(self, given, after=0.0):
        """Advance the clock, give the machine an input, and carry out its effects."""
        self.now += after
        if isinstance(given, CopyBegun | CopyHeld | m.NotConnected | m.AttemptBroken):
            self.starting = False
        if isinstance(given, m.CallTimerFired):
            self.timer = None
        self.state, effects = self.machine.step(self.state, given, self.now, self.around)
        for effect in effects:
            assert self.finish is None or isinstance(effect, m.Emit | EmitAtEnd), f"{effect} behind the end"
            match effect:
                case m.Begin():
                    assert not self.starting, "two copies begin at once"
                    self.starting = True
                    self.begun.append(effect)
                case m.ArmTimer(at):
                    self.timer = at
                case m.CancelTimer():
                    self.timer = None
                case Choose(copy, at, end):
                    self.left_until, self.finish, self.timer = at, end, None  # the shells cancel it
                    self.chosen.append(copy)
                case m.Emit(event):
                    self.events.append(event)
                case m.Finish():
                    self.finish, self.timer = effect, None  # the shells cancel it
        assert (self.state.phase is CallPhase.DONE) == (self.finish is not None)
        return effects

    def connect(self):
        """Put the copy that was about to begin on a connection."""
        if self.state.copies.starting:
            return self.feed(CopyBegun())
        self.starting, self.timer = False, self.begun[0].wake
        return []

    def wake(self):
        """Fire the timer."""
        self.now = max(self.now, self.timer)
        return self.feed(m.CallTimerFired())

    def calm(self):
        """Let the server ask for calm."""
        self.around.calm.asked(self.now)

    def hedge(self):
        """Let the next copy begin after the delay."""
        self.wake()
        self.connect()

    @property
    def wait(self):
        """How long it takes until the timer fires."""
        return None if self.timer is None else self.timer - self.now

    @property
    def copies(self):
        """How many copies began, some of them perhaps without a connection."""
        return len(self.begun)

    @property
    def headers(self):
        """The metadata of each copy."""
        return [effect.metadata for effect in self.begun]

    @property
    def live(self):
        """The copies on connections."""
        first = self.starting and not self.state.copies.starting  # which counts as such before it is on one
        return frozenset() if first else self.state.copies.live

    @property
    def phase(self):
        """The call's phase."""
        return self.state.phase

    @property
    def told(self):
        """The events: their types, and the copies that they are about."""
        return [(type(event), event.attempt) for event in self.events]


def hedged(copies=1, **how):
    """Return a call with this many copies on connections."""
    steps = ["connect", *["hedge"] * (copies - 1)] if copies else []
    return play(Hedged(**how), *steps)


def failed(copy, code="UNAVAILABLE", **how):
    return CopyFailed(copy, m.FailedAttempt(code, **how))


def spent_tokens():
    tokens = RetryTokens(RetryBudget(max_tokens=2, token_ratio=0.5))
    tokens.failed()
    assert tokens.spent
    return tokens


def test_a_copy_follows_each_delay_up_to_the_maximum():
    """HG-1: a copy after each delay without an answer, at most `max_attempts`; each says how many preceded it."""
    run = Hedged()
    for sent in (1, 2, 3):
        assert len(run.begun) == sent
        run.connect()
        if sent < 3:
            assert run.timer == pytest.approx(BEGAN + sent * DELAY)
            run.wake()
    assert run.timer is None
    assert run.headers == [
        (),
        (("grpc-previous-rpc-attempts", "1"),),
        (("grpc-previous-rpc-attempts", "2"),),
    ]


@pytest.mark.parametrize("copy", [1, 2, 3])
def test_the_first_answer_wins(copy):
    """HG-2, HG-10: the call ends as the copy that answers first; the timer stops."""
    run = hedged(3)
    run.around.observed = True
    run.feed(CopyAnswered(copy))
    assert (run.chosen, run.finish, run.timer) == ([copy], m.AS_ATTEMPT, None)
    assert run.told == [(CallHedged, 2), (CallHedged, 3), (CallSucceeded, copy)]


def test_an_answer_that_goes_on():
    """HG-10: a call whose copy has only begun to answer has not succeeded yet; if it does, it is when that ends."""
    run = hedged(2)
    run.now = BEGAN + 2.0
    *_, success = run.feed(CopyAnswered(2, over=False))
    assert (run.chosen, run.told) == ([2], [(CallHedged, 2)])
    event = success.at(BEGAN + 5.0)
    assert (event.attempt, event.at, event.took) == (2, BEGAN + 5.0, 5.0)


def story(first, *steps, policy=None, **seen):
    """Return how many copies there are at first, what then happens, under which policy, and what is seen at last."""
    return first, steps, policy or {}, seen


STORIES = {
    "HG-1: a timer that fires early sends nothing": story(1, m.CallTimerFired(), copies=1, timer=BEGAN + DELAY),
    # Answers.
    "HG-2: without listeners, the first copy's answer is no event": story(2, CopyAnswered(1), told=[(CallHedged, 2)]),
    "HG-2: a later one's is": story(2, CopyAnswered(2), told=[(CallHedged, 2), (CallSucceeded, 2)]),
    "HG-2: an answer wins while another copy begins": story(1, "wake", CopyAnswered(1), chosen=[1]),
    # Failures.
    "HG-3: a non-fatal failure sends the next copy at once": story(1, failed(1), copies=2, timer=None, finish=None),
    "HG-3: whose delay counts from its beginning": story(1, failed(1), "connect", wait=pytest.approx(DELAY)),
    "HG-3: a failure while a copy begins sends no other": story(1, "wake", failed(1), copies=2, finish=None),
    "HG-3: a fatal failure ends the call": story(2, failed(1, "INTERNAL"), chosen=[1], finish=m.AS_ATTEMPT),
    "HG-3: and so does a message over the size limit": story(2, failed(1, oversized=True), chosen=[1]),
    "HG-6: a copy that is cut at the deadline ends the call there": story(
        2,
        0.5,
        failed(1, "INTERNAL", cut=True),
        policy={"timeout": 0.5},
        chosen=[1],
        finish=m.Finish(m.Ending.TIMED_OUT),
    ),
    "HG-6: also one with a non-fatal status": story(
        2, 0.5, failed(1), policy={"timeout": 0.5}, chosen=[1], finish=m.Finish(m.Ending.TIMED_OUT)
    ),
    "HG-6: but not before": story(2, failed(1, "INTERNAL", cut=True), policy={"timeout": 0.5}, finish=m.AS_ATTEMPT),
    "HG-3: every failure is fatal without such codes": story(1, failed(1), policy={"non_fatal_codes": []}, chosen=[1]),
    "HG-3: but not a GOAWAY": story(1, failed(1, refused=True), policy={"non_fatal_codes": []}, copies=2, chosen=[]),
    "HG-3: the call goes on with one copy": story(3, failed(3), failed(1), finish=None),
    "HG-3: and ends as the last of them": story(3, failed(3), failed(1), failed(2), chosen=[2], copies=3),
    # Pushback.
    "HG-4: a pushback without another copy": story(
        1, failed(1, hint=LATER), phase=CallPhase.SLEEPING, wait=pytest.approx(0.2)
    ),
    "HG-4: after it, the next copy": story(1, failed(1, hint=LATER), "wake", phase=CallPhase.RUNNING, copies=2),
    "HG-4: with another copy, it moves the timer": story(
        2, failed(2, hint=LATER), phase=CallPhase.RUNNING, wait=pytest.approx(0.2)
    ),
    "HG-4: and the other may still answer": story(2, failed(2, hint=LATER), CopyAnswered(1), chosen=[1]),
    "HG-4: a negative one stops hedging": story(2, failed(1, hint=STOP), timer=None, finish=None, copies=2),
    "HG-4: until the last one in flight": story(2, failed(1, hint=STOP), failed(2), chosen=[2], copies=2),
    "HG-4: only pushback delays copies": story(1, failed(1, hint=RETRY_INFO), copies=2),
    "HG-4: one beyond the deadline ends the call": story(1, failed(1, hint=LATER), policy={"timeout": 0.1}, chosen=[1]),
    # Cancellation and deadlines.
    "HG-6: the caller's cancellation cancels all copies": story(
        2, m.CancelRequested(), chosen=[None], finish=m.Finish(m.Ending.CANCELLED), timer=None
    ),
    "HG-6: also between two copies": story(
        1, failed(1, hint=LATER), m.CancelRequested(), finish=m.Finish(m.Ending.CANCELLED)
    ),
    "HG-6: as the closing of the channel does": story(
        1, failed(1, hint=LATER), m.ChannelClosing(), finish=m.Finish(m.Ending.CANCELLED)
    ),
    "HG-6: no copy follows after the deadline": story(1, "wake", policy={"timeout": 0.04}, copies=1),
    # Sparing servers.
    "HG-11: the others are left as long again": story(2, 0.2, CopyAnswered(2), left_until=pytest.approx(BEGAN + 0.5)),
    "HG-11: also after a fatal failure": story(2, 0.2, failed(1, "INTERNAL"), left_until=pytest.approx(BEGAN + 0.5)),
    "HG-11: but not if the caller cancels": story(2, m.CancelRequested(), left_until=None),
    "HG-11: a server that wants calm gets no copy": story(1, "calm", "wake", copies=1, told=[(CallNotHedged, 2)]),
    "HG-11: until it has had some": story(1, "calm", "wake", "hedge", copies=2, now=pytest.approx(BEGAN + CALM)),
    "HG-11: except in place of the last": story(1, "calm", failed(1), copies=2, told=[]),
    "HG-11: not beside another": story(2, "calm", failed(1), copies=2, live={2}, wait=pytest.approx(CALM)),
    "HG-11: also after a pushback": story(1, failed(1, hint=LATER), "calm", "wake", copies=2),
    "HG-11: nor where no more cancellations are borne": story(
        1, "wake", CopyHeld(0.25), told=[(CallNotHedged, 2)], live={1}, wait=pytest.approx(0.25)
    ),
    "HG-11: which does not count as a copy": story(1, "wake", CopyHeld(0.25), "hedge", "hedge", live={1, 2, 3}),
    "HG-11: and is made up for when the last one fails": story(
        1, "wake", CopyHeld(0.25), failed(1), copies=3, timer=None
    ),
    "HG-11: or has failed meanwhile": story(1, "wake", failed(1), CopyHeld(0.25), copies=3, told=[], finish=None),
    # Copies without a connection.
    "HG-7: the first copy waits for a connection": story(0, m.NotConnected(), phase=CallPhase.WAITING),
    "HG-7: and the delay counts from its beginning": story(
        0, m.NotConnected(), 5.0, m.ConnectionReady(), "connect", copies=2, wait=pytest.approx(DELAY)
    ),
    "HG-7: the next one says that one preceded it": story(
        0,
        m.NotConnected(),
        m.ConnectionReady(),
        "connect",
        "wake",
        headers=[(), (), (("grpc-previous-rpc-attempts", "1"),)],
    ),
    "HG-7: or fails with the channel": story(0, m.NotConnected(), m.NoConnection(), finish=m.AS_ATTEMPT, chosen=[]),
    "HG-7: a later copy is tried again": story(
        1, "wake", m.NotConnected(), phase=CallPhase.RUNNING, wait=pytest.approx(DELAY)
    ),
    "HG-7: and not counted": story(1, "wake", m.NotConnected(), "hedge", "hedge", live={1, 2, 3}, timer=None),
    "HG-7: a later copy that cannot be made is dropped": story(1, "wake", m.AttemptBroken(), finish=None),
    "HG-7: and none follows": story(1, "wake", m.AttemptBroken(), failed(1), chosen=[1], copies=2),
    "HG-7: a first one that cannot be made ends the call": story(
        0, m.AttemptBroken(), finish=m.Finish(m.Ending.BROKEN)
    ),
}


@pytest.mark.parametrize(("first", "steps", "policy", "seen"), STORIES.values(), ids=STORIES)
def test_story(first, steps, policy, seen):
    """HG-1 to HG-7: these inputs have these effects; the name of each case gives its rule."""
    run = play(hedged(first, **policy), *steps)

    assert {name: getattr(run, name) for name in seen} == seen


def test_a_sleeping_call_ends_when_its_copy_may_not_follow():
    """HG-5: if the budget is spent when a pushback is over, the call ends as the copy that failed last."""
    tokens = RetryTokens(RetryBudget(max_tokens=4, token_ratio=0.5))
    run = play(hedged(tokens=tokens), failed(1, hint=LATER))
    tokens.failed()
    run.wake()
    assert (run.chosen, run.copies) == ([1], 1)


def test_the_first_call_that_is_not_hedged_reports_it():
    """HG-11: the event says why, and when the copy is due again; one call of all says that this is new."""
    first = play(hedged(2), "calm", "wake")
    second = hedged()
    second.around = first.around
    play(second, "wake", 0.0, CopyAnswered(1))
    (told,) = [event for event in first.events if isinstance(event, CallNotHedged)]
    assert (told.reason, told.attempt, told.delay, told.first) == (NotHedged.CALM, 3, pytest.approx(CALM, abs=1), True)
    assert [event.first for event in second.events] == [False]


@pytest.mark.parametrize("closing", [True, False])
def test_a_copy_that_is_due_while_the_budget_is_spent_is_dropped(closing):
    """HG-5: while the budget is spent, or the channel closes, a due copy is dropped, and none follows later."""
    run = hedged(tokens=None if closing else spent_tokens())
    run.around.closing = closing
    run.wake()
    assert (run.copies, run.timer, run.finish) == (1, None, None)
    assert play(run, failed(1)).chosen == [1]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (failed(1), 8),
        (failed(1, "INTERNAL"), 9),
        (failed(1, "INTERNAL", hint=STOP), 8),
        (failed(1, "INTERNAL", refused=True), 9),
        (CopyAnswered(1), 9.5),
    ],
)
def test_what_costs_a_token(given, left):
    """HG-5: a non-fatal failure costs a token, and so does one after which the server asks for no more.

    An answer adds to the budget as a success of any call does, and what a GOAWAY rejected changes nothing.
    """
    tokens = RetryTokens(RetryBudget(max_tokens=10, token_ratio=0.5))
    tokens.failed()
    hedged(tokens=tokens).feed(given)
    assert tokens.left == left


def test_every_copy_has_the_time_that_is_left():
    """HG-6: the deadline is that of the whole call, and the policy's counts if it is earlier."""
    run = play(hedged(timeout=1.0, deadline=0.3), "wake")
    assert [effect.seconds for effect in run.begun] == pytest.approx([0.3, 0.25])


@pytest.mark.parametrize("given", [m.OkStatus(), m.FailedAttempt("INTERNAL"), m.Begun(), m.HookDone()])
def test_an_input_that_is_not_in_the_table_is_illegal(given):
    """HG-1: the table defines all transitions."""
    with pytest.raises(IllegalTransition):
        hedged().feed(given)


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 5), st.booleans())
def test_any_life_ends_as_one_copy(rng: random.Random, most, limited):
    """HG-2: in any order of events, at most `max_attempts` copies are on connections, and exactly one is chosen."""
    run = Hedged(max_attempts=most, timeout=0.3 if limited else None, wait_for_ready=True)
    sent = 0
    for _ in range(200):
        live = sorted(run.live)
        choices = []
        if run.starting:
            choices += ["connect", "connect", m.NotConnected(), *[CopyHeld(0.1)] * bool(live)]
        if run.state.phase is CallPhase.WAITING:
            choices = [m.ConnectionReady()]
        if run.state.phase is CallPhase.RUNNING and live:
            failure = m.FailedAttempt("UNAVAILABLE", hint=rng.choice([None, LATER, STOP]))
            choices += [CopyFailed(rng.choice(live), failure), CopyFailed(live[0], failure)]
        if run.timer is not None and run.state.phase is not CallPhase.WAITING:
            choices += [m.CallTimerFired()] * 2
        if rng.random() < 0.05 and live and run.state.phase is CallPhase.RUNNING:
            choices = [CopyAnswered(rng.choice(live))]
        assert choices, "nothing can happen any more, and the call has not ended"
        given_input = rng.choice(choices)
        sent += given_input == "connect"
        if isinstance(given_input, m.CallTimerFired):
            run.now = max(run.now, run.timer)
        play(run, given_input)
        if run.finish is not None:
            break
    assert sent <= most
    if run.finish is not None:
        assert len(run.chosen) == 1


def test_a_copy_that_is_turned_away():
    """RT-15: a copy that gets an HTTP status seeks another connection, unless no further copy may follow."""
    run = hedged()
    assert run.feed(failed(1, turned_away=503))[0] == m.SeekAnother(503)
    run.connect()
    assert run.feed(failed(2, turned_away=502, hint=STOP))[0]._replace(at=None) == Choose(2)
    assert m.SeekAnother(503) not in hedged(non_fatal_codes=frozenset()).feed(failed(1, turned_away=503))
