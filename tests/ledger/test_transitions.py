"""The changes to an operation's row, case by case."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.decide.calls.events import WaitSource
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.ledger.operation import FINISHED, LOST, Operation, OperationAttempt, OperationState
from grpc_backoff.ledger.records import AttemptReport, Recorded
from grpc_backoff.ledger.transitions import (
    Change,
    LockedRow,
    after_loss,
    after_report,
    fallback,
    ledger_policy,
    recalled,
)
from grpc_backoff.policy.presets import LEDGER, RETRY_PRESETS
from tests.ledger.policies import policies

STEPS = ledger_policy(RETRY_PRESETS["steps"])
STEPS_OF_THREE = replace(STEPS, max_attempts=3)
BEGAN = 1000.0


def locked(state, attempts=0, step=0, previous=None, refreshed=False, lease_token=0, age=0.0):
    """Return a row whose series of attempts began this many seconds ago."""
    told = {"began": BEGAN, "lease_began": BEGAN, "lease_until": None, "order_key": None, "now": BEGAN + age}
    return LockedRow("id", "steps", state.value, attempts, 0, step, previous, refreshed, lease_token, **told)


RUNNING = locked(OperationState.IN_PROGRESS, lease_token=4)
UNAVAILABLE = FailedAttempt("UNAVAILABLE")


def fail(standing=RUNNING, token=4, failure=UNAVAILABLE, policy=STEPS_OF_THREE, draw=0.5):
    return after_report(standing, AttemptReport("id", token, policy, failure, draw=draw))


def told_to_wait(seconds, source):
    return FailedAttempt("UNAVAILABLE", hint=ServerHint(seconds, source))


PUSHBACK = WaitSource.PUSHBACK
FAILURES = [
    # The failure and the number of attempts before it -> the state, delay, source and reason.
    (UNAVAILABLE, 0, OperationState.WAITING, 1.0, "schedule", None),
    (FailedAttempt("RESOURCE_EXHAUSTED"), 1, OperationState.WAITING, 2.0, "schedule", None),
    (UNAVAILABLE, 2, OperationState.FAILED, None, None, "no attempts are left"),
    (FailedAttempt("INVALID_ARGUMENT"), 0, OperationState.FAILED, None, None, None),
    (FailedAttempt("ABORTED"), 0, OperationState.CONFLICT, None, None, None),
    (FailedAttempt("ALREADY_EXISTS"), 2, OperationState.CONFLICT, None, None, None),
    (FailedAttempt("DEADLINE_EXCEEDED"), 0, OperationState.FAILED, None, None, None),
    (FailedAttempt("DEADLINE_EXCEEDED", own_timeout=True), 0, OperationState.WAITING, 1.0, "schedule", None),
    (FailedAttempt("UNAUTHENTICATED"), 0, OperationState.FAILED, None, None, None),
    (told_to_wait(None, PUSHBACK), 0, OperationState.FAILED, None, None, "the server asked the client not to retry"),
    (told_to_wait(7.0, PUSHBACK), 0, OperationState.WAITING, 7.0, "grpc-retry-pushback-ms", None),
    (told_to_wait(300.0, WaitSource.RETRY_AFTER), 0, OperationState.WAITING, 57.0, "retry-after", None),
]


@pytest.mark.parametrize(("failure", "attempts", "state", "delay", "source", "reason"), FAILURES)
def test_failures(failure, attempts, state, delay, source, reason):
    """LG-4, LG-7, LG-8: each kind of failure leads to the right state, wait and reason."""
    change = fail(locked(OperationState.IN_PROGRESS, attempts=attempts, step=attempts, lease_token=4), failure=failure)

    assert (change.state, change.source, change.reason, change.live) == (state, source, reason, True)
    assert change.delay == pytest.approx(delay) if delay else change.delay is delay


def test_the_first_unauthenticated_is_retried_at_once():
    """LG-8, RT-4: the first UNAUTHENTICATED is retried at once with new credentials, the second by the schedule."""
    unauthenticated = FailedAttempt("UNAUTHENTICATED", can_refresh=True)
    first = fail(failure=unauthenticated)
    second = fail(RUNNING._replace(attempts=1, step=first.step, refreshed=first.refreshed), failure=unauthenticated)

    assert (first.state, first.delay, first.source, first.refreshed) == (
        OperationState.WAITING,
        0.0,
        "refreshed credentials",
        True,
    )
    assert (second.state, second.source, first.step, second.step) == (OperationState.WAITING, "schedule", 1, 2)


@pytest.mark.parametrize("state", list(OperationState))
@pytest.mark.parametrize("token", [None, 3, 4])
def test_who_is_live(state, token):
    """LG-6: a report counts if it has the current lease, or if it has no lease and the operation is unclaimed."""
    live = locked(state, lease_token=4).is_live(token)

    assert live == (
        (state is OperationState.IN_PROGRESS and token == 4)
        or (token is None and state.value in ("pending", "waiting_for_retry"))
    )


@pytest.mark.parametrize("state", list(OperationState))
def test_a_late_failure_moves_nothing(state):
    """LG-6: a failure reported under an old lease changes neither state nor schedule."""
    change = fail(locked(state, attempts=2, step=2, previous=2.0, lease_token=5))

    assert change == Change(state, 2, 2.0, live=False)


@pytest.mark.parametrize("state", list(OperationState))
@pytest.mark.parametrize("token", [None, 3, 4])
def test_a_success_counts_whenever_it_comes(state, token):
    """LG-6: a late success counts, except for an operation that was discarded."""
    change = after_report(locked(state, lease_token=4), AttemptReport("id", token, STEPS))

    assert change.state is (OperationState.DISCARDED if state is OperationState.DISCARDED else OperationState.SUCCEEDED)


def test_a_loss_is_retried_whatever_the_codes():
    """LG-6: an attempt whose owner died is retried even if the policy lists no such code and counts as an attempt."""
    policy = replace(STEPS_OF_THREE, codes=frozenset({"INTERNAL"}))

    assert after_loss(policy, RUNNING, BEGAN).delay == fallback(policy, 1) == 1.0
    assert after_loss(policy, RUNNING._replace(attempts=2), BEGAN).state is OperationState.FAILED


def test_the_deadline_counts_from_the_beginning_of_the_series():
    """LG-7, RT-7: the policy gives up if its deadline, counted from the series' start, leaves no time for the wait."""
    policy = replace(STEPS, deadline=10.0)

    assert fail(RUNNING._replace(now=BEGAN + 8.9), policy=policy).state is OperationState.WAITING
    assert (
        fail(RUNNING._replace(now=BEGAN + 9.1), policy=policy).reason
        == "the deadline leaves no time for another attempt"
    )


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("UNAVAILABLE", OperationState.WAITING),
        ("UNKNOWN", OperationState.WAITING),
        ("NOT_FOUND", OperationState.FAILED),
    ],
)
def test_the_default_outlives_a_night(code, state):
    """LG-7: by default, eight hours of UNAVAILABLE or of a server's exceptions do not end an operation."""
    policy, standing = ledger_policy(RETRY_PRESETS[LEDGER["policy"]]), locked(OperationState.PENDING)
    for number in range(1, 60):
        change = fail(standing, None, FailedAttempt(code), policy)
        standing = locked(change.state, number, change.step, change.previous, age=number * 600.0)

    assert change.state is state


