"""SQL and Python compute the same times for thousands of random policies, checked on a real server."""

from __future__ import annotations

import asyncio
import json
import random
import re

import psycopg
import pytest

from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.calls.events import WaitSource
from grpc_backoff.calls.server_hint import ServerHint
from grpc_backoff.ledger.parameters import parameters
from grpc_backoff.ledger.postgres import _failure as failure_arguments
from grpc_backoff.ledger.records import CLAIMABLE, AttemptReport, OperationState
from grpc_backoff.ledger.schema import migrations
from grpc_backoff.ledger.transitions import Standing, after_failure, fallback, ledger_policy
from grpc_backoff.policy.presets import RETRY
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


def test_delays_are_equal(database):
    """LG-3: for 5,000 random policies, SQL and Python compute the same delay, to the microsecond."""
    rng = random.Random(SEED)
    cases = []
    for _ in range(5000):
        policy = ledger_policy(random_policy(rng))
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
    assert len(rows) == 5000
    assert wrong == []


@pytest.mark.parametrize("name", sorted(RETRY))
@pytest.mark.parametrize("attempts", [0, 1, 10, 20])
def test_boundaries(database, name, attempts):
    """LG-3, seed 001: after 0, 1, 10 and 20 attempts, SQL's fallback equals Python's for every preset."""
    policy = ledger_policy(RETRY[name])

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
    steps = json.dumps(parameters(ledger_policy(RETRY["steps"])))

    assert sql(database, call, 7.5, 1000, 2000, 3, steps) == 1007.5
    assert sql(database, call, 7.5, None, 2000, 3, steps) == 2004.0
    assert sql(database, call, None, 1000, 2000, 9, steps) == 2060.0
    assert sql(database, call, None, 1000, None, 3, steps) is None


def test_growth_beyond_every_float(database):
    """LG-3, CB-13: if the growth exceeds every float, SQL and Python both return the cap."""
    policy = ledger_policy(RETRY["grpc"])
    for n in (1000, 100_000, 2**31 - 2):
        assert sql(
            database, "grpc_backoff.delay(%s::jsonb, %s, NULL, 0.5)", json.dumps(parameters(policy)), n
        ) == policy.backoff.window(n).at(0.5)


def test_no_number_stands_in_sql():
    """LG-3: the SQL files contain no policy defaults: their only numbers are 0, 1 and 2."""
    for migration in migrations("postgres") + migrations("sqlite"):
        code = re.sub(r"--.*|'[^']*'", "", migration.sql)
        assert set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", code)) <= {"0", "1", "2"}, migration.name


CODES = ["UNAVAILABLE", "ABORTED", "INTERNAL", "UNAUTHENTICATED", "DEADLINE_EXCEEDED", "ALREADY_EXISTS"]
SAYING = [WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER]


def random_failure(rng):
    hint = ServerHint(rng.choice([None, rng.uniform(0, 500)]), rng.choice(SAYING))
    return FailedAttempt(
        rng.choice(CODES),
        hint=hint if rng.random() < 0.4 else None,
        own_timeout=rng.random() < 0.3,
        oversized=rng.random() < 0.05,
    )


def random_standing(rng):
    return Standing(
        rng.choice(
            [OperationState.IN_PROGRESS, OperationState.IN_PROGRESS, OperationState.IN_PROGRESS, *OperationState]
        ),
        rng.randrange(10),
        rng.randrange(30),
        rng.choice([None, 10 ** rng.uniform(-3, 4)]),
        rng.random() < 0.5,
        rng.randrange(3),
        rng.uniform(0, 500),
    )


def settled(policy, standing, expected):
    """Return whether the decision would be the same if the server read its clock a moment later."""
    if policy.deadline is None:
        return True
    left = policy.deadline - standing.age
    return abs(left) > 1 and (expected.delay is None or expected.delay + policy.server_delay_jitter + 1 < left)


def test_decisions_are_equal(database):
    """LG-2, LG-3, LG-4: for random rows and failures, SQL makes the same decision as `after_failure`."""
    rng = random.Random(SEED)
    compared = 0
    while compared < 1000:
        policy, standing, failure = ledger_policy(random_policy(rng)), random_standing(rng), random_failure(rng)
        report = AttemptReport(
            submission(compared).id,
            rng.choice([None, standing.lease_token, standing.lease_token, rng.randrange(3)]),
            policy,
            failure,
            None,
            rng.random() < 0.5,
            rng.random(),
        )
        expected = after_failure(
            policy, standing, report.token, failure, draw=report.draw, can_refresh=report.can_refresh
        )
        if not settled(policy, standing, expected):
            continue
        compared += 1
        check_decision(database, standing, report, expected)
    database.rollback()


def check_decision(database, standing, report, expected):
    database.execute(
        "INSERT INTO grpc_backoff.operations (id, target, method, request, metadata, policy, state, attempts, "
        "recorded, step, previous, refreshed, next_attempt_at, lease_token, lease_until, created, began) VALUES "
        "(%s, 't', 'm', '', '[]', '', %s, %s, %s, %s, %s, %s, CASE WHEN %s THEN now() END, %s, now(), now(), "
        "clock_timestamp() - make_interval(secs => %s))",
        (
            report.id,
            standing.state.value,
            standing.attempts,
            standing.attempts,
            standing.step,
            standing.previous,
            standing.refreshed,
            standing.state in CLAIMABLE,
            standing.lease_token,
            standing.age,
        ),
    )
    state, attempts, delay, source, reason, live = database.execute(
        "SELECT * FROM grpc_backoff.record_failure(%s, %s, %s, %s, %s::jsonb, %s::jsonb, %s)",
        failure_arguments(report),
    ).fetchone()
    step, previous, refreshed = database.execute(
        "SELECT step, previous, refreshed FROM grpc_backoff.operations WHERE id = %s", (report.id,)
    ).fetchone()

    said = (standing, report, expected)
    assert (state, source, reason, live) == (expected.state.value, expected.source, expected.reason, expected.live), (
        said
    )
    assert attempts == standing.attempts + 1, said
    assert delay == (None if expected.delay is None else near(expected.delay)), said
    assert (step, refreshed) == (expected.step, expected.refreshed), said
    assert previous == (None if expected.previous is None else near(expected.previous)), said
