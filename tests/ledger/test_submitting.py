"""Submitting on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import time

from grpc_backoff.ledger.records import Filter, OperationState
from tests.ledger.conftest import submission
from tests.ledger.steps import SHOP, claimed, one, policy_of, submitted


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


async def test_many_operations_at_once(store):
    """LG-7, LG-9: thousands of operations are submitted, and discarded, in one transaction each."""
    ids = await submitted(store, *range(6000))
    again = await store.submit([submission(number) for number in range(6000)])

    assert [told.id for told in again] == ids
    assert not any(told.new for told in again)
    assert len(await store.discard(ids)) == 6000


async def test_not_before(store):
    """LG-9: an operation is not claimed before the time that was given with it."""
    [told] = await store.submit([submission(1, not_before=time.time() + 60)])
    await submitted(store, 2, not_before=1.0)

    assert [each.id for each in await claimed(store, 10)] == [submission(2).id]
    assert 50 < await store.next_due(SHOP) <= 60
    assert (await store.ready(Filter(ids=(told.id,)), 1, policy_of))[0].ready is False