def test_a_server_is_obeyed_up_to_the_cap():
    """LG-4: without `max_server_delay`, the policy's cap bounds the wait that a server may ask for."""
    standard = RETRY_PRESETS["standard"]

    assert standard.max_server_delay is None
    assert ledger_policy(standard).max_server_delay == standard.backoff.cap == 30.0
    assert ledger_policy(STEPS) is STEPS


def test_no_wait_is_longer_than_a_calendar():
    """LG-3: an extremely large cap is reduced to a wait that every database can represent."""
    endless = replace(RETRY_PRESETS["standard"], backoff=replace(RETRY_PRESETS["standard"].backoff, cap=1e300))

    assert ledger_policy(endless).backoff.cap == ledger_policy(endless).max_server_delay < 4e8


@given(policies(), st.integers(1, 30))
def test_the_fallback_keeps_to_the_lower_bound(policy, n):
    """LG-3: the wait without a recorded backoff is min(growth, cap), and at least the policy's lower bound."""
    wait = fallback(policy, n)

    assert wait >= policy.bounds(n)[0]
    assert wait >= policy.nominal(n)


HINTS = st.none() | st.builds(
    ServerHint, st.none() | st.floats(0, 99), st.sampled_from([WaitSource.PUSHBACK, WaitSource.RETRY_AFTER])
)
CODES = st.sampled_from(["UNAVAILABLE", "ABORTED", "INTERNAL", "UNAUTHENTICATED"])
FAILED = st.builds(
    FailedAttempt, CODES, HINTS, st.booleans(), st.just(False), st.just(False), st.booleans(), st.booleans()
)
"""The failures that a ledger can see: no hint has the source `schedule`, and no attempt is refused or committed."""


