"""A ledger of the previous version is upgraded, also while deliverers of that version still run."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.ledger import Filter, OperationState
from grpc_backoff.ledger.records import AttemptReport
from tests.ledger import previous
from tests.ledger.conftest import execute, open_store, opened_store, submission
from tests.ledger.steps import QUICK, SHOP, STEPS


async def test_tables_of_the_previous_version(url):
    """LG-13: the tables of version 0.2 are upgraded, and their operations are found and delivered."""
    kind = "postgres" if "://" in url else "sqlite"
    previous.create_tables(url, kind)
    for number in (1, 2):
        execute(url, previous.INSERT.replace("{now}", previous.NOW[kind]), submission(number).id)
    execute(url, "UPDATE {} SET state = 'failed', next_attempt_at = NULL WHERE id = {}", submission(2).id)

    store = open_store(url)
    assert (await store.migrate(apply=True))[0] == previous.SCHEMAS[kind]
    first, second = await store.find(Filter(), 10)
    [claimed] = await store.claim(SHOP, 10, "me", 30.0)
    [told] = await store.record([AttemptReport(claimed.id, claimed.lease_token, STEPS)])
    await store.close()

    assert (first.id, second.state, second.reason) == (claimed.id, OperationState.FAILED, None)
    assert told.state is OperationState.SUCCEEDED


@pytest.fixture
async def both(postgres_url):
    """The URL of a PostgreSQL ledger, and its store."""
    async with opened_store(postgres_url) as store:
        yield postgres_url, store


async def test_both_versions_side_by_side(both):
    """LG-2, LG-6: a deliverer of version 0.2 and one of this version share a ledger; no attempt is lost or doubled."""
    url, store = both
    ids = [told.id for told in await store.submit([submission(n) for n in range(100)])]
    ended = Counter()

    async def ours():
        while (await store.queue(None)).length:
            operations = await store.claim(SHOP, 5, "ours", 30.0)
            await asyncio.sleep(0.005)  # an attempt
            failures = [None if each.attempts >= 2 else FailedAttempt("UNAVAILABLE") for each in operations]
            await store.record(
                [
                    AttemptReport(each.id, each.lease_token, QUICK, failure)
                    for each, failure in zip(operations, failures, strict=True)
                ]
            )
            ended["ours"] += len(operations)

    async def theirs():
        async with previous.Deliverer(url) as deliverer:
            while (await store.queue(None)).length:
                taken = await deliverer.claim(SHOP, 5)
                await asyncio.sleep(0.005)
                for id_, token in taken:
                    done = len(await store.attempts(id_)) >= 2
                    await (deliverer.succeed if done else deliverer.fail)(id_, token)
                ended["theirs"] += len(taken)

    async with asyncio.timeout(60):
        await asyncio.gather(ours(), theirs())
    found = await store.find(Filter(), 1000)
    attempts = [await store.attempts(id_) for id_ in ids]

    assert min(ended["ours"], ended["theirs"]) > 0
    assert sum(ended.values()) == 300
    assert {(each.state, each.attempts, each.recorded) for each in found} == {(OperationState.SUCCEEDED, 3, 3)}
    assert {tuple(attempt.code for attempt in each) for each in attempts} == {("UNAVAILABLE", "UNAVAILABLE", "OK")}


@pytest.mark.parametrize("who", ["ours", "theirs"])
async def test_the_other_version_recorded_a_loss(both, who):
    """LG-6: a late report completes the attempt that a deliverer of the other version has recorded as lost."""
    url, store = both
    await store.submit([submission(1)])
    async with previous.Deliverer(url) as deliverer:
        [(id_, token)] = await deliverer.claim(SHOP, 1)
        execute(url, "UPDATE {} SET lease_until = now() - interval '1 hour'")
        [lost] = await store.lost(None, lambda _: QUICK, 10)
        if who == "theirs":
            await deliverer.succeed(id_, token)
        else:
            await store.record([AttemptReport(id_, token, QUICK)])
    [operation] = await store.find(Filter(), 1)
    attempts = await store.attempts(id_)

    assert lost.state is OperationState.WAITING
    assert (operation.state, [attempt.code for attempt in attempts]) == (OperationState.SUCCEEDED, ["OK"])
