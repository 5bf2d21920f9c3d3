"""Behaviour that every store has: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from dataclasses import replace

import psycopg
import pytest

from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.calls.events import WaitSource
from grpc_backoff.calls.server_hint import ServerHint
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.ledger import counting
from grpc_backoff.ledger.records import FINISHED, LOST, AttemptReport, Filter, Lease, OperationState
from grpc_backoff.policy.presets import RETRY
from tests.ledger.conftest import execute, open_store, submission

SHOP = "shop:443"
STEPS = RETRY["steps"]
QUICK = parse_policy("max_attempts: unlimited, deadline: 1d, delay: 10ms")
UNAVAILABLE = FailedAttempt("UNAVAILABLE")
CHANCE = random.Random(1)


def policy_of(text):
    return parse_policy(text)


async def claimed(store, limit=1, lease=30.0):
    return await store.claim(SHOP, limit, "me", lease)


async def submitted(store, *numbers, **parts):
    return [told.id for told in await store.submit([submission(number, **parts) for number in numbers])]


async def one(store, id_):
    return (await store.find(Filter(ids=(id_,)), 1))[0]


async def failed(store, operation, policy=STEPS, failure=UNAVAILABLE, draw=0.5, **how):
    report = AttemptReport(operation.id, operation.lease_token, policy, failure, draw=draw, **how)
    return (await store.record([report]))[0]


async def test_a_row_has_every_field(store):
    """LG-1: a submitted operation is stored with every field, pending and without attempts."""
    metadata = (("x-tenant", "a"), ("x-trace-bin", b"\x00\xff"))
    [told] = await store.submit([submission(1, metadata=metadata, trace_id="t" * 32, key="k")])
    operation = await one(store, told.id)

    assert told.new
    assert (operation.target, operation.method, operation.request) == (SHOP, "/shop.Orders/Place", b"order")
    assert (operation.metadata, operation.policy, operation.state) == (metadata, "steps", OperationState.PENDING)
    assert (operation.attempts, operation.recorded, operation.lease_token) == (0, 0, 0)
    assert (operation.idempotency_key, operation.trace_id) == ("k", "t" * 32)
    assert operation.created == operation.began == operation.next_attempt_at
    nothing = (
        "backoff_request_seconds",
        "last_attempted_at",
        "code",
        "details",
        "lease_owner",
        "lease_until",
        "finished",
    )
    assert [getattr(operation, name) for name in nothing] == [None] * len(nothing)
    assert "b'order'" not in repr(operation)


async def test_one_key_is_one_operation(store):
    """LG-1: a second submit with the same key and method returns the first operation; each method has its own keys."""
    first = await store.submit([submission(1, key="k")])
    again = await store.submit([submission(2, key="k"), submission(3, key="k", method="/shop.Orders/Cancel")])
    both = await store.submit([submission(4, key="n"), submission(5, key="n")])

    assert (again[0].id, again[0].new) == (first[0].id, False)
    assert again[1].new
    assert (both[0].new, both[1].new, both[0].id) == (True, False, both[1].id)


async def test_what_is_submitted_again(store):
    """LG-9: submitting the same operation again stores it once, even without a key."""
    first = submission(1)
    await store.submit([first])
    [again, other, twice] = await store.submit([first, submission(2), submission(2)])

    assert (again.id, again.new) == (first.id, False)
    assert (other.new, twice.new, twice.id) == (True, False, other.id)
    assert len(await store.find(Filter(), 10)) == 2


async def test_oldest_first(store):
    """LG-6: the oldest operations are claimed first, and each has one owner."""
    ids = [*await submitted(store, 1), *await submitted(store, 2), *await submitted(store, 3)]

    first = await claimed(store, 2)
    rest = await claimed(store, 2)

    assert [operation.id for operation in first] == ids[:2]
    assert [operation.id for operation in rest] == ids[2:]
    assert await claimed(store) == []
    assert (first[0].state, first[0].lease_owner, first[0].lease_token) == (OperationState.IN_PROGRESS, "me", 1)
    assert first[0].next_attempt_at is None
    assert first[0].lease_until > first[0].created


async def test_a_claim_is_for_one_target(store):
    """LG-6, LG-10: a claim returns only operations of its own target."""
    await submitted(store, 1, target="other:443")

    assert await claimed(store) == []
    assert await store.next_due(SHOP) is None
    assert await store.next_due("other:443") == 0


async def test_a_failure_writes_everything_at_once(store):
    """LG-1, LG-2, seed 001: a failure writes backoff and timestamp together; the next attempt is due at their sum."""
    await submitted(store, 1)
    [operation] = await claimed(store)

    told = await failed(store, operation, draw=0.5, details="down")
    after = await one(store, operation.id)
    [attempt] = await store.attempts(operation.id)

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
    assert 0 < await store.next_due(SHOP) <= 1


async def test_a_retry_is_claimed_when_it_is_due(store):
    """LG-6: an operation can be claimed again after its backoff, and its attempts continue to be counted."""
    await submitted(store, 1)
    [operation] = await claimed(store)
    await failed(store, operation, QUICK)
    await asyncio.sleep(0.05)

    [again] = await claimed(store)
    told = (await store.record([AttemptReport(again.id, again.lease_token, QUICK)]))[0]

    assert (again.attempts, again.lease_token) == (1, 2)
    assert (told.state, told.attempts, told.code) == (OperationState.SUCCEEDED, 2, "OK")
    assert [attempt.code for attempt in await store.attempts(again.id)] == ["UNAVAILABLE", "OK"]
    assert (await one(store, again.id)).finished is not None


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
    assert await store.next_due(SHOP) is None


async def test_exhausted(store):
    """LG-7: when the last attempt that the policy allows fails, the operation ends, and the reason is recorded."""
    policy = replace(QUICK, max_attempts=2)
    await submitted(store, 1)
    [operation] = await claimed(store)
    await failed(store, operation, policy)
    await asyncio.sleep(0.05)
    [operation] = await claimed(store)

    told = await failed(store, operation, policy)

    assert (told.state, told.reason, told.attempts) == (OperationState.FAILED, "no attempts are left", 2)


async def test_the_servers_word(store):
    """LG-4: pushback sets the wait exactly; `retry-after` sets it with jitter added."""
    await submitted(store, 1, 2)
    first, second = await claimed(store, 2)

    pushed = await failed(store, first, failure=FailedAttempt("UNAVAILABLE", ServerHint(0.5, WaitSource.PUSHBACK)))
    after = await failed(
        store,
        second,
        RETRY["standard"],
        FailedAttempt("UNAVAILABLE", ServerHint(10.0, WaitSource.RETRY_AFTER)),
        draw=0.5,
    )

    assert (pushed.delay, pushed.source) == (0.5, "grpc-retry-pushback-ms")
    assert (after.delay, after.source) == (12.5, "retry-after")


async def test_a_late_success_counts(store):
    """LG-6: a success under an expired lease ends the operation, even while another attempt is running."""
    await submitted(store, 1)
    [first] = await claimed(store, lease=0.01)
    await asyncio.sleep(0.05)
    await store.lost(SHOP, lambda _: QUICK, 10)
    await asyncio.sleep(0.05)
    [second] = await claimed(store)

    late = (await store.record([AttemptReport(first.id, first.lease_token, QUICK)]))[0]
    then = await failed(store, second, QUICK)

    assert (late.state, late.live) == (OperationState.SUCCEEDED, False)
    assert (then.state, then.live, then.delay) == (OperationState.SUCCEEDED, False, None)
    assert [attempt.code for attempt in await store.attempts(first.id)] == ["OK", "UNAVAILABLE"]
    assert (await one(store, first.id)).attempts == 2


async def test_a_late_failure_reschedules_nothing(store):
    """LG-6: a failure under an expired lease completes the lost attempt and does not affect the running one."""
    await submitted(store, 1)
    [first] = await claimed(store, lease=0.01)
    await asyncio.sleep(0.05)
    [lost] = await store.lost(SHOP, lambda _: QUICK, 10)
    await asyncio.sleep(0.05)
    [second] = await claimed(store)

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
    assert [attempt.code for attempt in await store.attempts(first.id)] == ["UNAVAILABLE"]


async def test_a_lease_that_is_extended_holds(store):
    """LG-6: `extend` extends only valid leases, and returns the ids of their operations."""
    await submitted(store, 1, 2)
    first, second = await claimed(store, 2, lease=1)
    leases = [Lease(first.id, first.lease_token), Lease(second.id, 99)]

    assert await store.extend(leases, 30.0) == {first.id}
    await asyncio.sleep(1.1)
    [lost] = await store.lost(None, lambda _: QUICK, 10)
    assert lost.id == second.id


async def test_given_back_is_as_it_was(store):
    """LG-10: a released operation has no additional attempt, and keeps its place in the queue."""
    ids = await submitted(store, 1, 2)
    [first] = await claimed(store)

    await store.release([Lease(first.id, first.lease_token)])
    operation = await one(store, first.id)

    assert (operation.state, operation.attempts, operation.lease_owner) == (OperationState.PENDING, 0, None)
    assert await store.attempts(first.id) == []
    assert [again.id for again in await claimed(store, 2)] == ids


async def test_an_old_lease_gives_nothing_back(store):
    """LG-6: releasing an old lease does not end the current one."""
    await submitted(store, 1)
    [first] = await claimed(store)

    await store.release([Lease(first.id, first.lease_token - 1)])

    assert (await one(store, first.id)).state is OperationState.IN_PROGRESS


async def test_a_hint_at_the_cap_is_spread(store):
    """LG-4: five operations that are told to wait for as long as the cap, or longer, do not all come back together."""
    await submitted(store, *range(5))
    hint = ServerHint(60.0, WaitSource.RETRY_AFTER)

    told = [
        await failed(store, each, failure=FailedAttempt("UNAVAILABLE", hint), draw=draw / 5)
        for draw, each in enumerate(await claimed(store, 5))
    ]

    assert [each.delay for each in told] == pytest.approx([54.0, 55.2, 56.4, 57.6, 58.8])


@pytest.mark.parametrize("gone", [0.5, 2.0])
async def test_a_loss_is_measured_from_the_leases_end(store, url, gone):
    """LG-3, LG-6: when a loss is recorded, the operation is due at the time that `ready` has said before."""
    [id_] = await submitted(store, 1)
    [operation] = await claimed(store)
    await expired(url, gone)
    [before] = await store.ready(Filter(ids=(id_,)), 1, policy_of)
    await store.lost(SHOP, policy_of, 1)
    [after] = await store.ready(Filter(ids=(id_,)), 1, policy_of)

    assert (before.ready, before.why) == (gone > 1, "its owner is gone")
    assert after.ready == before.ready
    assert after.at == pytest.approx(before.at, abs=2e-6, rel=0)
    assert len(await claimed(store)) == before.ready
    assert (await store.attempts(operation.id))[0].ended == pytest.approx(before.at - 1.0, abs=2e-6, rel=0)


async def expired(url, seconds):
    """Let all leases have expired this many seconds ago."""
    sqlite = "(julianday('now') - 2440587.5) * 86400.0 - {}"
    now = "clock_timestamp() - make_interval(secs => {})" if "://" in url else sqlite
    execute(url, f"UPDATE {{}} SET lease_until = {now} WHERE lease_until IS NOT NULL", seconds)


async def test_backoff_and_timestamp_at_once(store):
    """Seed 001: `set_backoff` writes backoff and timestamp together; it returns False for an unknown operation."""
    [id_] = await submitted(store, 1)

    assert await store.set_backoff(id_, 60.0, policy_of) is True
    assert await store.set_backoff(submission(9).id, 60.0, policy_of) is False
    operation = await one(store, id_)
    assert operation.backoff_request_seconds == 60.0
    assert operation.next_attempt_at == pytest.approx(operation.last_attempted_at + 60.0, abs=1e-6)


async def test_ready(store):
    """LG-5: `ready` reports for many operations at once whether and when each is ready, and why."""
    ids = await submitted(store, 1, 2, 3, 4, 5)
    await store.set_backoff(ids[1], 60.0, policy_of)
    _, gone, done = [operation for operation in await claimed(store, 9, lease=60.0) if operation.id != ids[0]]
    await store.release([Lease(ids[0], 1)])
    await store.record([AttemptReport(done.id, done.lease_token, STEPS)])
    await store.extend([Lease(gone.id, gone.lease_token)], 0.001)
    await asyncio.sleep(0.05)

    told = {each.id: each for each in await store.ready(Filter(ids=tuple(ids)), 10, policy_of)}

    assert [(told[id_].ready, told[id_].why) for id_ in ids] == [
        (True, "due"),
        (False, "backoff"),
        (False, "in progress"),
        (False, "its owner is gone"),
        (False, "succeeded"),
    ]
    waiting = await one(store, ids[1])
    assert told[ids[1]].at == pytest.approx(waiting.last_attempted_at + 60.0, abs=1e-3)
    assert told[ids[3]].at == pytest.approx((await one(store, gone.id)).lease_until + 1.0, abs=1e-3)
    assert told[ids[4]].at is None
    assert len(await store.ready(Filter(target=SHOP), 2, policy_of)) == 2


async def test_where_the_owner_died_readiness_keeps_to_the_policy(store):
    """LG-3, seed 001: after its owner died, an operation is not ready before the policy's smallest wait."""
    await submitted(store, 1)
    [operation] = await claimed(store, lease=0.001)
    await asyncio.sleep(0.05)

    [told] = await store.ready(Filter(ids=(operation.id,)), 1, lambda _: STEPS)
    [lost] = await store.lost(SHOP, lambda _: STEPS, 1)
    after = await one(store, operation.id)

    low, high = STEPS.bounds(1)
    assert (told.ready, told.why) == (False, "its owner is gone")
    assert low <= told.at - operation.lease_until <= high
    assert low <= lost.delay <= high
    assert after.next_attempt_at >= operation.lease_until + low


