"""Claiming on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff.ledger.operation import OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter, Lease
from grpc_backoff.ledger.transactions import claiming, counting, manual, queries, recording
from tests.ledger.conftest import execute, open_store, submission
from tests.ledger.steps import CHANCE, QUICK, SHOP, STEPS, UNAVAILABLE, claimed, failed, one, policy_of, submitted


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
    assert await claiming.next_due(store, SHOP) is None
    assert await claiming.next_due(store, "other:443") == 0


async def test_a_retry_is_claimed_when_it_is_due(store):
    """LG-6: an operation can be claimed again after its backoff, and its attempts continue to be counted."""
    await submitted(store, 1)
    [operation] = await claimed(store)
    await failed(store, operation, QUICK)
    await asyncio.sleep(0.05)

    [again] = await claimed(store)
    told = (await recording.record_ends(store, [AttemptReport(again.id, again.lease_token, QUICK)]))[0]

    assert (again.attempts, again.lease_token) == (1, 2)
    assert (told.state, told.attempts, told.code) == (OperationState.SUCCEEDED, 2, "OK")
    assert [attempt.code for attempt in await queries.attempts(store, again.id)] == ["UNAVAILABLE", "OK"]
    assert (await one(store, again.id)).finished is not None


async def test_a_lease_that_is_extended_holds(store):
    """LG-6: `extend` extends only valid leases and returns the ids of their operations."""
    await submitted(store, 1, 2)
    first, second = await claimed(store, 2, lease=1)
    leases = [Lease(first.id, first.lease_token), Lease(second.id, 99)]

    assert await claiming.extend(store, leases, 30.0) == {first.id}
    await asyncio.sleep(1.1)
    [lost] = await recording.lost(store, SHOP, lambda _: QUICK, 10)
    assert lost.id == second.id


async def test_given_back_is_as_it_was(store):
    """LG-10: a released operation has no additional attempt and keeps its place in the queue."""
    ids = await submitted(store, 1, 2)
    [first] = await claimed(store)

    await claiming.release(store, [Lease(first.id, first.lease_token)])
    operation = await one(store, first.id)

    assert (operation.state, operation.attempts, operation.lease_owner) == (OperationState.PENDING, 0, None)
    assert await queries.attempts(store, first.id) == []
    assert [again.id for again in await claimed(store, 2)] == ids


async def test_an_old_lease_gives_nothing_back(store):
    """LG-6: releasing an old lease does not end the current one."""
    await submitted(store, 1)
    [first] = await claimed(store)

    await claiming.release(store, [Lease(first.id, first.lease_token - 1)])

    assert (await one(store, first.id)).state is OperationState.IN_PROGRESS


@pytest.mark.parametrize("round_", range(3))
async def test_ten_orchestrators(store, url, settings, round_):
    """LG-2, seed 001: ten stores that record a failure at once count ten attempts; the tenth determines the wait."""
    [id_] = await submitted(store, 1)
    stores = [open_store(url, settings) for _ in range(10)]
    try:
        told = await asyncio.gather(
            *(
                recording.record_ends(each, [AttemptReport(id_, None, STEPS, UNAVAILABLE, draw=CHANCE.random())])
                for each in stores
            )
        )
    finally:
        await asyncio.gather(*(each.close() for each in stores))
    operation = await one(store, id_)

    assert sorted(each.attempts for [each] in told) == list(range(1, 11))
    assert [attempt.number for attempt in await queries.attempts(store, id_)] == list(range(1, 11))
    assert (operation.attempts, operation.state) == (10, OperationState.WAITING)
    low, high = STEPS.bounds(10)
    assert low <= operation.backoff_request_seconds <= high
    assert operation.next_attempt_at == pytest.approx(
        operation.last_attempted_at + operation.backoff_request_seconds, abs=1e-6
    )


async def test_paused(store):
    """LG-16: nothing is claimed for a paused target, and `ready` and `queue` say so; after `resume`, it is."""
    [id_] = await submitted(store, 1)
    await manual.pause(store, f"dns:///{SHOP}")
    await manual.pause(store, SHOP)
    [told] = await queries.ready(store, Filter(), 1, policy_of)

    assert await claimed(store) == []
    assert (await claiming.next_due(store, SHOP), told.ready, told.why) == (None, False, "paused")
    assert (await counting.queue(store, SHOP)).paused == (await counting.queue(store, None)).paused == (SHOP,)
    assert [await manual.resume(store, SHOP), await manual.resume(store, SHOP)] == [True, False]
    assert [each.id for each in await claimed(store)] == [id_]


async def test_claims_of_one_method(store):
    """LG-6: a claim can be limited to one method, or leave methods out."""
    await submitted(store, 1)
    await submitted(store, 2, method="/shop.Orders/Cancel")
    no_others = await claiming.next_due(store, SHOP, (), ["/shop.Orders/Place", "/shop.Orders/Cancel"])
    [place] = await claiming.claim(store, SHOP, 9, "me", 30.0, method="/shop.Orders/Place")
    [cancel] = await claiming.claim(store, SHOP, 9, "me", 30.0, methods_without=["/shop.Orders/Place"])

    assert (no_others, place.method, cancel.method) == (None, "/shop.Orders/Place", "/shop.Orders/Cancel")


async def test_what_an_owner_does_not_know_of(store):
    """LG-6: `reclaim` returns what an owner has claimed without knowing it, and extends the lease; nothing else."""
    await submitted(store, *range(1, 6))
    known, unknown = await claiming.claim(store, SHOP, 2, "me", 30.0)
    await claiming.claim(store, SHOP, 1, "another", 30.0)
    await claiming.claim(store, SHOP, 1, "me", 0.001)
    await asyncio.sleep(0.05)

    [found] = await claiming.reclaim(store, SHOP, "me", 60.0, [Lease(known.id, known.lease_token)])

    assert (found.id, found.lease_token) == (unknown.id, unknown.lease_token)
    assert found.lease_until > unknown.lease_until + 20
    assert await claiming.reclaim(store, "other:443", "me", 60.0, []) == []
    assert {each.id for each in await claiming.reclaim(store, SHOP, "me", 60.0, [])} == {known.id, unknown.id}


async def test_due_since_ever(store, url):
    """LG-10: an operation whose time is `-infinity`, which other means wrote, is due now and hides no others."""
    await submitted(store, 1, 2)
    value = "-infinity" if "://" in url else float("-inf")
    execute(url, "UPDATE {} SET next_attempt_at = {} WHERE id = {}", value, submission(1).id)

    assert await claiming.next_due(store, SHOP) == 0.0
    assert len(await claimed(store, 2)) == 2
