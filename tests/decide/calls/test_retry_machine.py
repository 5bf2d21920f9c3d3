"""The machine of calls with a retry policy, rule by rule, without grpc or an event loop."""

from __future__ import annotations

import pytest

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.budget import RetryTokens
from grpc_backoff.decide.calls.call_machine import CallPhase, Ending, Hook
from grpc_backoff.decide.calls.decision import GiveUp
from grpc_backoff.decide.calls.events import (
    CallExhausted,
    CallSucceeded,
    Reason,
    WaitSource,
)
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.policy.budget import RetryBudget
from tests.decide.calls.driving import (
    AT,
    AT_ONCE,
    BEGAN,
    OVER,
    OWN_TIME,
    POLICY,
    RETRYABLE,
    STOP,
    TOKEN,
    Run,
    policy_of,
    refreshing,
    refreshing_again,
    running,
    sleeping,
)
from tests.policy.values import Always

# How often (RT-1, RT-2), and when (RT-3).


@pytest.mark.parametrize("attempts", [1, 2, 3, 7])
def test_so_many_attempts(attempts):
    """RT-1: `max_attempts` counts all attempts; when the last attempt fails, the call gives up with `CallExhausted`."""
    run = running(policy_of(max_attempts=attempts))
    for _ in range(attempts - 1):
        run.retry()
    run.fail()
    assert len(run.begun) == attempts
    assert run.phase is (CallPhase.DONE if attempts == 1 else CallPhase.DECIDING)
    assert [type(event) for event in run.events[attempts - 1 :]] == [CallExhausted] * (attempts > 1)


def test_the_schedule():
    """RT-3: each retry is reported, then waits, and begins when the timer fires, even if the timer is late."""
    run = running()
    at = BEGAN
    for attempt, delay in enumerate([0.5, 1.0, 2.0], 1):
        *told, timer = run.fail()
        assert [event.event.attempt for event in told] == [attempt]
        assert timer == m.ArmTimer(at + delay)
        (begin,) = run.wake(late=0.25)
        assert isinstance(begin, m.Begin)
        at += delay + 0.25
    assert [event.delay for event in run.events] == [0.5, 1.0, 2.0]
    assert [now for now, _, _ in run.begun] == [100.0, 100.75, 102.0, 104.25]


def test_pushback_of_none():
    """RT-3: after a pushback of zero there is no timer; the next attempt begins in the same step, after the event."""
    run = running()
    told, begin = run.fail(hint=AT_ONCE)
    assert (told.event.delay, told.event.source) == (0.0, WaitSource.PUSHBACK)
    assert begin == m.Begin(None, (("grpc-previous-rpc-attempts", "1"),))
    assert run.phase is CallPhase.RUNNING


@pytest.mark.parametrize(
    ("hint", "server_delay", "delay"),
    [
        (None, None, 0.5),
        (AT_ONCE, 0.0, 0.0),
        (ServerHint(0.125, WaitSource.PUSHBACK), 0.125, 0.125),
        (ServerHint(3.0, WaitSource.RETRY_INFO), 3.0, 5.0),
        (ServerHint(60.0, WaitSource.RETRY_AFTER), 60.0, 12.0),
    ],
)
def test_what_the_server_asked_for(hint, server_delay, delay):
    """RT-3, CB-11: the event has the wait that the server asked for, and the actual wait, with jitter and cap.

    The random number for the jitter comes from the generator that the call was given.
    """
    run = running(policy_of(server_delay_jitter=4.0, max_server_delay=10.0), rng=Always(0.5))
    told, *_ = run.fail(hint=hint)
    assert (told.event.server_delay, told.event.delay) == (server_delay, delay)


# A GOAWAY for a call that the server never processed (gRFC A6).


def test_refused():
    """RT-9, RT-10: a refused call is repeated once, at once and at no cost; a second refusal is an ordinary failure."""
    tokens = RetryTokens(RetryBudget(10, 0.1))
    run = running(policy_of(max_attempts=2), tokens=tokens)
    told, begin = run.fail(refused=True)
    assert (told.event.source, told.event.delay) == (WaitSource.REFUSED, 0.0)
    assert begin == m.Begin(None, ())
    assert (run.state.progress.attempt, tokens.left) == (1, 10)
    run.fail(refused=True)
    assert (run.phase, tokens.left) == (CallPhase.SLEEPING, 9)
    assert run.wake() == [m.Begin(None, (("grpc-previous-rpc-attempts", "1"),))]