@pytest.mark.parametrize("round_", range(3))
async def test_ten_orchestrators(store, url, settings, round_):
    """LG-2, seed 001: ten stores that record a failure at once count ten attempts; the tenth determines the wait."""
    [id_] = await submitted(store, 1)
    stores = [open_store(url, settings) for _ in range(10)]
    try:
        told = await asyncio.gather(
            *(each.record([AttemptReport(id_, None, STEPS, UNAVAILABLE, draw=CHANCE.random())]) for each in stores)
        )
    finally:
        await asyncio.gather(*(each.close() for each in stores))
    operation = await one(store, id_)

    assert sorted(each.attempts for [each] in told) == list(range(1, 11))
    assert [attempt.number for attempt in await store.attempts(id_)] == list(range(1, 11))
    assert (operation.attempts, operation.state) == (10, OperationState.WAITING)
    low, high = STEPS.bounds(10)
    assert low <= operation.backoff_request_seconds <= high
    assert operation.next_attempt_at == pytest.approx(
        operation.last_attempted_at + operation.backoff_request_seconds, abs=1e-6
    )


async def test_begin_anew(store):
    """LG-7, LG-8: `begin_anew` resets the attempts but keeps the history; it may replace the request of a conflict."""
    ids = await submitted(store, 1, 2)
    first, _ = await claimed(store, 2)
    await failed(store, first, failure=FailedAttempt("ABORTED"))

    assert await store.begin_anew([ids[0]], [OperationState.FAILED], None) == []
    assert await store.begin_anew(ids, [OperationState.CONFLICT], b"another") == [ids[0]]
    operation = await one(store, ids[0])
    assert (operation.state, operation.attempts, operation.request) == (OperationState.PENDING, 0, b"another")
    assert (operation.recorded, operation.finished) == (1, None)
    [again] = await claimed(store)
    await failed(store, again)
    assert [attempt.number for attempt in await store.attempts(ids[0])] == [1, 2]
    assert (await one(store, ids[0])).attempts == 1


