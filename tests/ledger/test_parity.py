"""SQL and Python compute the same times for thousands of random policies, checked on a real server."""

from __future__ import annotations

import asyncio
import json
import random
import re

import psycopg
import pytest

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.parameters import parameters
from grpc_backoff.ledger.records import AttemptReport, Filter, Lease
from grpc_backoff.ledger.schema import migrations
from grpc_backoff.ledger.transactions import claiming, queries, recording, submitting
from grpc_backoff.ledger.transitions import fallback, ledger_policy
from grpc_backoff.policy.jitter import JITTERS, NoJitter
from grpc_backoff.policy.presets import RETRY_PRESETS
from grpc_backoff.policy.strategy import STRATEGIES, Decorrelated
from tests.ledger.conftest import SETTINGS, open_store, submission
from tests.ledger.policies import random_policy

MICROSECOND = 1e-6
SEED = 15


def near(value):
    """Return a value that compares equal within a microsecond, or within the precision of a float."""
    return pytest.approx(value, abs=MICROSECOND, rel=1e-13)


@pytest.fixture(scope="module")
def database(server):
    """A connection to a migrated database; all changes that the tests make on it are rolled back."""
    url = server.database()

    async def migrate():
        store = open_store(url, SETTINGS)
        await store.migrate(apply=True)
        await store.close()

    asyncio.run(migrate())
    with psycopg.connect(url) as connection:
        yield connection


def sql(database, expression, *given):
    return database.execute(f"SELECT {expression}", given).fetchone()[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("jitter", JITTERS)
def test_delays_are_equal(database, strategy, jitter):
    """LG-3: for every strategy and jitter, SQL and Python compute the same delay, to the microsecond."""
    if strategy is Decorrelated and jitter is not NoJitter:
        return  # draws its own waits, so policies with a jitter are refused
    rng = random.Random(f"{SEED} {strategy.name} {jitter.name}")
    cases = []
    for _ in range(250):
        policy = ledger_policy(random_policy(rng, strategy, jitter))
        n, draw = rng.choice([1, 2, 3, rng.randrange(1, 60), rng.randrange(1, 5000)]), rng.random()
        cases.append((policy, n, rng.choice([None, 10 ** rng.uniform(-3, 5)]), draw))
    given = json.dumps([[parameters(policy), *rest] for policy, *rest in cases])

    rows = database.execute(
        "SELECT grpc_backoff.delay(c -> 0, (c ->> 1)::integer, (c ->> 2)::float8, (c ->> 3)::float8) "
        "FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY cases (c, place) ORDER BY place",
        (given,),
    ).fetchall()

    wrong = [
        (case, computed)
        for case, (computed,) in zip(cases, rows, strict=True)
        if computed != near(case[0].backoff.window(case[1], case[2]).at(case[3]))
    ]
    assert len(rows) == 250
    assert wrong == []


@pytest.mark.parametrize("what", ["strategy", "jitter"])
def test_what_sql_does_not_know(database, what):
    """LG-3: SQL refuses a strategy or jitter that it does not know with an error that names it."""
    policy = json.dumps(parameters(ledger_policy(RETRY_PRESETS["steps"])) | {what: "mine"})
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"{what}=mine: expected a {what} that this schema"):
        sql(database, "grpc_backoff.delay(%s::jsonb, 1, NULL, 0.5)", policy)
    database.rollback()


@pytest.mark.parametrize("name", sorted(RETRY_PRESETS))
@pytest.mark.parametrize("attempts", [0, 1, 10, 20])
def test_boundaries(database, name, attempts):
    """LG-3, seed 001: after 0, 1, 10 and 20 attempts, SQL's fallback equals Python's for every preset."""
    policy = ledger_policy(RETRY_PRESETS[name])

    computed = sql(
        database,
        "extract(epoch FROM grpc_backoff.next_attempt_at(NULL, NULL, to_timestamp(0), %s, %s::jsonb, 0))::float8",
        attempts,
        json.dumps(parameters(policy)),
    )

    assert computed == near(fallback(policy, max(attempts, 1)))


def test_two_paths_and_none(database):
    """Seed 001: `next_attempt_at` adds the recorded backoff, else min(growth, cap); without a time, it is NULL."""
    moment = "grpc_backoff.next_attempt_at(%s, to_timestamp(%s), to_timestamp(%s), %s, %s::jsonb, 0)"
    call = f"extract(epoch FROM {moment})::float8"
    steps = json.dumps(parameters(ledger_policy(RETRY_PRESETS["steps"])))

    assert sql(database, call, 7.5, 1000, 2000, 3, steps) == 1007.5
    assert sql(database, call, 7.5, None, 2000, 3, steps) == 2004.0
    assert sql(database, call, None, 1000, 2000, 9, steps) == 2060.0
    assert sql(database, call, None, 1000, None, 3, steps) is None


def test_growth_beyond_every_float(database):
    """LG-3, CB-13: if the growth exceeds every float, SQL and Python both return the cap."""
    policy = ledger_policy(RETRY_PRESETS["grpc"])
    for n in (1000, 100_000, 2**31 - 2):
        assert sql(
            database, "grpc_backoff.delay(%s::jsonb, %s, NULL, 0.5)", json.dumps(parameters(policy)), n
        ) == policy.backoff.window(n).at(0.5)


def test_no_number_stands_in_sql():
    """LG-3: the SQL files contain no policy defaults: their only numbers are 0, 1 and 2."""
    for sql_text in migrations("postgres") + migrations("sqlite"):
        code = re.sub(r"--.*|'[^']*'|SET \(fillfactor = \d+\)", "", sql_text)
        assert set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", code)) <= {"0", "1", "2"}, sql_text


async def test_readiness_is_equal(postgres_url):
    """LG-5: for operations in every situation, the SQL function `ready` and the view say what `Ledger.ready` says."""
    store = open_store(postgres_url, SETTINGS)
    await store.migrate(apply=True)
    ids = [told.id for told in await submitting.submit(store, [submission(n, policy="steps") for n in range(6)])]
    claimed = await claiming.claim(store, "shop:443", 4, "me", 60.0)
    lost, failed, done, _ = [Lease(each.id, each.lease_token) for each in claimed]
    await claiming.extend(store, [lost], 0.001)
    steps = RETRY_PRESETS["steps"]
    await recording.record_ends(
        store, [AttemptReport(*failed, steps, FailedAttempt("UNAVAILABLE")), AttemptReport(*done, steps)]
    )
    await recording.set_backoff(store, ids[4], 60.0, lambda _: steps)
    await asyncio.sleep(0.05)
    told = await queries.ready(store, Filter(ids=tuple(ids)), 10, lambda _: steps)
    await store.close()
    with psycopg.connect(postgres_url) as connection:
        at = "extract(epoch FROM at)::float8"
        policies = json.dumps({"steps": parameters(ledger_policy(steps))})
        function = connection.execute(
            f"SELECT id::text, ready, {at}, why FROM grpc_backoff.ready(%s::uuid[], %s::jsonb, 0)", (ids, policies)
        ).fetchall()
        view = connection.execute(
            f"SELECT id::text, ready, {at}, why FROM grpc_backoff.readiness ORDER BY id"
        ).fetchall()

    assert [(each.id, each.ready, near(each.at) if each.at else None, each.why) for each in told] == function
    assert {each.why for each in told} == {"its owner is gone", "backoff", "succeeded", "in progress", "due"}
    unknown = [(*row[:2], None, row[3]) if row[3] == "its owner is gone" else row for row in function]
    assert view == unknown
