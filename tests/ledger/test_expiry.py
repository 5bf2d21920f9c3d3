"""`not_after`: operations that are not executed in time expire."""

from __future__ import annotations

import time

import pytest

from grpc_backoff import OptionError
from grpc_backoff.ledger import Filter, Ledger, LedgerHooks, OperationExpired, OperationState, sync
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.transactions import claiming, counting, manual, order_keys, queries, recording
from tests.echo import Message
from tests.ledger.conftest import SETTINGS, connected
from tests.ledger.delivery.test_delivery import at_work, until
from tests.ledger.steps import QUICK, SHOP, UNAVAILABLE, claimed, expired, failed, one, submitted

PAST = 1.0
FAR = 4e9


async def test_it_expires(store):
    """LG-17: after `not_after`, an operation is neither claimed nor due; it ends as expired, and others do not."""
    late, far, plain = [
        (await submitted(store, number, not_after=when))[0] for number, when in enumerate((PAST, FAR, None), 1)
    ]

    taken = await claimed(store, 10)
    ended = await claiming.expire(store, SHOP, 10)

    assert [each.id for each in taken] == [far, plain]
    assert [(each.id, each.state, each.not_after) for each in ended] == [(late, OperationState.EXPIRED, PAST)]
    assert ended[0].finished is not None
    assert await claiming.expire(store, SHOP, 10) == []
    assert (await counting.queue(store, SHOP)).counts[OperationState.EXPIRED] == 1
    assert (await counting.queue(store, SHOP)).length == 2
    assert await claiming.next_due(store, SHOP) is None
    assert [each.why for each in await queries.ready(store, Filter(ids=(late,)), 1, lambda _: QUICK)] == ["expired"]


async def test_it_is_not_moved(store):
    """LG-17: `retarget` leaves an expired operation where it is, and moves the others of its target."""
    late, plain = [(await submitted(store, number, not_after=when))[0] for number, when in ((1, PAST), (2, None))]
    await claiming.expire(store, SHOP, 10)

    assert await manual.retarget(store, SHOP, "other:1", 10) == 1
    assert [(await one(store, id_)).target for id_ in (late, plain)] == [SHOP, "other:1"]


async def test_its_order_key_goes_on(store):
    """LG-15, LG-17: the successors of an expired operation go on, also if they were set aside."""
    first, second = await submitted(store, 1, 2, order_key="k")
    [held] = await claimed(store)
    await order_keys.set_aside(store, SHOP, 10, 10)
    await failed(store, held)
    await _let_expire(store, first)

    assert [each.id for each in await claiming.expire(store, SHOP, 10)] == [first]
    assert [each.id for each in await claimed(store, 10)] == [second]


async def test_claimed_without_knowing(store):
    """LG-6, LG-17: what expired before its owner knew that it had claimed it is not attempted: it has no attempts."""
    late, timely = await submitted(store, 1, 2)
    await claimed(store, 2)  # whose answer is lost
    await _let_expire(store, late)

    assert [each.id for each in await claiming.reclaim(store, SHOP, "me", 30.0, [])] == [timely]
    [ended] = await claiming.expire(store, SHOP, 10)
    assert (ended.id, ended.attempts) == (late, 0)


async def test_replayed_beside_a_later_one(url, store):
    """LG-15, LG-17: replayed after it expired, an operation waits for a later one of its key that is in progress."""
    first, second = await submitted(store, 1, 2, order_key="k")
    await _let_expire(store, first)
    await claiming.expire(store, SHOP, 10)
    [running] = await claimed(store, 10)
    assert await manual.begin_anew(store, [first], [OperationState.EXPIRED], None) == [first]
    await order_keys.set_aside(store, SHOP, 10, 10)
    await order_keys.take_up(store)

    assert running.id == second
    assert await claimed(store, 10) == []
    assert await claiming.next_due(store, SHOP) is None
    assert [each.why for each in await queries.ready(store, Filter(ids=(first,)), 1, lambda _: QUICK)] == ["blocked"]
    if "://" in url:
        with connected(url) as connection:
            why = connection.execute("SELECT why FROM grpc_backoff.readiness WHERE id = %s", (first,)).fetchone()
        assert why == ("blocked",)
    await failed(store, running, QUICK)
    assert [each.id for each in await claimed(store, 10)] == [first]


async def _let_expire(store, id_):
    text = f"UPDATE {store.sql.operations} SET not_after = {store.sql.at.format('1')} WHERE id = :id RETURNING id"
    await store.rows(text, {"id": id_})


