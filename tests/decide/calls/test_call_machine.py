"""The call machine, rule by rule, without grpc or an event loop; the clock is a plain number."""

from __future__ import annotations

import math
from functools import partial

import pytest

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.budget import RetryTokens
from grpc_backoff.decide.calls.call_machine import CallPhase, Ending
from grpc_backoff.decide.calls.decision import GiveUp
from grpc_backoff.decide.calls.events import (
    CallNotConnected,
    CallRetried,
    Reason,
    WaitSource,
)
from grpc_backoff.decide.calls.retry_machine import TRANSITIONS
from grpc_backoff.errors import IllegalTransition
from grpc_backoff.policy.budget import RetryBudget
from tests.decide.calls.driving import (
    AT,
    BEGAN,
    OVER,
    OWN_TIME,
    POLICY,
    TOKEN,
    closing,
    done,
    exhausted,
    play,
    policy_of,
    refreshing,
    refreshing_again,
    running,
    settling,
    sleeping,
    waiting,
)

INPUTS = {
    m.NotConnected: m.NotConnected(),
    m.Begun: m.Begun(),
    m.ConnectionReady: m.ConnectionReady(),
    m.Missed: m.Missed(),
    m.NoConnection: m.NoConnection(),
    m.OkStatus: m.OkStatus(),
    m.FailedAttempt: m.FailedAttempt("UNAVAILABLE"),
    m.AttemptBroken: m.AttemptBroken(),
    m.Committed: m.Committed(),
    m.CallTimerFired: m.CallTimerFired(),
    m.HookDone: m.HookDone(),
    m.CancelRequested: m.CancelRequested(),
    m.ChannelClosing: m.ChannelClosing(),
}


REACH = {
    CallPhase.RUNNING: running,
    CallPhase.WAITING: waiting,
    CallPhase.DECIDING: settling,
    CallPhase.SLEEPING: sleeping,
    CallPhase.DONE: done,
}
ALIVE = [running, waiting, sleeping, refreshing, settling, exhausted]


# The table.


@pytest.mark.parametrize("phase", CallPhase)
@pytest.mark.parametrize("kind", INPUTS)
def test_every_pair_is_in_the_table_or_a_typed_error(phase, kind):
    """CH-7: every pair of phase and input is in the table, or raises an `IllegalTransition` that names both."""
    run = REACH[phase]()
    if (phase, kind) in TRANSITIONS:
        run.feed(INPUTS[kind])
        assert run.phase in CallPhase
    else:
        before = run.state
        with pytest.raises(IllegalTransition, match=f"{kind.__name__} in phase {phase.name}"):
            run.feed(INPUTS[kind])
        assert run.state is before