@given(
    policies(),
    st.builds(
        locked,
        st.sampled_from(OperationState),
        st.integers(0, 12),
        st.integers(0, 12),
        st.none(),  # a wait that the policy could not have drawn would break its bounds
        lease_token=st.integers(0, 5),
    ),
    st.none() | st.integers(0, 5),
    FAILED,
    st.floats(0, 1, exclude_max=True),
)
def test_invariants(policy, standing, token, failure, draw):
    """LG-1, LG-2: only a report that counts changes the state, and a delay is always within the policy's bounds."""
    change = fail(standing, token, failure, policy, draw)

    assert change.live == standing.is_live(token)
    assert change.live or change.state == standing.state
    assert (change.delay is not None) == (change.live and change.state is OperationState.WAITING)
    assert change.state in FINISHED | {OperationState.WAITING} or not change.live
    if change.source == "schedule":
        low, high = policy.bounds(change.step)
        assert low <= change.delay <= high


def row(change, standing, report):
    """Return the operation and the attempt that a store would write for a change."""
    operation = Operation(**dict.fromkeys(field.name for field in fields(Operation)) | {"metadata": (), "request": b""})
    operation = replace(
        operation,
        id=report.id,
        state=change.state,
        attempts=standing.attempts + 1,
        code=report.failure.code if report.failure else "OK",
        lease_token=standing.lease_token,
        backoff_request_seconds=change.delay,
        reason=change.reason,
    )
    attempt = OperationAttempt(
        number=1, started=0.0, ended=1.0, code=operation.code, delay=change.delay, source=change.source
    )
    return operation, [attempt]


@given(
    policies(),
    st.builds(
        locked,
        st.just(OperationState.IN_PROGRESS),
        st.integers(0, 12),
        st.integers(0, 12),
        st.none() | st.floats(0, 1e4),
        st.booleans(),
        st.integers(0, 5),
        st.floats(0, 1e4),
    ),
    st.none() | FAILED,
)
def test_what_a_row_says_of_a_lost_answer(policy, standing, failure):
    """LG-7: if the answer to a report is lost, the operation's row still yields the same result and reason."""
    report = AttemptReport("id", standing.lease_token, policy, failure, draw=0.5)
    change = after_report(standing, report)
    operation, attempts = row(change, standing, report)
    heard = Recorded(
        "id",
        change.state,
        operation.attempts,
        operation.code,
        change.delay,
        change.source,
        change.reason,
        live=True,
    )

    assert recalled(operation, attempts, report) == heard
    for moved in (
        replace(operation, lease_token=standing.lease_token + 1),
        replace(operation, code=LOST),
        replace(operation, state=OperationState.PENDING),
        replace(operation, state=OperationState.DISCARDED),
    ):
        assert recalled(moved, attempts, report) is None