# Renewing credentials (RT-4).


def test_refresh():
    """RT-4: `refresh_credentials` is called, and the call is repeated with the metadata that it returns."""
    run = running(timeout=60.0)
    assert run.fail("UNAUTHENTICATED", after=0.25, can_refresh=True) == [
        m.ArmTimer(BEGAN + 60.0),
        m.CallHook(Hook.REFRESH, 0.25),
    ]
    assert run.events == []
    cancelled, told, begin = run.feed(m.HookDone(TOKEN), 1.0)
    assert cancelled == m.CancelTimer()
    assert (told.event.code, told.event.delay, told.event.source) == ("UNAUTHENTICATED", 0.0, WaitSource.REFRESH)
    assert begin == m.Begin(58.75, (*TOKEN, ("grpc-previous-rpc-attempts", "1")))
    assert run.phase is CallPhase.RUNNING


@pytest.mark.parametrize(("later", "begun", "events"), [(False, 1, 0), (True, 2, 2)], ids=["the first", "a later one"])
def test_a_refresh_that_fails(later, begun, events):
    """RT-4: if `refresh_credentials` fails, the call ends with the server's error, and `on_exhausted` is not called."""
    run = refreshing_again(timeout=60.0) if later else refreshing(timeout=60.0)
    if later:
        run.wake()
    assert run.feed(m.HookDone()) == [m.CancelTimer(), m.Finish(Ending.ATTEMPT)]
    assert (len(run.begun), len(run.events)) == (begun, events)


def test_when_an_attempt_began():
    """RT-4: `attempt_began` is the time when the attempt began to wait for a connection, not when it got one."""
    run = sleeping()
    run.wake()
    assert run.state.attempt_began == BEGAN + 0.5
    run.feed(m.NotConnected())
    run.feed(m.ConnectionReady(), 2.0)
    assert run.state.attempt_began == BEGAN + 0.5
    run = running(None, repeatable=True)
    assert run.state.attempt_began == BEGAN
    run.fail(after=1.0, unsent=True)
    assert run.state.attempt_began == BEGAN + 1.0


def test_refreshed_again_after_the_wait():
    """RT-4: a later UNAUTHENTICATED waits as the second failure of the schedule and then calls the hook."""
    run = refreshing(timeout=60.0)
    run.feed(m.HookDone(TOKEN))
    told, timer = run.fail("UNAUTHENTICATED", can_refresh=True)
    assert (told.event.code, told.event.delay, told.event.source) == ("UNAUTHENTICATED", 1.0, WaitSource.SCHEDULE)
    assert timer == m.ArmTimer(BEGAN + 1.0)
    assert len(run.hooks) == 1
    assert run.wake() == [m.ArmTimer(BEGAN + 60.0), m.CallHook(Hook.REFRESH, 1.0)]
    assert run.phase is CallPhase.DECIDING
    newer = (("token", "newer"),)
    assert run.feed(m.HookDone(newer), 1.0) == [
        m.CancelTimer(),
        m.Begin(58.0, (*newer, ("grpc-previous-rpc-attempts", "2"))),
    ]
    assert len(run.events) == 2


def test_later_refreshes_are_within_the_attempts():
    """RT-1, RT-4: each attempt with rejected credentials counts towards the policy's attempts."""
    run = refreshing()
    run.feed(m.HookDone(TOKEN))
    while run.fail("UNAUTHENTICATED", can_refresh=True) and run.phase is CallPhase.SLEEPING:
        run.wake()
        run.feed(m.HookDone(TOKEN))
    assert len(run.begun) == POLICY.max_attempts
    assert [hook.hook for hook in run.hooks] == [Hook.REFRESH] * 3 + [Hook.EXHAUSTED]
    assert run.hooks[-1].reason is Reason.ATTEMPTS


@pytest.mark.parametrize("after", [5.0, 9.0])
def test_credentials_that_come_too_late(after):
    """RT-4, RT-6, RT-7: if the hook returns after the deadline, no attempt follows, and the call gives up."""
    run = refreshing(timeout=5.0)
    told, timer, hook = run.feed(m.HookDone(TOKEN), after)
    assert told.event.reason is Reason.DEADLINE
    assert timer == m.ArmTimer(BEGAN + 5.0)
    assert hook == m.CallHook(Hook.EXHAUSTED, after, Reason.DEADLINE)
    assert len(run.begun) == 1
    assert run.wake()[-1] == m.Finish(Ending.EXHAUSTED, GiveUp(Reason.DEADLINE))


