"""Counting on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import time

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.operation import OperationState
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.transactions import counting, recording
from tests.ledger.steps import SHOP, STEPS, claimed, submitted


async def test_queue(store):
    """LG-7: `queue` reports how many operations wait, the age of the oldest, and the counts by state."""
    await submitted(store, 1, 2, 3)
    [first] = await claimed(store)
    await recording.record_ends(store, [AttemptReport(first.id, first.lease_token, STEPS)])
    await asyncio.sleep(0.02)

    queue = await counting.queue(store, SHOP)

    assert queue.counts == {OperationState.SUCCEEDED: 1, OperationState.PENDING: 2}
    assert (queue.length, await counting.waiting(store, 100), await counting.waiting(store, 1)) == (2, 2, 1)
    assert 0.02 <= queue.oldest < 60
    assert (await counting.queue(store, "nowhere")).length == 0
    assert (await counting.queue(store, None)).length == 2


async def test_an_operation_for_later_does_not_wait(store):
    """LG-7: an operation does not wait before the earliest time of its first attempt."""
    await submitted(store, 1, not_before=time.time() + 86_400)
    await asyncio.sleep(0.02)
    queue = await counting.queue(store, SHOP)
    await submitted(store, 2, not_before=time.time() - 86_400)
    await asyncio.sleep(0.02)

    assert (queue.counts, queue.oldest) == ({OperationState.PENDING: 1}, 0)
    assert 0.02 <= (await counting.queue(store, SHOP)).oldest < 60


async def test_numbers_of_many(store, monkeypatch):
    """LG-11: beyond the rows that are counted, the numbers are estimates and say so.

    Where the database has no statistics of the table yet, or old ones, they are not the sample's.
    """
    monkeypatch.setattr(counting, "_SAMPLE", 10)
    await submitted(store, *range(25))
    few, many = await counting.waiting(store, 5), await counting.queue(store, None)

    assert few == 5
    assert many.estimated
    assert many.length == 25


def test_samples_are_scaled():
    """LG-11: the counts of a sample are scaled to the size of the table."""
    rows = [("a", "pending", 30, 0.0, 0.0), ("b", "failed", 10, 0.0, 0.0)]
    assert [row[2] for row in counting._scaled(rows, 400)] == [300, 100]
    assert [row[2] for row in counting._scaled(rows, -1)] == [30, 10]


async def test_held_keys_beside_the_sample(store, monkeypatch):
    """LG-11, LG-15: order keys that are held count even if no operation of their target is among the rows counted."""
    monkeypatch.setattr(counting, "_SAMPLE", 1)
    for number in (1, 2, 3):
        [id_] = await submitted(store, number, target=f"shop:{number}", order_key="a")
        await recording.record_ends(store, [AttemptReport(id_, None, STEPS, FailedAttempt("INTERNAL"))])

    queues = await counting.queues(store)

    assert [queues[f"shop:{number}"].held_keys for number in (1, 2, 3)] == [1, 1, 1]
    assert (await counting.queue(store, None)).held_keys == 3
