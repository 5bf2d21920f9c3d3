"""The hedging machine, rule by rule, without grpc or an event loop; the clock is a plain number."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpc_backoff.calls import machine as m
from grpc_backoff.calls.budget import RetryTokens
from grpc_backoff.calls.events import CallHedged, CallSucceeded, WaitSource
from grpc_backoff.calls.hedging import Choose, CopyAnswered, CopyBegun, CopyFailed, HedgingMachine
from grpc_backoff.calls.machine import CallPhase
from grpc_backoff.calls.server_hint import ServerHint
from grpc_backoff.errors import IllegalTransition
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.hedging import HedgingPolicy
from grpc_backoff.stepping import ArmTimer
from tests.calls.driving import BEGAN, METHOD, TARGET, Around

DELAY = 0.05
STOP = ServerHint(None, WaitSource.PUSHBACK)
LATER = ServerHint(0.2, WaitSource.PUSHBACK)
RETRY_INFO = ServerHint(0.2, WaitSource.RETRY_INFO)


class Hedged:
    """One hedged call: steps its machine, and tracks the copies and the timer as a shell would."""

    def __init__(self, *, timeout=None, tokens=None, wait_for_ready=False, **policy):
        hedging = HedgingPolicy(**{"hedging_delay": DELAY, "max_attempts": 3} | policy)
        self.machine = HedgingMachine(m.CallMachine(TARGET, METHOD, wait_for_ready=wait_for_ready), hedging)
        self.around = Around(tokens=tokens)
        self.now, self.timer, self.starting = BEGAN, None, True
        self.chosen, self.finish, self.events = [], None, []
        self.state, first = self.machine.begin(self.now, timeout)
        self.begun = [first]

    def feed(self, given, after=0.0):
        """Advance the clock, give the machine an input, and carry out its effects."""
        self.now += after
        if isinstance(given, CopyBegun | m.NotConnected | m.AttemptBroken):
            self.starting = False
        if isinstance(given, m.CallTimerFired):
            self.timer = None
        self.state, effects = self.machine.step(self.state, given, self.now, self.around)
        for effect in effects:
            assert self.finish is None or isinstance(effect, m.Emit), f"{effect} behind the end"
            match effect:
                case m.Begin():
                    assert not self.starting, "two copies begin at once"
                    self.starting = True
                    self.begun.append(effect)
                case m.ArmTimer(at):
                    self.timer = at
                case m.CancelTimer():
                    self.timer = None
                case Choose(copy):
                    self.chosen.append(copy)
                case m.Emit(event):
                    self.events.append(event)
                case m.Finish():
                    self.finish, self.timer = effect, None  # the shells cancel it
        assert (self.state.phase is CallPhase.DONE) == (self.finish is not None)
        return effects

    def connect(self):
        """Put the copy that was about to begin on a connection."""
        return self.feed(CopyBegun())

    def wake(self):
        """Fire the timer."""
        self.now = max(self.now, self.timer)
        return self.feed(m.CallTimerFired())

    def hedge(self):
        """Let the next copy begin after the delay."""
        self.wake()
        self.connect()

    def fail(self, copy, code="UNAVAILABLE", **how):
        """Fail this copy with this code."""
        return self.feed(CopyFailed(copy, m.NonOkStatus(code, **how)))


def hedged(copies=1, **how):
    """Return a call with this many copies on connections."""
    run = Hedged(**how)
    run.connect()
    for _ in range(copies - 1):
        run.hedge()
    return run


def events_of(run):
    return [(type(event), event.attempt) for event in run.events]


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
    assert [effect.metadata for effect in run.begun] == [
        (),
        (("grpc-previous-rpc-attempts", "1"),),
        (("grpc-previous-rpc-attempts", "2"),),
    ]


@pytest.mark.parametrize("copy", [1, 2, 3])
def test_the_first_answer_wins(copy):
    """HG-2, HG-10: the call ends as the copy that answers first; the timer stops and the others are cancelled."""
    run = hedged(3)
    run.feed(CopyAnswered(copy, observed=True))
    assert (run.chosen, run.finish, run.timer) == ([copy], m.AS_ATTEMPT, None)
    assert events_of(run) == [(CallHedged, 2), (CallHedged, 3), (CallSucceeded, copy)]


@pytest.mark.parametrize("copy", [1, 2])
def test_an_answer_that_nobody_observes(copy):
    """HG-2: without listeners, only the answer of a later copy is worth an event, as for retries."""
    run = hedged(2)
    run.feed(CopyAnswered(copy))
    assert events_of(run) == [(CallHedged, 2), (CallSucceeded, 2)][:copy]


def test_an_answer_wins_while_another_copy_begins():
    """HG-2: an answer ends the call even if the shell has not yet said what became of the latest copy."""
    run = hedged()
    run.wake()
    run.feed(CopyAnswered(1))
    assert run.chosen == [1]


def test_a_non_fatal_failure_sends_the_next_copy_at_once():
    """HG-3: a code in `non_fatal_codes` sends the next copy without the delay."""
    run = hedged()
    run.fail(1)
    assert (len(run.begun), run.timer, run.finish) == (2, None, None)
    run.connect()
    assert run.timer == pytest.approx(BEGAN + DELAY)


def test_a_failure_while_a_copy_begins_sends_no_other():
    """HG-3: the copy that is about to begin is the one that a failure sends."""
    run = hedged()
    run.wake()
    run.fail(1)
    assert (len(run.begun), run.finish) == (2, None)


@pytest.mark.parametrize("failure", [{"code": "INTERNAL"}, {"code": "UNAVAILABLE", "oversized": True}])
def test_a_fatal_failure_ends_the_call(failure):
    """HG-3: any other code ends the call as that copy, and so does a message over the size limit."""
    run = hedged(2)
    run.fail(1, **failure)
    assert (run.chosen, run.finish) == ([1], m.AS_ATTEMPT)


def test_a_copy_that_a_goaway_rejected():
    """HG-3, HG-5: it was not processed, so the next copy follows at once, whatever the codes, and no token is spent."""
    tokens = RetryTokens(RetryBudget(max_tokens=4, token_ratio=0.5))
    run = hedged(non_fatal_codes=[], tokens=tokens)
    run.fail(1, refused=True)
    assert (len(run.begun), run.chosen, tokens.left) == (2, [], 4)


def test_without_non_fatal_codes_every_failure_is_fatal():
    """HG-3: `non_fatal_codes` may be empty."""
    run = hedged(non_fatal_codes=[])
    run.fail(1)
    assert run.chosen == [1]


def test_the_last_failure_ends_the_call():
    """HG-3: once every copy has failed and none may follow, the call ends as the last of them."""
    run = hedged(3)
    for copy in (3, 1):
        run.fail(copy)
        assert run.finish is None
    run.fail(2)
    assert (run.chosen, len(run.begun)) == ([2], 3)


def test_pushback_delays_the_next_copy():
    """HG-4: a pushback replaces the delay until the next copy; without a copy in flight, the call sleeps."""
    run = hedged()
    run.fail(1, hint=LATER)
    assert (run.state.phase, run.timer) == (CallPhase.SLEEPING, pytest.approx(BEGAN + 0.2))
    run.wake()
    assert (run.state.phase, len(run.begun)) == (CallPhase.RUNNING, 2)


def test_pushback_with_a_copy_in_flight_moves_the_timer():
    """HG-4: with another copy in flight, a pushback only moves the timer, and that copy may still answer."""
    run = hedged(2)
    run.fail(2, hint=LATER)
    assert (run.state.phase, run.timer) == (CallPhase.RUNNING, pytest.approx(run.now + 0.2))
    run.feed(CopyAnswered(1))
    assert run.chosen == [1]


def test_a_sleeping_call_ends_when_its_copy_may_not_follow():
    """HG-5: if the budget is spent when a pushback is over, the call ends as the copy that failed last."""
    tokens = RetryTokens(RetryBudget(max_tokens=4, token_ratio=0.5))
    run = hedged(tokens=tokens)
    run.fail(1, hint=LATER)
    tokens.failed()
    run.wake()
    assert (run.chosen, len(run.begun)) == ([1], 1)


def test_negative_pushback_stops_hedging():
    """HG-4: after a pushback that asks for no more, no copy follows; those in flight may still answer."""
    run = hedged(2)
    run.fail(1, hint=STOP)
    assert (run.timer, run.finish, len(run.begun)) == (None, None, 2)
    run.fail(2)
    assert (run.chosen, len(run.begun)) == ([2], 2)


def test_only_pushback_delays_copies():
    """HG-4: other hints of a server are no part of hedging."""
    run = hedged()
    run.fail(1, hint=RETRY_INFO)
    assert len(run.begun) == 2


def test_pushback_beyond_the_deadline_ends_the_call():
    """HG-4: a pushback that leaves no time for another copy would only delay the failure."""
    run = hedged(timeout=0.1)
    run.fail(1, hint=LATER)
    assert run.chosen == [1]


@pytest.mark.parametrize("closing", [True, False])
def test_a_copy_that_is_due_while_the_budget_is_spent_is_dropped(closing):
    """HG-5: while the budget is spent, or the channel closes, a due copy is dropped, and none follows later."""
    run = hedged(tokens=None if closing else spent_tokens())
    run.around.closing = closing
    run.wake()
    assert (len(run.begun), run.timer, run.finish) == (1, None, None)
    run.fail(1)
    assert run.chosen == [1]


@pytest.mark.parametrize(
    ("code", "hint", "left"),
    [("UNAVAILABLE", None, 9), ("INTERNAL", None, 10), ("INTERNAL", STOP, 9)],
)
def test_failures_cost_tokens(code, hint, left):
    """HG-5: a non-fatal failure costs a token, and so does one after which the server asks for no more."""
    tokens = RetryTokens(RetryBudget(max_tokens=10, token_ratio=0.5))
    hedged(tokens=tokens).fail(1, code, hint=hint)
    assert tokens.left == left


def test_an_answer_adds_tokens():
    """HG-5: an answer adds to the budget as a success of any call does."""
    tokens = RetryTokens(RetryBudget(max_tokens=10, token_ratio=0.5))
    tokens.failed()
    hedged(tokens=tokens).feed(CopyAnswered(1))
    assert tokens.left == 9.5


def test_cancellation_cancels_every_copy():
    """HG-6: the caller's cancellation cancels all copies."""
    run = hedged(2)
    run.feed(m.CancelRequested())
    assert (run.chosen, run.finish, run.timer) == ([None], m.Finish(m.Ending.CANCELLED), None)