NEVER_RAN = policy_of(timeout=1.0, never_ran_only=True)


@pytest.mark.parametrize(
    ("code", "how", "again"),
    [
        ("UNAVAILABLE", {}, False),
        ("UNAVAILABLE", {"says_refused": True}, False),
        ("UNAVAILABLE", {"never_ran": True}, True),
        ("RESOURCE_EXHAUSTED", {"never_ran": True}, True),
        ("ABORTED", {"never_ran": True}, False),  # not one of its codes
        ("DEADLINE_EXCEEDED", {"after": 1.0}, False),  # its own time limit
    ],
)
def test_only_what_never_ran(code, how, again):
    """RT-14: with `never_ran_only`, only a failure that no server is said to have executed is retried."""
    run = running(NEVER_RAN, timeout=60.0)
    run.fail(code, **how)
    assert run.codes == ([code] if again else [])


def test_what_never_had_a_connection_never_ran():
    """RT-14: an attempt that ended while it waited for a connection never ran, so it is retried."""
    run = Run(NEVER_RAN, timeout=60.0)
    run.feed(m.NotConnected())
    run.wake()
    assert run.codes == ["DEADLINE_EXCEEDED"]


# Conflicts (RT-5), and giving up (RT-6).


@pytest.mark.parametrize(
    ("policy", "code", "how"),
    [
        pytest.param(None, "UNAVAILABLE", {"hint": AT_ONCE}, id="RT-1: no policy"),
        pytest.param(None, "UNAVAILABLE", {"refused": True}, id="RT-1: no policy, refused"),
        pytest.param(None, "ABORTED", {}, id="RT-1: no policy, no conflict"),
        pytest.param(None, "UNAUTHENTICATED", {"can_refresh": True}, id="RT-1: no policy, no refresh"),
        pytest.param(POLICY, "RESOURCE_EXHAUSTED", {"oversized": True}, id="RT-2: a message that is too large"),
        pytest.param(POLICY, "CANCELLED", {"after": 0.75}, id="RT-2: cancelled by the server"),
        pytest.param(OWN_TIME, "CANCELLED", {"after": 0.75}, id="RT-7: cancelled by the server in the attempt's time"),
        pytest.param(POLICY, "UNAUTHENTICATED", {}, id="RT-4: nobody renews credentials"),
        pytest.param(POLICY, "DEADLINE_EXCEEDED", {"after": 60.0}, id="RT-7: the deadline ends the only attempt"),
    ],
)
def test_a_failure_that_ends_the_call(policy, code, how):
    """RT-1 to RT-7: such a failure ends the call with the server's error, with no retry, no hook and no event."""
    run = running(policy, repeatable=True, timeout=60.0)
    assert run.fail(code, **how) == OVER
    assert run.state.failed == ("" if policy is None else code)
    assert run.events == []


@pytest.mark.parametrize("code", ["ABORTED", "ALREADY_EXISTS"])
def test_conflict(code):
    """RT-5: a conflict is not retried; `on_conflict` is called, and the call ends with the server's error."""
    run = running(timeout=60.0)
    assert run.fail(code, after=0.25) == [m.ArmTimer(BEGAN + 60.0), m.CallHook(Hook.CONFLICT, 0.25)]
    assert run.state.failed == code
    assert run.feed(m.HookDone(TOKEN)) == OVER
    assert run.events == []


def test_exhausted():
    """RT-6: a call that gives up emits its event, then calls the hook, and ends with the reason and the time left."""
    run = running(policy_of(max_attempts=2), timeout=60.0, trace_id="trace")
    run.retry()
    told, timer, hook = run.fail("RESOURCE_EXHAUSTED", after=1.0)
    assert told == m.Emit(
        CallExhausted(
            **AT,
            at=BEGAN + 1.5,
            attempt=2,
            code="RESOURCE_EXHAUSTED",
            reason=Reason.ATTEMPTS,
            took=1.5,
            trace_id="trace",
        )
    )
    assert timer == m.ArmTimer(BEGAN + 60.0)
    assert hook == m.CallHook(Hook.EXHAUSTED, 1.5, Reason.ATTEMPTS)
    assert [event.trace_id for event in run.events] == ["trace"] * 2  # RT-11
    finish = m.Finish(Ending.EXHAUSTED, GiveUp(Reason.ATTEMPTS))
    assert run.feed(m.HookDone(), 1.0) == [m.CancelTimer(), finish]