async def test_discard_is_final(store):
    """LG-7: a discarded operation is not claimed, and a late success does not bring it back."""
    ids = await submitted(store, 1, 2)
    [first] = await claimed(store)

    assert sorted(await store.discard([*ids, submission(9).id])) == sorted(ids)
    assert await store.discard(ids) == []
    told = (await store.record([AttemptReport(first.id, first.lease_token, STEPS)]))[0]

    assert (told.state, told.live) == (OperationState.DISCARDED, False)
    assert await claimed(store) == []


async def test_prune(store):
    """LG-11: `prune` deletes old finished operations with their attempts, and failed ones only on request."""
    ids = await submitted(store, 1, 2, 3)
    first, second, _ = await claimed(store, 3)
    await store.record([AttemptReport(first.id, first.lease_token, STEPS)])
    await failed(store, second, failure=FailedAttempt("INTERNAL"))

    assert await store.prune(60.0, [OperationState.SUCCEEDED], 10) == 0
    assert await store.prune(0.0, [OperationState.SUCCEEDED, OperationState.DISCARDED], 10) == 1
    assert [operation.id for operation in await store.find(Filter(), 10)] == ids[1:]
    assert await store.attempts(ids[0]) == []
    assert await store.prune(0.0, [OperationState.FAILED], 10) == 1


