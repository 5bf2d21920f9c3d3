"""Order keys on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.ledger.transactions import claiming, counting, manual, order_keys, queries, recording
from tests.ledger.conftest import execute
from tests.ledger.steps import QUICK, SHOP, STEPS, claimed, failed, one, policy_of, submitted


async def test_one_after_the_other(store):
    """LG-15: of the operations of one order key, only the oldest unfinished one is claimed; keys do not hold others."""
    first, second, other, free = [
        (await submitted(store, number, order_key=key))[0] for number, key in enumerate(["a", "a", "b", None], 1)
    ]
    [told] = await queries.ready(store, Filter(ids=(second,)), 1, policy_of)
    taken = await claimed(store, 10)
    assert (told.ready, told.at, told.why) == (False, None, "blocked")
    assert [each.id for each in taken] == [first, other, free]
    assert await claiming.next_due(store, SHOP) is None

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
        await order_keys.set_aside(store, SHOP, 10, 10)
    held = (await counting.queue(store, SHOP)).held_keys
    none = await claimed(store, 10)
    await manual.discard(store, [first])

    assert (held, none) == (1, [])
    assert [each.id for each in await claimed(store, 10)] == [second]
    assert (await counting.queue(store, SHOP)).held_keys == 0


async def test_what_is_set_aside_is_taken_up(store):
    """LG-15: operations behind others are set aside, and taken up when those before them have succeeded or are gone."""
    ids = await submitted(store, 1, 2, 3, order_key="a")
    await order_keys.set_aside(store, SHOP, 10, 10)
    aside = [(await one(store, id_)).next_attempt_at is None for id_ in ids]
    order = []
    while taken := await claimed(store, 10):
        order += [each.id for each in taken]
        await recording.record_ends(store, [AttemptReport(each.id, each.lease_token, STEPS) for each in taken])

    assert aside == [False, True, True]
    assert order == ids


async def test_what_is_in_nobodys_way_is_not_set_aside(store):
    """LG-15: only the first due operations are set aside, because each of the others may never have to be."""
    ids = await submitted(store, 1, 2, 3, order_key="a")
    await order_keys.set_aside(store, SHOP, 2, 10)

    assert [(await one(store, id_)).next_attempt_at is None for id_ in ids] == [False, True, False]


async def test_what_others_are_ahead_of_is_not_set_aside(store):
    """LG-15: an operation is not set aside if a claim finds enough others before it."""
    ids = await submitted(store, 1, order_key="a")
    ids += await submitted(store, 2, order_key="a")
    ids += await submitted(store, 3, order_key="b")
    ids += await submitted(store, 4, order_key="a")
    ids += await submitted(store, 5)
    await order_keys.set_aside(store, SHOP, 10, 2)

    assert [(await one(store, id_)).next_attempt_at is None for id_ in ids] == [False, True, False, False, False]
    assert [each.id for each in await claimed(store, 2)] == [ids[0], ids[2]]


async def test_what_is_before_was_deleted(store, url):
    """LG-15: if the operation before was deleted by other means, the next one is taken up by a look at all keys.

    Until then, `ready` says that it is not ready.
    """
    first, second = await submitted(store, 1, 2, order_key="a")
    await order_keys.set_aside(store, SHOP, 10, 10)
    execute(url, "DELETE FROM {} WHERE id = {}", first)
    [told] = await queries.ready(store, Filter(), 1, policy_of)
    assert (told.ready, told.at, told.why) == (False, None, "pending")
    assert await claimed(store) == []
    await order_keys.take_up(store)
    assert [each.id for each in await claimed(store)] == [second]