@pytest.mark.parametrize(
    ("policy", "retries", "observed", "reported"),
    [(POLICY, 0, False, 0), (POLICY, 0, True, 1), (POLICY, 1, False, 1), (POLICY, 1, True, 1), (None, 0, True, 0)],
    ids=["the first attempt", "observed", "after a retry", "after a retry, observed", "no policy"],
)
def test_succeeded(policy, retries, observed, reported):
    """RT-12: the answer precedes the event; success at the first attempt is reported only if there is a listener."""
    run = running(policy, repeatable=True)
    for _ in range(retries):
        run.retry()
    run.around.observed = observed
    success = CallSucceeded(**AT, at=run.now + 1.0, attempt=1 + retries, took=1.0 + retries / 2)
    assert run.succeed(1.0) == [m.Finish(Ending.ATTEMPT), *[m.Emit(success)] * reported]


@pytest.mark.parametrize("delay", [0.0, 0.5], ids=["at once", "after a wait"])
def test_events_that_nobody_hears(delay):
    """RT-12: while no listener, log or span receives events of retries, none is made."""
    run = running(repeatable=True)
    run.around.heard = False
    hint = None if delay else ServerHint(0.0, WaitSource.PUSHBACK)
    effects = run.feed(m.FailedAttempt("UNAVAILABLE", hint=hint))
    assert [type(effect) for effect in effects] == [m.ArmTimer if delay else m.Begin]
    if delay:
        run.feed(m.CallTimerFired(), run.timer - run.now)
    assert run.succeed(1.0) == [m.Finish(Ending.ATTEMPT)]


# Time (RT-7).


@pytest.mark.parametrize(
    ("timeout", "limit", "deadline", "seconds"),
    [
        (None, None, None, None),
        (3.0, None, None, 3.0),
        (None, 3.0, None, 3.0),
        (None, None, 3.0, 3.0),
        (3.0, 4.0, 5.0, 3.0),
        (5.0, 3.0, 4.0, 3.0),
        (4.0, 5.0, 3.0, 3.0),
    ],
)
def test_the_least_bound_holds(timeout, limit, deadline, seconds):
    """RT-7: the smallest of the caller's timeout, the service config's timeout and the policy's deadline applies."""
    run = running(policy_of(deadline=deadline), timeout=timeout, limit=limit)
    assert run.begun == [(BEGAN, seconds, ())]
    if seconds is not None:
        run.retry()
        assert run.begun[-1][:2] == (BEGAN + 0.5, seconds - 0.5)


@pytest.mark.parametrize(
    ("timeout", "seconds", "own"), [(None, 1.0, True), (3.0, 1.0, True), (1.0, 1.0, False), (0.5, 0.5, False)]
)
def test_time_for_each_attempt(timeout, seconds, own):
    """RT-7: an attempt gets the policy's timeout, or the call's remaining time if that is less."""
    run = running(OWN_TIME, timeout=timeout)
    assert (run.begun[0][1], run.state.own_timeout) == (seconds, own)


TOO_LATE = [
    ("DEADLINE_EXCEEDED", {}),
    ("CANCELLED", {}),
    ("UNAVAILABLE", {}),
    ("INTERNAL", {"cut": True}),
    ("UNKNOWN", {"cut": True}),
]
"""How the core, a server or a proxy ends a call whose time is up."""


@pytest.mark.parametrize(("code", "how"), TOO_LATE)
@pytest.mark.parametrize("codes", [RETRYABLE, {"ABORTED"}])
def test_an_attempt_that_takes_too_long(code, how, codes):
    """RT-7: an attempt that exceeds its timeout is retried as DEADLINE_EXCEEDED, whoever ended it."""
    run = running(policy_of(timeout=1.0, codes=codes), timeout=60.0)
    run.fail(code, after=1.0, **how)
    assert run.codes == ["DEADLINE_EXCEEDED"]
    run.wake()
    assert run.begun[-1][:2] == (BEGAN + 1.5, 1.0)