async def test_what_pruning_looks_at(store, url):
    """LG-11: pruning finds the operations to delete through an index of finished operations."""
    where = "WHERE NOT open AND state IN ('succeeded', 'discarded') AND finished <= {}"
    if url.startswith("postgresql:"):
        where = where.format("now()")
        with psycopg.connect(url) as connection:
            connection.execute("SET enable_seqscan = off")
            rows = connection.execute(f"EXPLAIN SELECT seq FROM grpc_backoff.operations {where}").fetchall()
    else:
        with contextlib.closing(sqlite3.connect(url)) as connection:
            statement = f"EXPLAIN QUERY PLAN SELECT seq FROM ledger_operations {where.format(0)}"
            rows = connection.execute(statement).fetchall()

    assert "operations_finished" in str(rows)


async def test_queue(store):
    """LG-7: `queue` reports how many operations wait, the age of the oldest, and the counts by state."""
    await submitted(store, 1, 2, 3)
    [first] = await claimed(store)
    await store.record([AttemptReport(first.id, first.lease_token, STEPS)])
    await asyncio.sleep(0.02)

    queue = await store.queue(SHOP)

    assert queue.counts == {OperationState.SUCCEEDED: 1, OperationState.PENDING: 2}
    assert (queue.length, await store.waiting(100), await store.waiting(1)) == (2, 2, 1)
    assert 0.02 <= queue.oldest < 60
    assert (await store.queue("nowhere")).length == 0
    assert (await store.queue(None)).length == 2