RETRIED = CallRetried(**AT, at=BEGAN, attempt=1, code="UNAVAILABLE", delay=0.5, source=WaitSource.SCHEDULE)
RUNNING, WAITING, DECIDING, SLEEPING, DONE = CallPhase
STEPS = {
    # The step for each pair in the table, for a call with a policy and no deadline. The tests of RT-7 add deadlines.
    (RUNNING, m.NotConnected): (WAITING, [m.Enqueue()]),
    (RUNNING, m.Begun): (DONE, [m.Finish(Ending.ATTEMPT)]),
    (RUNNING, m.NoConnection): (RUNNING, []),
    (RUNNING, m.OkStatus): (DONE, [m.Finish(Ending.ATTEMPT)]),
    (RUNNING, m.FailedAttempt): (SLEEPING, [m.Emit(RETRIED), m.ArmTimer(BEGAN + 0.5)]),
    (RUNNING, m.AttemptBroken): (DONE, [m.CancelTimer(), m.Finish(Ending.BROKEN)]),
    (RUNNING, m.Committed): (RUNNING, []),
    (RUNNING, m.CallTimerFired): (RUNNING, []),
    (RUNNING, m.CancelRequested): (DONE, [m.AbandonAttempt(), m.Finish(Ending.ATTEMPT)]),
    (RUNNING, m.ChannelClosing): (RUNNING, []),
    (WAITING, m.ConnectionReady): (RUNNING, [m.CancelTimer(), m.Begin(None, ())]),
    (WAITING, m.Missed): (WAITING, []),
    (WAITING, m.NoConnection): (
        SLEEPING,
        [m.CancelTimer(), m.FailAttempt("UNAVAILABLE"), m.Emit(RETRIED), m.ArmTimer(BEGAN + 0.5)],
    ),
    (WAITING, m.Committed): (WAITING, []),
    (WAITING, m.CallTimerFired): (
        DONE,
        [m.CancelTimer(), m.FailAttempt("DEADLINE_EXCEEDED"), m.CancelTimer(), m.Finish(Ending.ATTEMPT)],
    ),
    (WAITING, m.CancelRequested): (DONE, [m.CancelTimer(), m.Finish(Ending.CANCELLED)]),
    (WAITING, m.ChannelClosing): (WAITING, []),
    (DECIDING, m.HookDone): (DONE, [m.CancelTimer(), m.Finish(Ending.ATTEMPT)]),
    (DECIDING, m.NoConnection): (DECIDING, []),
    (DECIDING, m.Committed): (DECIDING, []),
    (DECIDING, m.CallTimerFired): (DONE, [m.CancelTimer(), m.Finish(Ending.ATTEMPT)]),
    (DECIDING, m.CancelRequested): (DONE, [m.CancelTimer(), m.Finish(Ending.CANCELLED)]),
    (DECIDING, m.ChannelClosing): (DONE, [m.CancelTimer(), m.Finish(Ending.CANCELLED)]),
    (SLEEPING, m.NoConnection): (SLEEPING, []),
    (SLEEPING, m.Committed): (DONE, [m.CancelTimer(), m.Finish(Ending.ATTEMPT)]),
    (SLEEPING, m.CallTimerFired): (SLEEPING, [m.ArmTimer(BEGAN + 0.5)]),  # too early
    (SLEEPING, m.CancelRequested): (DONE, [m.CancelTimer(), m.Finish(Ending.CANCELLED)]),
    (SLEEPING, m.ChannelClosing): (DONE, [m.CancelTimer(), m.Finish(Ending.CANCELLED)]),
}


def name_of(pair):
    return f"{pair[0].name} {pair[1].__name__}"


@pytest.mark.parametrize("pair", sorted(TRANSITIONS, key=name_of), ids=name_of)
def test_step(pair):
    """CH-7: each pair in the table leads to the expected phase, with the expected effects in order."""
    phase, effects = STEPS[pair]
    run = REACH[pair[0]]()
    assert run.feed(INPUTS[pair[1]]) == effects
    assert run.phase is phase


# Several steps.


def story(run, *steps, **seen):
    """Return how a call begins, what happens then, and what is seen of it at last."""
    return run, steps, seen