def test_a_timer_that_is_a_little_early():
    """RT-7: an attempt that the core or a server ends a few milliseconds before its limit has exceeded it."""
    run = running(OWN_TIME, timeout=60.0)
    run.fail("DEADLINE_EXCEEDED", after=0.99)
    assert run.codes == ["DEADLINE_EXCEEDED"]


def test_a_call_whose_every_attempt_takes_too_long():
    """RT-6, RT-7: if the last attempt times out, the call ends in DEADLINE_EXCEEDED, even long before its deadline."""
    run = running(policy_of(max_attempts=2, timeout=1.0), timeout=60.0)
    run.fail("DEADLINE_EXCEEDED", after=1.0)
    run.wake()
    run.fail("DEADLINE_EXCEEDED", after=1.0)
    assert (run.events[-1].code, run.events[-1].reason) == ("DEADLINE_EXCEEDED", Reason.ATTEMPTS)
    assert run.feed(m.HookDone())[-1] == m.Finish(Ending.EXHAUSTED, GiveUp(Reason.ATTEMPTS))


@pytest.mark.parametrize(
    ("code", "how", "after"),
    [
        ("INTERNAL", {"cut": True}, 0.97),  # in the attempt's time
        ("DEADLINE_EXCEEDED", {}, 0.97),  # a deadline of the server's own
        ("INTERNAL", {}, 1.0),  # the server's own answer, which was seen late
        ("INVALID_ARGUMENT", {}, 1.0),
    ],
)
def test_an_attempt_that_was_answered(code, how, after):
    """RT-2, RT-7: what is cut in the attempt's time, and the server's own answer, are not its time limit."""
    run = running(OWN_TIME, timeout=60.0)
    assert run.fail(code, after=after, **how) == OVER
    assert run.state.failed == code


@pytest.mark.parametrize(("code", "how"), [*TOO_LATE[1:], ("DEADLINE_EXCEEDED", {"cut": True})])
@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_call_that_meets_its_deadline(code, how, closing, committed):
    """RT-7: a call that ends at its deadline says so, in whatever way a server or a proxy ended it."""
    run = running(timeout=5.0)
    run.around.closing = closing
    if committed:
        run.feed(m.Committed())
    after = 4.985 if "cut" in how else 5.0  # a proxy's timer may fire a little earlier
    assert run.fail(code, after=after, **how) == [m.CancelTimer(), m.Finish(Ending.TIMED_OUT)]
    assert running(timeout=5.0).fail("DEADLINE_EXCEEDED", after=5.0) == OVER, "the server's own, or plain's text"
    assert running(None, repeatable=True, timeout=5.0).fail(code, after=5.0, **how) == OVER, "grpcio's own call"


@pytest.mark.parametrize(("code", "how"), TOO_LATE)
def test_a_later_attempt_that_meets_the_deadline(code, how):
    """RT-6, RT-7: a call gives up if a later attempt exceeds the deadline, whoever ended it."""
    run = running(timeout=5.0)
    run.retry()
    early = 0.015 if "cut" in how else 0.0
    told, *_, hook = run.fail(code, after=4.5 - early, **how)
    assert (told.event.code, told.event.reason) == ("DEADLINE_EXCEEDED", Reason.DEADLINE)
    assert hook == m.CallHook(Hook.EXHAUSTED, pytest.approx(5.0 - early), Reason.DEADLINE)


@pytest.mark.parametrize("reach", [sleeping, refreshing_again], ids=["a retry", "RT-4: a hook after the wait"])
@pytest.mark.parametrize("late", [0.5, 10.0])
def test_woken_too_late(reach, late):
    """CB-12, RT-7: if the loop was blocked past the deadline, no attempt or hook follows, and the call gives up."""
    run = reach(timeout=1.25)
    begun, due = len(run.begun), run.timer - BEGAN
    told, timer, hook = run.wake(late + 0.25)
    assert told.event.reason is Reason.DEADLINE
    assert (timer, hook) == (m.ArmTimer(BEGAN + 1.25), m.CallHook(Hook.EXHAUSTED, due + late + 0.25, Reason.DEADLINE))
    assert len(run.begun) == begun
    assert run.wake()[-1] == m.Finish(Ending.EXHAUSTED, GiveUp(Reason.DEADLINE))