async def test_find(store):
    """LG-7: operations are found by state, target, method, age and id."""
    ids = await submitted(store, 1)
    await submitted(store, 2, target="other:443", method="/shop.Orders/Cancel")

    async def found(**which):
        return [operation.id for operation in await store.find(Filter(**which), 10)]

    assert await found(target=SHOP) == await found(method="/shop.Orders/Place") == ids
    assert len(await found(states=(OperationState.PENDING,))) == 2
    assert await found(states=tuple(FINISHED)) == await found(older_than=60.0) == await found(ids=()) == []


async def test_a_report_of_nothing(store):
    """LG-2: recording a report for an unknown operation returns a result without a state."""
    assert (await store.record([AttemptReport(submission(1).id, None, STEPS)]))[0].state is None
    assert (await store.record([AttemptReport(submission(1).id, None, STEPS, UNAVAILABLE)]))[0].state is None


async def test_many_reports_at_once(store):
    """LG-2: a batch of successes and failures is recorded together, and the results keep its order."""
    await submitted(store, *range(20))
    operations = await claimed(store, 20)
    reports = [
        AttemptReport(each.id, each.lease_token, STEPS, UNAVAILABLE if index % 3 else None, draw=0.5)
        for index, each in enumerate(reversed(operations))
    ]

    told = await store.record(reports)

    assert [each.id for each in told] == [report.id for report in reports]
    assert [each.state for each in told] == [
        OperationState.WAITING if report.failure else OperationState.SUCCEEDED for report in reports
    ]


async def test_many_operations_at_once(store):
    """LG-7, LG-9: thousands of operations are submitted, and discarded, in one transaction each."""
    ids = await submitted(store, *range(6000))
    again = await store.submit([submission(number) for number in range(6000)])

    assert [told.id for told in again] == ids
    assert not any(told.new for told in again)
    assert len(await store.discard(ids)) == 6000


async def test_migrating_twice(url, settings):
    """LG-13: of ten stores that migrate at once, only one applies the migrations; existing tables are kept."""
    stores = [open_store(url, settings) for _ in range(10)]
    try:
        told = await asyncio.gather(*(each.migrate(apply=True) for each in stores))
        newest = told[0][1]
        await submitted(stores[0], 1)
        again = await stores[1].migrate(apply=True)
        only_looked = await stores[1].migrate(apply=False)
        kept = await stores[1].find(Filter(), 10)
    finally:
        await asyncio.gather(*(each.close() for each in stores))

    assert sorted(told) == [(0, newest)] + [(newest, newest)] * 9
    assert again == only_looked == (newest, newest)
    assert len(kept) == 1


