"""A ledger of the previous version is used as it is, and upgraded, also while deliverers of that version still run."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import Filter, Ledger, LedgerSchemaError, LedgerStateError, OperationState, sync
from grpc_backoff.ledger.parameters import policy_text
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.transactions import claiming, counting, queries, recording, submitting
from grpc_backoff.ledger.transitions import ledger_policy
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.echo import Message
from tests.ledger import previous
from tests.ledger.conftest import SETTINGS, connected, execute, open_store, opened_store, submission
from tests.ledger.delivery.test_delivery import FAST, at_work, until
from tests.ledger.steps import QUICK, SHOP, STEPS, eventually, expired


async def test_tables_of_the_previous_version(url):
    """LG-13: the tables of version 0.2 are upgraded, and their operations are found and delivered."""
    kind = "postgres" if "://" in url else "sqlite"
    previous.create_tables(url, kind)
    for number in (1, 2):
        execute(url, previous.INSERT.replace("{now}", previous.NOW[kind]), submission(number).id)
    execute(url, "UPDATE {} SET state = 'failed', next_attempt_at = NULL WHERE id = {}", submission(2).id)

    store = open_store(url)
    assert (await store.migrate(apply=True))[0] == previous.SCHEMAS[kind]
    first, second = await queries.find(store, Filter(), 10)
    [claimed] = await claiming.claim(store, SHOP, 10, "me", 30.0)
    [told] = await recording.record_ends(store, [AttemptReport(claimed.id, claimed.lease_token, STEPS)])
    await store.close()

    assert (first.id, second.state, second.reason) == (claimed.id, OperationState.FAILED, None)
    assert told.state is OperationState.SUCCEEDED


METHOD = "/shop.Orders/Place"


@pytest.fixture
def older(url):
    """The URL of a ledger with the tables of version 0.2."""
    previous.create_tables(url, "postgres" if "://" in url else "sqlite")
    return url


def schema(url):
    """Return what the tables look like, and their version."""
    parts = ["SELECT sql FROM sqlite_master ORDER BY name", "SELECT version FROM ledger_schema"]
    if "://" in url:
        parts = [
            "SELECT attrelid::regclass::text, attname, atttypid FROM pg_attribute ORDER BY 1, 2",
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'grpc_backoff' ORDER BY 1",
            "SELECT prosrc FROM pg_proc WHERE pronamespace = 'grpc_backoff'::regnamespace ORDER BY 1",
            "SELECT version FROM grpc_backoff.schema",
        ]
    with connected(url) as connection:
        return [connection.execute(part).fetchall() for part in parts]


async def test_used_as_they_are(older, shop):
    """LG-18: the tables of version 0.2 are read and written without a change, by all that needs no new columns."""
    before = schema(older)
    shop.script |= {"b": [(grpc.StatusCode.INTERNAL, "broken")], "c": [(grpc.StatusCode.ALREADY_EXISTS, "there")]}
    async with at_work(older, shop, FAST) as (ledger, unary):
        ids = [(await ledger.submit(unary, Message(text=text), idempotency_key=text)).id for text in "abc"]
        again = await ledger.submit(unary, Message(text="a"), idempotency_key="a")
        states = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CONFLICT)
        ended = [await until(ledger, id_, state) for id_, state in zip(ids, states, strict=True)]
        outcome = await ledger.wait(ids[0], 5)
        shop.script.clear()
        replayed = await ledger.replay(ids[1])
        await ledger.resolve(ids[2])
        assert [(await ledger.wait(id_, 10)).state for id_ in ids[1:]] == [OperationState.SUCCEEDED] * 2
        assert await ledger.resume(shop.target) is False
        with connected(older) as connection:
            prepared = ledger.prepared(unary, Message(text="d"), idempotency_key="d")
            for _ in range(2):
                connection.execute(*ledger.statement(prepared))
            with pytest.raises(Exception, match=r"(?i)not.null"):
                connection.execute(*ledger.statement(ledger.prepared(unary, Message(text="x"), idempotency_key="a")))
            connection.rollback()
            connection.execute(*ledger.statement(prepared))
        assert (await ledger.wait(prepared.id, 20)).attempts == 1
        far = await ledger.submit(SHOP, METHOD, b"", not_before=4e9)
        assert [each.why for each in await ledger.ready(Filter(ids=(far.id,)))] == ["backoff"]
        assert await ledger.set_backoff(far.id, 0.5)
        assert (await ledger.record_failure(far.id, "UNAVAILABLE")).state is OperationState.WAITING
        assert await ledger.retarget(SHOP, "other:1") == 1
        assert await ledger.discard(far.id) == [far.id]
        counts = (await ledger.queue()).counts
        found = await ledger.find(Filter(states=(OperationState.SUCCEEDED,)), newest_first=True)
        attempts = [attempt.code for attempt in await ledger.attempts(ids[1])]
        pruned = await ledger.prune(0.0)

    assert (again.id, again.new, replayed) == (ids[0], False, [ids[1]])
    assert [(each.order_key, each.reason, each.not_after) for each in ended] == [(None, None, None)] * 3
    assert (outcome.state, outcome.response) == (OperationState.SUCCEEDED, None)
    assert counts == {OperationState.SUCCEEDED: 4, OperationState.DISCARDED: 1}
    assert ([each.id for each in found], attempts, pruned) == ([prepared.id, *ids[::-1]], ["INTERNAL", "OK"], 5)
    assert schema(older) == before


async def test_what_they_lack(older):
    """LG-18: what needs new columns is refused with an error that names `migrate()`, and nothing is stored."""
    with sync.Ledger.open(older, settings=SETTINGS) as ledger:
        for part in ({"order_key": "k"}, {"not_after": 4e9}, {"keep_response": 9}):
            message = rf"{next(iter(part))} needs version .* nothing was stored; .*`migrate\(\)`"
            with pytest.raises(LedgerSchemaError, match=message):
                ledger.submit(SHOP, METHOD, b"x", **part)
            with pytest.raises(LedgerSchemaError, match=message):
                ledger.statement(ledger.prepared(SHOP, METHOD, b"x", **part))
        with pytest.raises(LedgerSchemaError, match=r"a policy with never_ran_only needs version"):
            ledger.submit(SHOP, METHOD, b"x", policy="never_ran_only: true, retry: 2, delay: 1s, jitter: full")
        with pytest.raises(LedgerSchemaError, match=r"a pause needs version .*`migrate\(\)`"):
            ledger.pause(SHOP)
        first = ledger.submit(SHOP, METHOD, b"x", idempotency_key="k")
        with pytest.raises(LedgerStateError, match="with another request or for another target"):
            ledger.submit("other:1", METHOD, b"x", idempotency_key="k")
        assert [(each.id, each.policy) for each in ledger.find()] == [
            (first.id, policy_text(ledger_policy(RETRY_PRESETS["durable"])))
        ]

        before, after = ledger.migrate()
        ledger.pause(SHOP)
        new = ledger.submit("other:1", METHOD, b"x", idempotency_key="k", order_key="k", not_after=4e9, keep_response=9)
        assert ledger.get(new.id).order_key == "k"
    assert after == before + 1


async def test_opening_does_not_upgrade(older):
    """LG-18: `open` leaves tables that it can use as they are, also with `migrate=False`."""
    for migrate in (True, False):
        async with await Ledger.open(older, settings=SETTINGS, migrate=migrate) as ledger:
            assert await ledger.submit(SHOP, METHOD, b"x")
    store = open_store(older)
    try:
        before, after = await store.migrate(apply=True)
    finally:
        await store.close()
    assert after == before + 1


async def test_expiry_after_another_process_migrates(older, shop):
    """LG-17, LG-18: `not_after` is taken, and operations expire, once another process has migrated."""
    async with at_work(older, shop, FAST) as (ledger, unary):
        async with await Ledger.open(older, settings=FAST) as other:
            await other.migrate()
        late = await ledger.submit(unary, Message(text="late"), not_after=1.0)
        await until(ledger, late.id, OperationState.EXPIRED)

    assert shop.executed["late"] == 0


async def test_another_process_migrates(older):
    """LG-15, LG-18: after that, nothing is claimed out of order, and statements are stored, without a restart."""
    async with (
        await Ledger.open(older, settings=SETTINGS) as ledger,
        await Ledger.open(older, settings=SETTINGS) as other,
    ):
        await other.migrate()
        first, _ = [await other.submit(SHOP, METHOD, b"x", order_key="k") for _ in range(2)]
        with connected(older) as connection:
            for _ in range(2):
                connection.execute(*ledger.statement(ledger.prepared("t", METHOD, b"x", idempotency_key="k")))
        unaware = await claiming.claim(ledger.store, SHOP, 10, "me", 30.0)
        await claiming.expire(ledger.store, SHOP, 10)  # deliverers do this with each look
        aware = await claiming.claim(ledger.store, SHOP, 10, "me", 30.0)
        found = await ledger.find()

    assert ([each.id for each in unaware], [each.id for each in aware]) == ([], [first.id])
    assert len(found) == 3


async def test_migrating_under_load(older, shop):
    """LG-18: deliverers go on while another process migrates, and then use what is new without a restart."""
    async with at_work(older, shop, FAST) as (ledger, unary):
        await ledger.submit_many([ledger.prepared(unary, Message(text=f"plain-{n}")) for n in range(200)])
        async with await Ledger.open(older, settings=SETTINGS) as other:
            await other.migrate()
        for number in range(5):
            await ledger.submit(unary, Message(text=f"keyed-{number}"), order_key="k", keep_response=100)

        async def all_delivered():
            return (await ledger.queue()).counts == {OperationState.SUCCEEDED: 205}

        await eventually(all_delivered)
        first, *_ = await ledger.find(Filter(order_key="k"))
        response = (await ledger.wait(first.id, 5)).response

    assert set(shop.executed.values()) == {1}
    assert response == Message(text="keyed-0").SerializeToString()


async def test_leases_in_tables_of_the_previous_version(older):
    """LG-6, LG-18: a lease that has expired is found, and so is a claim whose answer was lost."""
    async with await Ledger.open(older, settings=SETTINGS) as ledger:
        told = await ledger.submit(SHOP, METHOD, b"x")
        [claimed] = await claiming.claim(ledger.store, SHOP, 10, "me", 30.0)
        [again] = await claiming.reclaim(ledger.store, SHOP, "me", 30.0, ())
        await expired(older, 3600)
        [lost] = await recording.lost(ledger.store, SHOP, lambda _: QUICK, 10, first=True)
        await claiming.find_floor(ledger.store, SHOP)

    assert {claimed.id, again.id, lost.id} == {told.id}
    assert lost.state is OperationState.WAITING


@pytest.fixture
async def both(postgres_url):
    """The URL of a PostgreSQL ledger, and its store."""
    async with opened_store(postgres_url) as store:
        yield postgres_url, store


async def test_both_versions_side_by_side(both):
    """LG-2, LG-6: a deliverer of version 0.2 and one of this version share a ledger; no attempt is lost or doubled."""
    url, store = both
    ids = [told.id for told in await submitting.submit(store, [submission(n) for n in range(100)])]
    ended = Counter()

    async def ours():
        while (await counting.queue(store, None)).length:
            operations = await claiming.claim(store, SHOP, 5, "ours", 30.0)
            await asyncio.sleep(0.005)  # an attempt
            failures = [None if each.attempts >= 2 else FailedAttempt("UNAVAILABLE") for each in operations]
            await recording.record_ends(
                store,
                [
                    AttemptReport(each.id, each.lease_token, QUICK, failure)
                    for each, failure in zip(operations, failures, strict=True)
                ],
            )
            ended["ours"] += len(operations)

    async def theirs():
        async with previous.Deliverer(url) as deliverer:
            while (await counting.queue(store, None)).length:
                taken = await deliverer.claim(SHOP, 5)
                await asyncio.sleep(0.005)
                for id_, token in taken:
                    done = len(await queries.attempts(store, id_)) >= 2
                    await (deliverer.succeed if done else deliverer.fail)(id_, token)
                ended["theirs"] += len(taken)

    async with asyncio.timeout(60):
        await asyncio.gather(ours(), theirs())
    found = await queries.find(store, Filter(), 1000)
    attempts = [await queries.attempts(store, id_) for id_ in ids]

    assert min(ended["ours"], ended["theirs"]) > 0
    assert sum(ended.values()) == 300
    assert {(each.state, each.attempts, each.recorded) for each in found} == {(OperationState.SUCCEEDED, 3, 3)}
    assert {tuple(attempt.code for attempt in each) for each in attempts} == {("UNAVAILABLE", "UNAVAILABLE", "OK")}


@pytest.mark.parametrize("who", ["ours", "theirs"])
async def test_the_other_version_recorded_a_loss(both, who):
    """LG-6: a late report completes the attempt that a deliverer of the other version has recorded as lost."""
    url, store = both
    await submitting.submit(store, [submission(1)])
    async with previous.Deliverer(url) as deliverer:
        [(id_, token)] = await deliverer.claim(SHOP, 1)
        execute(url, "UPDATE {} SET lease_until = now() - interval '1 hour'")
        [lost] = await recording.lost(store, SHOP, lambda _: QUICK, 10)
        if who == "theirs":
            await deliverer.succeed(id_, token)
        else:
            await recording.record_ends(store, [AttemptReport(id_, token, QUICK)])
    [operation] = await queries.find(store, Filter(), 1)
    attempts = await queries.attempts(store, id_)

    assert lost.state is OperationState.WAITING
    assert (operation.state, [attempt.code for attempt in attempts]) == (OperationState.SUCCEEDED, ["OK"])
