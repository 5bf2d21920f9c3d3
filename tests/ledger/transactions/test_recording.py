"""Recording the end of attempts on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.operation import LOST, OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.ledger.transactions import claiming, queries, recording
from tests.ledger.conftest import submission
from tests.ledger.steps import QUICK, SHOP, STEPS, UNAVAILABLE, claimed, expired, failed, one, policy_of, submitted


async def test_a_failure_writes_everything_at_once(store):
    """LG-1, LG-2, seed 001: a failure writes backoff and timestamp together; the next attempt is due at their sum."""
    await submitted(store, 1)
    [operation] = await claimed(store)

    told = await failed(store, operation, draw=0.5, details="down")
    after = await one(store, operation.id)
    [attempt] = await queries.attempts(store, operation.id)

    assert (told.state, told.attempts, told.delay, told.source, told.live) == (
        OperationState.WAITING,
        1,
        1.0,
        "schedule",
        True,
    )
    assert (after.backoff_request_seconds, after.code, after.details) == (1.0, "UNAVAILABLE", "down")
    assert after.next_attempt_at == pytest.approx(after.last_attempted_at + 1.0, abs=1e-6)
    assert (after.lease_owner, after.lease_until) == (None, None)
    assert (attempt.number, attempt.code, attempt.delay, attempt.source) == (1, "UNAVAILABLE", 1.0, "schedule")
    assert operation.created <= attempt.started <= attempt.ended == after.last_attempted_at
    assert await claimed(store) == []
    assert 0 < await claiming.next_due(store, SHOP) <= 1


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (FailedAttempt("INVALID_ARGUMENT"), OperationState.FAILED),
        (FailedAttempt("ABORTED"), OperationState.CONFLICT),
        (FailedAttempt("ALREADY_EXISTS"), OperationState.CONFLICT),
    ],
)
async def test_final_failures(store, failure, state):
    """LG-7, LG-8: a failure that is not retried ends an operation as failed or in conflict; the operation is kept."""
    await submitted(store, 1)
    [operation] = await claimed(store)

    told = await failed(store, operation, failure=failure)

    assert (told.state, told.delay, told.reason) == (state, None, None)
    assert (await one(store, operation.id)).finished is not None
    assert await claiming.next_due(store, SHOP) is None


@pytest.fixture
async def again(store):
    """An operation as it was claimed first, the loss of that attempt, and the operation as it is claimed again."""
    await submitted(store, 1)
    [first] = await claimed(store, lease=0.01)
    await asyncio.sleep(0.05)
    [lost] = await recording.lost(store, SHOP, lambda _: QUICK, 10)
    await asyncio.sleep(0.05)
    return first, lost, (await claimed(store))[0]


async def test_a_late_success_counts(store, again):
    """LG-6: a success under an expired lease ends the operation, even while another attempt is running."""
    first, _, second = again
    late = (await recording.record_ends(store, [AttemptReport(first.id, first.lease_token, QUICK)]))[0]
    then = await failed(store, second, QUICK)

    assert (late.state, late.live) == (OperationState.SUCCEEDED, False)
    assert (then.state, then.live, then.delay) == (OperationState.SUCCEEDED, False, None)
    assert [attempt.code for attempt in await queries.attempts(store, first.id)] == ["OK", "UNAVAILABLE"]
    assert (await one(store, first.id)).attempts == 2


async def test_a_late_failure_reschedules_nothing(store, again):
    """LG-6: a failure under an expired lease completes the lost attempt and does not affect the running one."""
    first, lost, second = again
    late = await failed(store, first, QUICK)
    now = await one(store, first.id)

    assert (lost.state, lost.code, lost.attempts, lost.delay) == (OperationState.WAITING, LOST, 1, 0.01)
    assert (late.state, late.live, late.delay) == (OperationState.IN_PROGRESS, False, None)
    assert (now.state, now.lease_token, now.attempts, now.next_attempt_at) == (
        OperationState.IN_PROGRESS,
        second.lease_token,
        1,
        None,
    )
    assert [attempt.code for attempt in await queries.attempts(store, first.id)] == ["UNAVAILABLE"]


@pytest.mark.parametrize("gone", [0.5, 2.0])
async def test_a_loss_is_measured_from_the_leases_end(store, url, gone):
    """LG-3, LG-6: when a loss is recorded, the operation is due at the time that `ready` has said before."""
    [id_] = await submitted(store, 1)
    [operation] = await claimed(store)
    await expired(url, gone)
    [before] = await queries.ready(store, Filter(ids=(id_,)), 1, policy_of)
    await recording.lost(store, SHOP, policy_of, 1)
    [after] = await queries.ready(store, Filter(ids=(id_,)), 1, policy_of)

    assert (before.ready, before.why) == (gone > 1, "its owner is gone")
    assert after.ready == before.ready
    assert after.at == pytest.approx(before.at, abs=2e-6, rel=0)
    assert len(await claimed(store)) == before.ready
    assert (await queries.attempts(store, operation.id))[0].ended == pytest.approx(before.at - 1.0, abs=2e-6, rel=0)


async def test_backoff_and_timestamp_at_once(store):
    """Seed 001: `set_backoff` writes backoff and timestamp together; it returns False for an unknown operation."""
    [id_] = await submitted(store, 1)

    assert await recording.set_backoff(store, id_, 60.0, policy_of) is True
    assert await recording.set_backoff(store, submission(9).id, 60.0, policy_of) is False
    operation = await one(store, id_)
    assert operation.backoff_request_seconds == 60.0
    assert operation.next_attempt_at == pytest.approx(operation.last_attempted_at + 60.0, abs=1e-6)


async def test_a_report_of_nothing(store):
    """LG-2: recording a report for an unknown operation returns a result without a state."""
    assert (await recording.record_ends(store, [AttemptReport(submission(1).id, None, STEPS)]))[0].state is None
    assert (await recording.record_ends(store, [AttemptReport(submission(1).id, None, STEPS, UNAVAILABLE)]))[
        0
    ].state is None


async def test_many_reports_at_once(store):
    """LG-2: a batch of successes and failures is recorded together, and the results keep its order."""
    await submitted(store, *range(20))
    operations = await claimed(store, 20)
    reports = [
        AttemptReport(each.id, each.lease_token, STEPS, UNAVAILABLE if index % 3 else None, draw=0.5)
        for index, each in enumerate(reversed(operations))
    ]

    told = await recording.record_ends(store, reports)

    assert [each.id for each in told] == [report.id for report in reports]
    assert [each.state for each in told] == [
        OperationState.WAITING if report.failure else OperationState.SUCCEEDED for report in reports
    ]