BAD = [
    ("request", "'text'", "sqlite"),
    ("next_attempt_at", "'soon'", "sqlite"),
    ("created", "'then'", "sqlite"),
    ("attempts", "'many'", "sqlite"),
    ("state", "'lost'", "both"),
    ("metadata", "'{{'", "both"),
    ("next_attempt_at", "'infinity'", "postgres"),
    ("backoff_request_seconds", "'NaN'", "postgres"),
]


@pytest.mark.parametrize(("column", "value", "where"), BAD)
async def test_one_bad_row(store, url, column, value, where):
    """LG-10: a row that cannot be read is shown as such, and never stops what is done with the others."""
    if where not in ("both", "postgres" if "://" in url else "sqlite"):
        return
    bad, good = await submitted(store, 1, 2)
    execute(url, "UPDATE {} SET state = 'waiting_for_retry', last_attempted_at = created WHERE id = {}", bad)
    execute(url, f"UPDATE {{}} SET {column} = {value} WHERE id = {{}}", bad)

    found = {each.id: each for each in await store.find(Filter(), 10)}
    ready = {each.id: each for each in await store.ready(Filter(), 10, policy_of)}
    due, queue = await store.next_due(SHOP), await store.queue(None)
    taken = [each for each in await claimed(store, 10) if each.id == good]
    told = await store.record([AttemptReport(each.id, each.lease_token, STEPS) for each in taken])

    assert found[good].problem is None
    assert ready[good].ready
    assert column in found[bad].problem or "OperationState" in found[bad].problem
    assert due == 0
    assert queue.length >= 1
    assert [each.state for each in told] == [OperationState.SUCCEEDED]


async def test_one_after_the_other(store):
    """LG-15: of the operations of one order key, only the oldest unfinished one is claimed; keys do not hold others."""
    first, second, other, free = [
        (await submitted(store, number, order_key=key))[0] for number, key in enumerate(["a", "a", "b", None], 1)
    ]
    [told] = await store.ready(Filter(ids=(second,)), 1, policy_of)
    taken = await claimed(store, 10)
    assert (told.ready, told.at, told.why) == (False, None, "blocked")
    assert [each.id for each in taken] == [first, other, free]
    assert await store.next_due(SHOP) is None

    await failed(store, taken[0], QUICK)
    assert second not in [each.id for each in await claimed(store, 10)]


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "ABORTED"])
@pytest.mark.parametrize("aside", [False, True])
async def test_what_holds_its_key(store, code, aside):
    """LG-15: a failed or conflicting operation holds its order key until it is discarded; `queue` counts such keys."""
    first, second = await submitted(store, 1, 2, order_key="a")
    [operation] = await claimed(store, 10)
    await failed(store, operation, failure=FailedAttempt(code))
    if aside:
        await store.set_aside(SHOP, 10)
    held = (await store.queue(SHOP)).held_keys
    none = await claimed(store, 10)
    await store.discard([first])

    assert (held, none) == (1, [])
    assert [each.id for each in await claimed(store, 10)] == [second]
    assert (await store.queue(SHOP)).held_keys == 0


async def test_what_is_set_aside_is_taken_up(store):
    """LG-15: operations behind others are set aside, and taken up when those before them have succeeded or are gone."""
    ids = await submitted(store, 1, 2, 3, order_key="a")
    await store.set_aside(SHOP, 10)
    aside = [(await one(store, id_)).next_attempt_at is None for id_ in ids]
    order = []
    while taken := await claimed(store, 10):
        order += [each.id for each in taken]
        await store.record([AttemptReport(each.id, each.lease_token, STEPS) for each in taken])

    assert aside == [False, True, True]
    assert order == ids


async def test_what_is_in_nobodys_way_is_not_set_aside(store):
    """LG-15: only the first due operations are set aside, because each of the others may never have to be."""
    ids = await submitted(store, 1, 2, 3, order_key="a")
    await store.set_aside(SHOP, 2)

    assert [(await one(store, id_)).next_attempt_at is None for id_ in ids] == [False, True, False]