# Committed calls (RT-8).


# The budget (RT-9).


@pytest.mark.parametrize(
    ("policy", "given", "left"),
    [
        pytest.param(POLICY, [m.FailedAttempt("UNAVAILABLE")], 8, id="a retried failure"),
        pytest.param(POLICY, [m.FailedAttempt("INTERNAL")], 9, id="another failure"),
        pytest.param(POLICY, [m.FailedAttempt("INTERNAL", hint=STOP)], 8, id="the server wants no retry"),
        pytest.param(POLICY, [m.FailedAttempt("UNAVAILABLE", hint=STOP)], 8, id="the same with a code that is retried"),
        pytest.param(POLICY, [m.FailedAttempt("INTERNAL", hint=AT_ONCE)], 9, id="a pushback of another failure"),
        pytest.param(POLICY, [m.Committed(), m.FailedAttempt("UNAVAILABLE")], 8, id="RT-8: a committed call"),
        pytest.param(POLICY, [m.NotConnected(), m.NoConnection()], 8, id="no connection"),
        pytest.param(POLICY, [m.OkStatus()], 9.5, id="an answer"),
        pytest.param(None, [m.FailedAttempt("UNAVAILABLE")], 9, id="no policy"),
        pytest.param(None, [m.OkStatus()], 9, id="an answer without a policy"),
        pytest.param(policy_of(max_attempts=1), [m.FailedAttempt("UNAVAILABLE")], 9, id="one attempt"),
        pytest.param(policy_of(max_attempts=1), [m.FailedAttempt("UNAVAILABLE", hint=STOP)], 9, id="one, and no retry"),
    ],
)
def test_what_costs_a_token(policy, given, left):
    """RT-9: a retryable failure and one after which the server wants no retry cost one token; an answer returns some.

    Calls that are never retried neither cost nor return tokens.
    """
    tokens = RetryTokens(RetryBudget(10, 0.5))
    tokens.failed()
    run = running(policy, repeatable=True, tokens=tokens)
    for each in given:
        run.feed(each)
    assert tokens.left == left


def by_the_gRFC(tokens, calls, attempts):  # noqa: N802
    """Return how many attempts each call gets by gRFC A6 if all fail: a retry needs more than half of the tokens."""
    left, made = tokens, []
    for _ in range(calls):
        for attempt in range(1, attempts + 1):
            left = max(0, left - 1)
            if left <= tokens / 2 or attempt == attempts:
                made.append(attempt)
                break
    return made


@pytest.mark.parametrize(("most", "attempts"), [(4, 2), (5, 2), (10, 3), (10, 9), (1, 2)])
def test_calls_that_share_a_budget(most, attempts):
    """RT-9: calls that share a budget and all fail get as many attempts as gRFC A6 allows."""
    tokens, made = RetryTokens(RetryBudget(most, 0.1)), []
    for _ in range(10):
        run = running(policy_of(max_attempts=attempts), tokens=tokens)
        while run.fail() and run.phase is CallPhase.SLEEPING:
            run.wake()
        made.append(len(run.begun))
        assert made[-1] == attempts or run.events[-1].reason is Reason.BUDGET
    assert made == by_the_gRFC(most, 10, attempts)


# Connections that turn calls away (RT-15).


def test_a_retry_that_was_turned_away():
    """RT-15: a retry after an HTTP status seeks another connection, when the wait begins; the last failure does not."""
    run = running(policy_of(max_attempts=2))
    run.fail("UNAVAILABLE", turned_away=503)
    assert run.effects[0] == m.SeekAnother(503)
    assert run.phase is CallPhase.SLEEPING
    run.wake()
    run.fail("UNAVAILABLE", turned_away=503)
    assert not [effect for effect in run.effects if isinstance(effect, m.SeekAnother)]


@pytest.mark.parametrize(
    ("policy", "committed"), [(None, False), (policy_of(codes={"ABORTED"}), False), (policy_of(), True)]
)
def test_turned_away_without_a_retry(policy, committed):
    """RT-15: a call that is not retried seeks no other connection."""
    run = running(policy)
    if committed:
        run.feed(m.Committed())
    run.feed(m.FailedAttempt("UNAVAILABLE", turned_away=503))
    assert not [effect for effect in run.effects if isinstance(effect, m.SeekAnother)]
