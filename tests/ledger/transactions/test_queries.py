"""Queries on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.ledger.operation import FINISHED, OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter, Lease
from grpc_backoff.ledger.transactions import claiming, queries, recording
from tests.ledger.steps import SHOP, STEPS, claimed, failed, one, policy_of, submitted


async def test_ready(store):
    """LG-5: `ready` reports for many operations at once whether and when each is ready, and why."""
    ids = await submitted(store, 1, 2, 3, 4, 5)
    await recording.set_backoff(store, ids[1], 60.0, policy_of)
    _, gone, done = [operation for operation in await claimed(store, 9, lease=60.0) if operation.id != ids[0]]
    await claiming.release(store, [Lease(ids[0], 1)])
    await recording.record_ends(store, [AttemptReport(done.id, done.lease_token, STEPS)])
    await claiming.extend(store, [Lease(gone.id, gone.lease_token)], 0.001)
    await asyncio.sleep(0.05)

    told = {each.id: each for each in await queries.ready(store, Filter(ids=tuple(ids)), 10, policy_of)}

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
    assert len(await queries.ready(store, Filter(target=SHOP), 2, policy_of)) == 2


async def test_where_the_owner_died_readiness_keeps_to_the_policy(store):
    """LG-3, seed 001: after its owner died, an operation is not ready before the policy's smallest wait."""
    await submitted(store, 1)
    [operation] = await claimed(store, lease=0.001)
    await asyncio.sleep(0.05)

    [told] = await queries.ready(store, Filter(ids=(operation.id,)), 1, lambda _: STEPS)
    [lost] = await recording.lost(store, SHOP, lambda _: STEPS, 1)
    after = await one(store, operation.id)

    low, high = STEPS.bounds(1)
    assert (told.ready, told.why) == (False, "its owner is gone")
    assert low <= told.at - operation.lease_until <= high
    assert low <= lost.delay <= high
    assert after.next_attempt_at >= operation.lease_until + low


async def test_find(store):
    """LG-7: operations are found by state, target, method, age and id."""
    ids = await submitted(store, 1)
    await submitted(store, 2, target="other:443", method="/shop.Orders/Cancel")

    async def found(**which):
        return [operation.id for operation in await queries.find(store, Filter(**which), 10)]

    assert await found(target=SHOP) == await found(method="/shop.Orders/Place") == ids
    assert len(await found(states=(OperationState.PENDING,))) == 2
    assert await found(states=tuple(FINISHED)) == await found(older_than=60.0) == await found(ids=()) == []


async def test_pages(store):
    """LG-7: operations are found by keys and code, newest first if wanted, and page by page."""
    ids = await submitted(store, *range(1, 6), order_key="a")
    [keyed] = await submitted(store, 6, key="k")
    [operation] = [each for each in await claimed(store, 2) if each.id == ids[0]]
    await failed(store, operation)

    async def found(limit=10, **how):
        which = {name: how.pop(name) for name in ("order_key", "idempotency_key", "code") if name in how}
        return [each.id for each in await queries.find(store, Filter(**which), limit, **how)]

    assert await found(order_key="a") == ids
    assert await found(idempotency_key="k") == [keyed]
    assert await found(code="UNAVAILABLE") == ids[:1]
    assert await found(3, newest_first=True) == [keyed, ids[4], ids[3]]
    assert await found(3, newest_first=True, after=ids[3]) == ids[2::-1]
    assert await found(2, after=ids[0]) == ids[1:3]


def test_an_unknown_state():
    """LG-5: a state may be given as text, and one that does not exist is an error that lists the states."""
    assert Filter(states=("failed",)) == Filter(states=(OperationState.FAILED,))
    with pytest.raises(
        OptionError, match=r"^Filter\.states='dead': expected 'pending', 'in_progress', .* or 'expired'$"
    ):
        Filter(states=("dead",))