TOO_LATE = [m.CancelTimer(), m.FailAttempt("DEADLINE_EXCEEDED"), *OVER]
UNAVAILABLE, ABORTED = m.FailedAttempt("UNAVAILABLE"), m.FailedAttempt("ABORTED")
UNSENT = m.FailedAttempt("UNAVAILABLE", unsent=True)
EXPIRED = m.FailedAttempt("UNAUTHENTICATED", can_refresh=True)
UNHURRIED = {"wait_for_ready": True, "timeout": 60.0}
STORIES = {
    # Waiting for a connection.
    "CH-3: one deadline covers the wait and the call": story(
        partial(waiting, None, timeout=5.0), 3.0, m.ConnectionReady(), effects=[m.CancelTimer(), m.Begin(2.0, ())]
    ),
    "CH-3: a connection at the deadline": story(
        partial(waiting, None, timeout=5.0), 5.0, m.ConnectionReady(), effects=TOO_LATE
    ),
    "CH-3: a connection after the deadline": story(
        partial(waiting, None, timeout=5.0), 9.0, m.ConnectionReady(), effects=TOO_LATE
    ),
    "CH-3, CB-17: a fail-fast call may miss one connection": story(partial(waiting, None), m.Missed(), effects=[]),
    "CB-17: and any number of those that answers pay for": story(
        partial(waiting, None), m.Missed(), *3 * [m.Missed(paid=True)], effects=[], phase=WAITING
    ),
    "CB-17: but not another one": story(
        partial(waiting, None), m.Missed(1), m.Missed(2, paid=True), m.Missed(3), effects=[m.FailSoon()], phase=WAITING
    ),
    "CH-3: but not two": story(partial(waiting, None), m.Missed(1), m.Missed(2), effects=[m.FailSoon()], phase=WAITING),
    "CB-17: which one connection is, however often": story(
        partial(waiting, None),
        *2 * [m.Missed(1)],
        m.ConnectionReady(),
        m.NotConnected(made=1),
        effects=[m.Enqueue()],
        phase=WAITING,
    ),
    "CH-3: a wait-for-ready call may": story(
        partial(waiting, None, wait_for_ready=True), m.Missed(1), m.Missed(2), effects=[], phase=WAITING
    ),
    "CH-3: the next attempt may miss one too": story(
        waiting, m.Missed(), m.NoConnection(), "wake", m.NotConnected(), m.Missed(), effects=[], soon=0
    ),
    "CH-3: and not two either": story(
        waiting,
        m.Missed(1),
        m.NoConnection(),
        "wake",
        m.NotConnected(),
        m.Missed(2),
        m.Missed(3),
        effects=[m.FailSoon()],
    ),
    "RT-7: the wait is part of the attempt": story(
        partial(waiting, OWN_TIME, **UNHURRIED), 0.25, m.ConnectionReady(), effects=[m.CancelTimer(), m.Begin(0.75, ())]
    ),
    "RT-7: which may end with it": story(
        partial(waiting, OWN_TIME, **UNHURRIED), "wake", now=BEGAN + 1.0, codes=["DEADLINE_EXCEEDED"], phase=SLEEPING
    ),
    "CH-4, RT-7: what never left until the deadline": story(
        partial(running, None, wait_for_ready=True, repeatable=True, timeout=5.0), 5.0, UNSENT, effects=TOO_LATE
    ),
    "CH-4, RT-7: the same with a policy": story(
        partial(running, wait_for_ready=True, repeatable=True, timeout=5.0), 5.0, UNSENT, effects=TOO_LATE
    ),
    # Hooks.
    "RT-4: a refresh may renew nothing": story(
        refreshing, m.HookDone(()), header=(("grpc-previous-rpc-attempts", "1"),)
    ),
    "RT-4, RT-10: renewed metadata stay": story(
        refreshing, m.HookDone(TOKEN), "retry", "retry", header=(*TOKEN, ("grpc-previous-rpc-attempts", "3"))
    ),
    "RT-4, RT-7: a later refresh has until the deadline": story(
        partial(refreshing_again, timeout=5.0), "wake", "wake", now=BEGAN + 5.0, effects=OVER
    ),
    "RT-4, RT-7: also if the loop is late": story(
        partial(refreshing_again, timeout=5.0), "wake", 9.0, m.CallTimerFired(), effects=OVER
    ),
    "RT-5: a conflict that the policy retries": story(
        partial(running, policy_of(codes=frozenset({"ABORTED"}))), ABORTED, phase=SLEEPING, hooks=[]
    ),
    "RT-6: a slow hook does not change the account": story(
        partial(running, timeout=0.5),
        UNAVAILABLE,
        0.4,
        m.HookDone(),
        finish=m.Finish(Ending.EXHAUSTED, GiveUp(Reason.DEADLINE, 0.5, None, 0.5)),
    ),
    "RT-6, RT-7: a hook that outlasts the deadline": story(
        partial(exhausted, timeout=5.0),
        "wake",
        effects=[m.CancelTimer(), m.Finish(Ending.EXHAUSTED, GiveUp(Reason.STOPPED))],
        ended=BEGAN + 5.0,
    ),
    # Committed calls.
    "RT-5, RT-8: a conflict": story(partial(running, OWN_TIME), m.Committed(), ABORTED, effects=OVER, events=[]),
    "RT-8: a failure": story(partial(running, OWN_TIME), m.Committed(), UNAVAILABLE, effects=OVER, events=[]),
    "RT-7, RT-8: the attempt's own time": story(
        partial(running, OWN_TIME, timeout=60.0),
        m.Committed(),
        1.0,
        m.FailedAttempt("DEADLINE_EXCEEDED"),
        effects=OVER,
        events=[],
    ),
    "RT-8: committed to what has failed": story(partial(sleeping, timeout=60.0), m.Committed(), effects=OVER),
    "RT-8: also while credentials are renewed": story(partial(refreshing, timeout=60.0), m.Committed(), effects=OVER),
    "RT-8: what is over anyway": story(settling, m.Committed(), effects=[]),
    "RT-8: ends as it would": story(settling, m.Committed(), m.HookDone(), effects=OVER),
    "RT-8: what has given up": story(exhausted, m.Committed(), effects=[]),
    "RT-8: ends as it would, too": story(
        exhausted, m.Committed(), m.HookDone(), finish=m.Finish(Ending.EXHAUSTED, GiveUp(Reason.STOPPED))
    ),
    "RT-8: a call that waits": story(waiting, m.Committed(), m.NoConnection(), finish=m.Finish(Ending.ATTEMPT)),
    "RT-8: stays committed": story(waiting, m.Committed(), m.ConnectionReady(), UNAVAILABLE, effects=OVER),
    # A channel that closes: no retry, no hook, no event and no cost.
    "CB-10: a failure while the channel closes": story(closing, UNSENT, effects=OVER, events=[], left=10),
    "CB-10: rejected credentials": story(closing, EXPIRED, effects=OVER, events=[], left=10),
    "CB-10: a conflict": story(closing, ABORTED, effects=OVER, events=[], left=10),
}