async def test_a_running_attempt_goes_on(store):
    """LG-17: what is in progress does not expire; its success counts, and after its failure it expires."""
    good, bad = await submitted(store, 1, 2)
    first, second = await claimed(store, 2)
    for id_ in (good, bad):
        await _let_expire(store, id_)

    assert await claiming.expire(store, SHOP, 10) == []
    [told] = await recording.record_ends(store, [AttemptReport(first.id, first.lease_token, QUICK)])
    await failed(store, second, QUICK)
    ended = await claiming.expire(store, SHOP, 10)

    assert told.state is OperationState.SUCCEEDED
    assert [(each.id, each.attempts) for each in ended] == [(bad, 1)]


async def test_a_late_success_counts(url, store):
    """LG-6, LG-17: an attempt that was lost, and then succeeds after all, makes an expired operation a success."""
    [id_] = await submitted(store, 1)
    [operation] = await claimed(store)
    await _let_expire(store, id_)
    await expired(url, 60)
    await recording.lost(store, SHOP, lambda _: QUICK, 10)
    assert [each.state for each in await claiming.expire(store, SHOP, 10)] == [OperationState.EXPIRED]

    late = AttemptReport(id_, operation.lease_token, QUICK)
    await recording.record_ends(store, [late._replace(failure=UNAVAILABLE)])
    assert (await one(store, id_)).state is OperationState.EXPIRED
    await recording.record_ends(store, [late])
    assert (await one(store, id_)).state is OperationState.SUCCEEDED


async def test_replay_and_prune(url):
    """LG-17: an expired operation can be replayed, without an end; it is pruned like others that ended."""
    async with await Ledger.open(url, settings=SETTINGS) as ledger:
        ids = [
            (await ledger.submit(SHOP, "/shop.Orders/Place", b"x", not_after=PAST)).id,
            (await ledger.submit(SHOP, "/shop.Orders/Place", b"y", not_after=PAST)).id,
        ]
        await ledger.pause(SHOP)  # which does not keep them from expiring
        assert len(await claiming.expire(ledger.store, SHOP, 10)) == 2
        assert await ledger.replay(ids[0]) == ids[:1]
        assert await claiming.expire(ledger.store, SHOP, 10) == []
        replayed = await ledger.get(ids[0])
        assert (replayed.state, replayed.not_after, replayed.attempts) == (OperationState.PENDING, None, 0)
        assert await ledger.prune(0) == 1
        assert [each.id for each in await ledger.find()] == ids[:1]


async def test_delivery(url, shop):
    """LG-17: deliverers let operations expire: an event and a hook tell, and those behind it are delivered."""
    heard, events = [], []
    hooks = LedgerHooks(on_expired=heard.append, on_blocked=heard.append)
    async with at_work(url, shop, hooks=hooks, listeners=[events.append]) as (ledger, unary):
        end = time.time() - 60
        late = await ledger.submit(unary, Message(text="late"), not_after=end, order_key="k")
        after = await ledger.submit(unary, Message(text="after"), order_key="k")
        await until(ledger, late.id, OperationState.EXPIRED)
        await until(ledger, after.id, OperationState.SUCCEEDED)

    assert shop.executed["late"] == 0
    assert [(each.id, each.state) for each in heard] == [(late.id, OperationState.EXPIRED)]
    assert [each.operation_id for each in events if isinstance(each, OperationExpired)] == [late.id]


def test_threads(url):
    """LG-17: the threaded ledger takes `not_after` too."""
    with sync.Ledger.open(url, settings=SETTINGS) as ledger:
        told = ledger.submit(SHOP, "/shop.Orders/Place", b"x", not_after=FAR)
        assert ledger.get(told.id).not_after == FAR


async def test_it_follows_not_before(ledger):
    """LG-17: `not_after` is a time that a database can store, and later than `not_before`."""
    for given in (
        {"not_after": 5, "not_before": 5},
        {"not_after": float("nan")},
        {"not_after": "now"},
        {"not_after": 1e18},
    ):
        with pytest.raises(OptionError, match="not_after="):
            await ledger.submit(SHOP, "/shop.Orders/Place", b"x", **given)


async def test_in_a_statement(url, ledger):
    """LG-9, LG-17: `statement` stores `not_after` as well."""
    prepared = ledger.prepared(SHOP, "/shop.Orders/Place", b"x", not_after=FAR, order_key="k")
    text, given = ledger.statement(prepared)
    with connected(url) as connection:
        connection.execute(text, given)

    assert (await ledger.get(prepared.id)).not_after == FAR