@pytest.mark.parametrize("given", [m.CancelRequested(), m.ChannelClosing()])
def test_a_sleeping_call_can_be_cancelled(given):
    """HG-6: a call between two copies is cancelled by its caller, and by the closing of its channel."""
    run = hedged()
    run.fail(1, hint=LATER)
    run.feed(given)
    assert run.finish == m.Finish(m.Ending.CANCELLED)


def test_every_copy_has_the_time_that_is_left():
    """HG-6: the deadline is that of the whole call, and the policy's counts if it is earlier."""
    run = hedged(timeout=1.0, deadline=0.3)
    run.wake()
    assert [effect.seconds for effect in run.begun] == pytest.approx([0.3, 0.25])


def test_no_copy_follows_after_the_deadline():
    """HG-6: a copy that is due when the deadline has passed is dropped."""
    run = hedged(timeout=0.04)
    run.wake()
    assert len(run.begun) == 1


def test_a_timer_that_fires_early_is_armed_again():
    """HG-1: a timer that fires before the delay sends nothing."""
    run = hedged()
    assert run.feed(m.CallTimerFired(), 0.01) == [ArmTimer(BEGAN + DELAY)]


def test_without_a_connection_the_call_waits():
    """HG-7: the first copy waits for a connection as any call does, and the delay counts from its beginning."""
    run = Hedged()
    run.feed(m.NotConnected())
    assert run.state.phase is CallPhase.WAITING
    run.feed(m.ConnectionReady(), 5.0)
    assert len(run.begun) == 2
    run.connect()
    assert run.timer == pytest.approx(BEGAN + 5.0 + DELAY)
    run.wake()
    assert run.begun[-1].metadata == (("grpc-previous-rpc-attempts", "1"),)