@pytest.mark.parametrize(("run", "steps", "seen"), STORIES.values(), ids=STORIES)
def test_story(run, steps, seen):
    """CH-3 to RT-8, CB-10: these inputs have these effects; the name of each case gives its rule."""
    call = play(run(), *steps)
    assert {name: getattr(call, name) for name in seen} == seen


# Waiting for a connection (CH-3, CH-4).


def test_a_call_on_a_connection():
    """CH-7: for a call with no policy and no buffered requests, the machine finishes when the only attempt begins."""
    run = running(None, timeout=5.0)
    assert run.machine.handed_over
    assert run.begun == [(BEGAN, 5.0, ())]
    assert run.feed(m.Begun()) == [m.Finish(Ending.ATTEMPT)]
    assert not running(POLICY).machine.handed_over
    assert not running(None, repeatable=True).machine.handed_over


@pytest.mark.parametrize(
    ("wait_for_ready", "by_config", "failing", "resolved", "fails"),
    [
        pytest.param(False, False, False, True, False, id="IDLE or CONNECTING"),
        pytest.param(False, False, True, True, True, id="fail-fast"),
        pytest.param(True, False, False, True, False, id="wait-for-ready, IDLE or CONNECTING"),
        pytest.param(True, False, True, True, False, id="wait-for-ready"),
        pytest.param(True, False, True, False, False, id="wait-for-ready before the name is resolved"),
        pytest.param(True, True, True, True, False, id="wait-for-ready by the service config"),
        pytest.param(True, True, True, False, True, id="by the service config before the name is resolved"),
    ],
)
def test_no_connection_yet(wait_for_ready, by_config, failing, resolved, fails):
    """CH-3: a call waits in IDLE and CONNECTING; in TRANSIENT_FAILURE, a fail-fast call is returned and then fails.

    The service config lets a call wait only once the name has been resolved.
    """
    run = running(None, wait_for_ready=wait_for_ready, by_config=by_config, timeout=5.0)
    soon = [m.FailSoon()] if fails else []
    assert run.feed(m.NotConnected(failing, resolved)) == [m.ArmTimer(BEGAN + 5.0), m.Enqueue(), *soon]
    assert run.phase is CallPhase.WAITING
    run = running(None, wait_for_ready=wait_for_ready, by_config=by_config, timeout=5.0)
    assert (m.FailSoon() in run.feed(m.NotConnected(failing, resolved, lasting=True))) == failing