async def test_what_is_before_was_deleted(store, url):
    """LG-15: if the operation before was deleted by other means, the next one is taken up by a look at all keys.

    Until then, `ready` says that it is not ready.
    """
    first, second = await submitted(store, 1, 2, order_key="a")
    await store.set_aside(SHOP, 10)
    execute(url, "DELETE FROM {} WHERE id = {}", first)
    [told] = await store.ready(Filter(), 1, policy_of)
    assert (told.ready, told.at, told.why) == (False, None, "pending")
    assert await claimed(store) == []
    await store.take_up()
    assert [each.id for each in await claimed(store)] == [second]


async def test_not_before(store):
    """LG-9: an operation is not claimed before the time that was given with it."""
    [told] = await store.submit([submission(1, not_before=time.time() + 60)])
    await submitted(store, 2, not_before=1.0)

    assert [each.id for each in await claimed(store, 10)] == [submission(2).id]
    assert 50 < await store.next_due(SHOP) <= 60
    assert (await store.ready(Filter(ids=(told.id,)), 1, policy_of))[0].ready is False


async def test_paused(store):
    """LG-16: nothing is claimed for a paused target, and `ready` and `queue` say so; after `resume`, it is."""
    [id_] = await submitted(store, 1)
    await store.pause(f"dns:///{SHOP}")
    await store.pause(SHOP)
    [told] = await store.ready(Filter(), 1, policy_of)

    assert await claimed(store) == []
    assert (await store.next_due(SHOP), told.ready, told.why) == (None, False, "paused")
    assert (await store.queue(SHOP)).paused == (await store.queue(None)).paused == (SHOP,)
    assert [await store.resume(SHOP), await store.resume(SHOP)] == [True, False]
    assert [each.id for each in await claimed(store)] == [id_]


async def test_claims_of_one_method(store):
    """LG-6: a claim can be limited to one method, or leave methods out."""
    await submitted(store, 1)
    await submitted(store, 2, method="/shop.Orders/Cancel")
    no_others = await store.next_due(SHOP, (), ["/shop.Orders/Place", "/shop.Orders/Cancel"])
    [place] = await store.claim(SHOP, 9, "me", 30.0, method="/shop.Orders/Place")
    [cancel] = await store.claim(SHOP, 9, "me", 30.0, methods_without=["/shop.Orders/Place"])

    assert (no_others, place.method, cancel.method) == (None, "/shop.Orders/Place", "/shop.Orders/Cancel")


async def test_pages(store):
    """LG-7: operations are found by keys and code, newest first if wanted, and page by page."""
    ids = await submitted(store, *range(1, 6), order_key="a")
    [keyed] = await submitted(store, 6, key="k")
    [operation] = [each for each in await claimed(store, 2) if each.id == ids[0]]
    await failed(store, operation)

    async def found(limit=10, **how):
        which = {name: how.pop(name) for name in ("order_key", "idempotency_key", "code") if name in how}
        return [each.id for each in await store.find(Filter(**which), limit, **how)]

    assert await found(order_key="a") == ids
    assert await found(idempotency_key="k") == [keyed]
    assert await found(code="UNAVAILABLE") == ids[:1]
    assert await found(3, newest_first=True) == [keyed, ids[4], ids[3]]
    assert await found(3, newest_first=True, after=ids[3]) == ids[2::-1]
    assert await found(2, after=ids[0]) == ids[1:3]


async def test_numbers_of_many(store, monkeypatch):
    """LG-11: beyond the rows that are counted, the numbers are estimates, and say so."""
    monkeypatch.setattr(counting, "_SAMPLE", 10)
    await submitted(store, *range(25))
    few, many = await store.waiting(5), await store.queue(None)

    assert few == 5
    assert many.estimated
    assert many.length >= 10


async def test_numbers_without_statistics(store, monkeypatch):
    """LG-11: where the database has no statistics of the table yet, or old ones, the numbers are not the sample's."""
    monkeypatch.setattr(counting, "_SAMPLE", 10)
    await submitted(store, *range(25))

    assert (await store.queue(None)).length == 25


def test_samples_are_scaled():
    """LG-11: the counts of a sample are scaled to the size of the table."""
    rows = [("a", "pending", 30, 0.0, 0.0), ("b", "failed", 10, 0.0, 0.0)]
    assert [row[2] for row in counting._scaled(rows, 400)] == [300, 100]
    assert [row[2] for row in counting._scaled(rows, -1)] == [30, 10]