def test_a_waiting_call_fails_with_its_channel():
    """HG-7: without wait-for-ready, the call fails once a dial has failed."""
    run = Hedged()
    run.feed(m.NotConnected())
    run.feed(m.NoConnection())
    assert (run.finish, run.chosen) == (m.AS_ATTEMPT, [])


def test_a_copy_without_a_connection_is_skipped():
    """HG-7: with a copy in flight, another one that finds no connection is tried again and not counted."""
    run = hedged()
    run.wake()
    run.feed(m.NotConnected())
    assert (run.state.phase, run.timer) == (CallPhase.RUNNING, pytest.approx(run.now + DELAY))
    run.hedge()
    run.hedge()
    assert run.state.copies.sent == 3
    assert run.state.copies.live == {1, 2, 3}


def test_a_later_copy_that_cannot_be_made_is_dropped():
    """HG-7: a later copy that could not be made does not end the call."""
    run = hedged()
    run.wake()
    run.feed(m.AttemptBroken())
    assert run.finish is None
    run.fail(1)
    assert (run.chosen, len(run.begun)) == ([1], 2)


def test_a_first_copy_that_cannot_be_made_ends_the_call():
    """HG-7: a serializer's error in the first copy is the call's error."""
    run = Hedged()
    run.feed(m.AttemptBroken())
    assert run.finish == m.Finish(m.Ending.BROKEN)


@pytest.mark.parametrize("given", [m.OkStatus(), m.NonOkStatus("INTERNAL"), m.Begun(), m.HookDone()])
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
        live = sorted(run.state.copies.live)
        choices = []
        if run.starting:
            choices += [CopyBegun(), CopyBegun(), m.NotConnected()]
        if run.state.phase is CallPhase.WAITING:
            choices = [m.ConnectionReady()]
        if run.state.phase is CallPhase.RUNNING and live:
            failure = m.NonOkStatus("UNAVAILABLE", hint=rng.choice([None, LATER, STOP]))
            choices += [CopyFailed(rng.choice(live), failure), CopyFailed(live[0], failure)]
        if run.timer is not None and run.state.phase is not CallPhase.WAITING:
            choices += [m.CallTimerFired()] * 2
        if rng.random() < 0.05 and live and run.state.phase is CallPhase.RUNNING:
            choices = [CopyAnswered(rng.choice(live))]
        assert choices, "nothing can happen any more, and the call has not ended"
        given_input = rng.choice(choices)
        sent += isinstance(given_input, CopyBegun)
        if isinstance(given_input, m.CallTimerFired):
            run.now = max(run.now, run.timer)
        run.feed(given_input)
        if run.finish is not None:
            break
    assert sent <= most
    if run.finish is not None:
        assert len(run.chosen) == 1