@pytest.mark.parametrize(
    ("policy", "how", "resolved", "fails"),
    [
        pytest.param(None, {}, False, True, id="fail-fast before the name is resolved"),
        pytest.param(None, {}, True, True, id="fail-fast"),
        pytest.param(policy_of(max_attempts=1), {}, True, True, id="one attempt"),
        pytest.param(None, {"wait_for_ready": True}, False, False, id="wait-for-ready before the name is resolved"),
        pytest.param(None, {"wait_for_ready": True}, True, False, id="wait-for-ready"),
        pytest.param(None, {"wait_for_ready": True, "by_config": True}, False, True, id="by config, not resolved"),
        pytest.param(None, {"wait_for_ready": True, "by_config": True}, True, False, id="by config, resolved"),
        pytest.param(None, {"by_config": True}, True, True, id="fail-fast by config"),
    ],
)
def test_a_dial_that_failed(policy, how, resolved, fails):
    """CH-3, CH-4: a failed dial ends a fail-fast call with UNAVAILABLE; a wait-for-ready call goes on waiting.

    If only the service config sets `waitForReady`, the call waits only once the name has been resolved.
    """
    ends = [m.CancelTimer(), m.FailAttempt("UNAVAILABLE"), m.CancelTimer(), m.Finish(Ending.ATTEMPT)]
    assert waiting(policy, **how).feed(m.NoConnection(resolved)) == (ends if fails else [])
    assert waiting(policy, **how).feed(m.NoConnection(resolved, lasting=True)) == ends, "nobody waits for ever"


def reported(run, *steps):
    """Return the codes that listeners are told for a call that ended without a connection, in each of its steps."""
    run.around.observed = True
    play(run, *steps)
    return [event.code for event in run.events if isinstance(event, CallNotConnected)]


WAITS = {"wait_for_ready": True, "timeout": 5.0}
GIVES_UP = policy_of(max_attempts=2)
UNCONNECTED = [
    pytest.param(lambda: waiting(None), [m.NoConnection()], ["UNAVAILABLE"], id="fail-fast"),
    pytest.param(lambda: waiting(None, **WAITS), ["wake"], ["DEADLINE_EXCEEDED"], id="wait-for-ready"),
    pytest.param(lambda: waiting(POLICY, **WAITS), ["wake"], ["DEADLINE_EXCEEDED"], id="a code that is not retried"),
    pytest.param(lambda: waiting(POLICY), [m.NoConnection()], [], id="a retry follows"),
    pytest.param(
        lambda: waiting(GIVES_UP),
        [m.NoConnection(), "wake", m.NotConnected(), m.NoConnection()],
        ["UNAVAILABLE"],
        id="all attempts",
    ),
    pytest.param(
        lambda: waiting(GIVES_UP), [m.NoConnection(), "wake", UNAVAILABLE], [], id="the last one had a connection"
    ),
    pytest.param(
        lambda: waiting(POLICY, timeout=5.0), [m.NoConnection(), 5.0, "wake"], ["UNAVAILABLE"], id="woken too late"
    ),
    pytest.param(lambda: waiting(None), [m.ConnectionReady(), UNAVAILABLE], [], id="with a connection"),
    pytest.param(lambda: waiting(None), [m.CancelRequested()], [], id="cancelled"),
]


@pytest.mark.parametrize(("begin", "steps", "codes"), UNCONNECTED)
def test_no_connection_is_reported(begin, steps, codes):
    """RT-12: a call that ends without a connection is reported once, with or without a policy, if anyone listens."""
    assert reported(begin(), *steps) == codes
    quiet = play(begin(), *steps)
    assert not [event for event in quiet.events if isinstance(event, CallNotConnected)]


@pytest.mark.parametrize("timeout", [-1.0, 0.0, math.nan])
def test_a_deadline_that_has_passed(timeout):
    """CH-1, CH-3: as in grpc, a timeout that is negative, zero or NaN has expired, and the timer fires at once."""
    run = waiting(None, timeout=timeout)
    assert run.timer <= BEGAN
    assert m.FailAttempt("DEADLINE_EXCEEDED") in run.feed(m.ConnectionReady())
    assert m.FailAttempt("DEADLINE_EXCEEDED") in waiting(POLICY, timeout=timeout).wake()


@pytest.mark.parametrize(
    ("failing", "again"),
    [(False, [m.Enqueue()]), (True, [m.Enqueue(), m.FailSoon()])],
    ids=["CH-3: it counts as missed", "SH-3: the key is in backoff"],
)
def test_a_connection_that_is_gone_as_the_call_enters(failing, again):
    """CH-3, SH-3: if a connection is lost before the call can begin on it, the call waits; it misses only one."""
    run = waiting(None, timeout=5.0)
    run.feed(m.ConnectionReady(), 1.0)
    assert run.feed(m.NotConnected(failing, made=1)) == [m.ArmTimer(BEGAN + 5.0), *again]
    run.feed(m.ConnectionReady(), 1.0)
    assert run.feed(m.NotConnected(made=2)) == [m.ArmTimer(BEGAN + 5.0), m.Enqueue(), m.FailSoon()]


# Wait-for-ready calls that are assigned to a connection as it breaks (CH-3).


def test_what_never_left_is_made_again():
    """CH-3: a call that never left is made again at once with the time remaining, at no cost and without an event."""
    run = running(None, wait_for_ready=True, repeatable=True, timeout=5.0)
    assert run.fail(after=2.0, unsent=True) == [m.Begin(3.0, ())]
    assert run.phase is CallPhase.RUNNING
    run.feed(m.NotConnected())
    run.feed(m.ConnectionReady())
    assert run.fail(unsent=True) == [m.Begin(3.0, ())]
    assert run.state.progress.attempt == 1
    assert run.events == []


def test_what_never_left_counts_as_no_attempt_of_the_policy():
    """CH-3, RT-1, RT-9: an attempt that never left costs nothing; `grpc-previous-rpc-attempts` does not count it."""
    tokens = RetryTokens(RetryBudget(10, 0.1))
    run = running(OWN_TIME, repeatable=True, tokens=tokens)
    run.retry()
    header = (("grpc-previous-rpc-attempts", "1"),)
    for _ in range(10):
        assert run.fail(after=0.25, unsent=True) == [m.Begin(1.0, header)]
    assert (run.state.progress.attempt, tokens.left) == (2, 9)


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("unsent", [False, True])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("closing", [False, True])
def test_what_is_made_again(repeatable, unsent, committed, closing):
    """CH-7, CB-10: a call that never left is made again if it is repeatable and uncommitted and the channel is open."""
    run = running(None, wait_for_ready=True, repeatable=repeatable)
    if committed:
        run.feed(m.Committed())
    run.around.closing = closing
    again = repeatable and unsent and not committed and not closing
    assert run.fail(unsent=unsent) == ([m.Begin(None, ())] if again else [m.CancelTimer(), m.Finish(Ending.ATTEMPT)])


# Cancelled and closed calls (CH-1, CB-10).


@pytest.mark.parametrize("reach", ALIVE)
def test_cancelled(reach):
    """CH-1: cancelling a call ends it in any phase, along with its running attempt."""
    run = reach(timeout=60.0)
    was_running = run.in_flight
    effects = run.feed(m.CancelRequested())
    if was_running:
        assert effects == [m.AbandonAttempt(), m.Finish(Ending.ATTEMPT)]
    else:
        assert effects == [m.CancelTimer(), m.Finish(Ending.CANCELLED)]
    assert run.timer is None


@pytest.mark.parametrize("reach", ALIVE)
def test_closing(reach):
    """CB-10: closing the channel ends a call between two attempts; a running or pending call gets the grace period."""
    run = reach(timeout=60.0)
    run.around.closing = True
    effects = run.feed(m.ChannelClosing())
    if reach in {running, waiting}:
        assert effects == []
    else:
        assert effects == [m.CancelTimer(), m.Finish(Ending.CANCELLED)]


def test_a_step_changes_nothing_but_its_result():
    """CH-7: the machine is a pure function: the same state and input always give the same state and effects."""
    run = running(timeout=5.0)
    for given in (m.NotConnected(), m.FailedAttempt("UNAVAILABLE"), m.OkStatus()):
        one, other = (run.machine.step(run.state, given, 101.0, run.around) for _ in range(2))
        assert one == other


def test_metadata_in_place_of_others():
    """RT-4: renewed metadata replaces the caller's entries with the same keys; other entries keep their order."""
    given = (("a", "1"), ("token", "old"), ("b", b"2"), ("token", "older"))
    assert m.replaced(given, (("token", "new"),)) == (("a", "1"), ("b", b"2"), ("token", "new"))
    assert m.replaced(None, (("token", "new"),)) == (("token", "new"),)
