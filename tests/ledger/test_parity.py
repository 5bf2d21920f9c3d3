"""One formula: SQL's functions and Python's give the same times, for thousands of random policies on a real server."""

from __future__ import annotations

import json
import random

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_backoff.calls.decision import Failure
from grpc_backoff.calls.events import WaitSource
from grpc_backoff.calls.server_hint import ServerHint
from grpc_backoff.ledger.parameters import parameters
from grpc_backoff.ledger.records import State
from grpc_backoff.ledger.transitions import Standing, after_failure, fallback, ledger_policy
from grpc_backoff.policy.presets import RETRY
from tests.ledger.conftest import SETTINGS, open_store
from tests.ledger.policies import policies

DRAWS = st.floats(0, 1, exclude_max=True)
MICROSECOND = 1e-6
MANY = settings(
    max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def near(value):
    """Return a value to compare with: to the microsecond, or to what a float of its size can say."""
    return pytest.approx(value, abs=MICROSECOND, rel=1e-13)


@pytest.fixture(scope="module")
def database(server):
    """A connection to a database that has the functions; what is written is rolled back."""
    import asyncio

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


@MANY
@given(policies(), st.integers(1, 60), DRAWS, st.none() | st.floats(0.001, 1e5))
def test_delays_are_equal(database, policy, n, draw, previous):
    """LG-3: every strategy with every jitter: SQL's delay is Python's, to the microsecond."""
    policy = ledger_policy(policy)

    computed = sql(
        database, "grpc_backoff.delay(%s::jsonb, %s, %s, %s)", json.dumps(parameters(policy)), n, previous, draw
    )

    assert computed == near(policy.backoff.window(n, previous).at(draw))


@pytest.mark.parametrize("name", sorted(RETRY))
@pytest.mark.parametrize("attempts", [0, 1, 10, 20])
def test_boundaries(database, name, attempts):
    """LG-3, seed 001: at attempts 0, 10 and 20 SQL's fallback equals Python's, for every preset."""
    policy = ledger_policy(RETRY[name])

    computed = sql(
        database,
        "extract(epoch FROM grpc_backoff.next_attempt_at(NULL, NULL, to_timestamp(0), %s, %s::jsonb, 0))::float8",
        attempts,
        json.dumps(parameters(policy)),
    )

    assert computed == near(fallback(policy, max(attempts, 1)))


def test_two_paths_and_none(database):
    """Seed 001: what was recorded comes first, then the failure's time and min(growth, cap), else NULL."""
    call = "extract(epoch FROM grpc_backoff.next_attempt_at(%s, to_timestamp(%s), to_timestamp(%s), %s, %s::jsonb, 0))::float8"
    steps = json.dumps(parameters(ledger_policy(RETRY["steps"])))

    assert sql(database, call, 7.5, 1000, 2000, 3, steps) == 1007.5
    assert sql(database, call, 7.5, None, 2000, 3, steps) == 2004.0
    assert sql(database, call, None, 1000, 2000, 9, steps) == 2060.0
    assert sql(database, call, None, 1000, None, 3, steps) is None


def test_growth_beyond_every_float(database):
    """LG-3, CB-13: where no float can hold the growth, both say the cap."""
    policy = ledger_policy(RETRY["grpc"])
    for n in (1000, 100_000, 2**31 - 2):
        assert sql(
            database, "grpc_backoff.delay(%s::jsonb, %s, NULL, 0.5)", json.dumps(parameters(policy)), n
        ) == policy.backoff.window(n).at(0.5)


def test_no_number_stands_in_sql():
    """LG-3: SQL holds no default: a number there is 0, 1 or 2, which are structure, and the exponent of a mean."""
    import re

    from grpc_backoff.ledger.schema import migrations

    for migration in migrations("postgres") + migrations("sqlite"):
        code = re.sub(r"--.*|'[^']*'", "", migration.sql)
        assert set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", code)) <= {"0", "1", "2"}, migration.name


HINTS = st.none() | st.builds(
    ServerHint,
    st.none() | st.floats(0, 500),
    st.sampled_from([WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER]),
)
CODES = ["UNAVAILABLE", "ABORTED", "INTERNAL", "UNAUTHENTICATED", "DEADLINE_EXCEEDED", "ALREADY_EXISTS"]
FAILURES = st.builds(Failure, st.sampled_from(CODES), hint=HINTS, own_timeout=st.booleans(), oversized=st.booleans())


@settings(MANY, max_examples=1500)
@given(
    policy=policies(),
    standing=st.builds(
        Standing,
        st.sampled_from(State),
        st.integers(0, 9),
        st.integers(0, 30),
        st.none() | st.floats(0.001, 1e4),
        st.booleans(),
        st.integers(0, 3),
        st.floats(0, 500).filter(lambda age: age == 0 or age > 0.001),
    ),
    token=st.none() | st.integers(0, 3),
    failure=FAILURES,
    draw=DRAWS,
    can_refresh=st.booleans(),
)
def test_decisions_are_equal(database, policy, standing, token, failure, draw, can_refresh):
    """LG-2, LG-3, LG-4: whatever a row says and whatever has failed, SQL decides as the pure function does."""
    from grpc_backoff.ledger.postgres import _failure
    from grpc_backoff.ledger.records import Report
    from tests.ledger.conftest import submission

    policy = ledger_policy(policy)
    if policy.deadline is not None and abs(policy.deadline - standing.age) < 5:
        standing = standing._replace(age=policy.deadline + 10)  # no race between the server's clock and the argument
    expected = after_failure(policy, standing, token, failure, draw=draw, can_refresh=can_refresh)
    if expected.delay is not None and policy.deadline is not None:
        left = policy.deadline - standing.age
        if abs(left - expected.delay) < 1 or expected.delay > left - 15:
            return  # the draw is bounded by what is left, which the server counts a moment later
    id_ = submission(random.randrange(10**12)).id
    waits = standing.state in (State.PENDING, State.WAITING)
    database.execute(
        "INSERT INTO grpc_backoff.operations (id, target, method, request, metadata, policy, state, attempts, recorded, "
        "step, previous, refreshed, next_attempt_at, lease_token, lease_until, created, began) VALUES "
        "(%s, 't', 'm', '', '[]', '', %s, %s, %s, %s, %s, %s, CASE WHEN %s THEN now() END, %s, now(), now(), "
        "clock_timestamp() - make_interval(secs => %s))",
        (
            id_,
            standing.state.value,
            standing.attempts,
            standing.attempts,
            standing.step,
            standing.previous,
            standing.refreshed,
            waits,
            standing.lease_token,
            standing.age,
        ),
    )
    report = Report(id_, token, policy, failure, None, can_refresh, draw)

    row = database.execute(
        "SELECT * FROM grpc_backoff.record_failure(%s, %s, %s, %s, %s::jsonb, %s::jsonb, %s)", _failure(report)
    ).fetchone()
    after = database.execute(
        "SELECT step, previous, refreshed FROM grpc_backoff.operations WHERE id = %s", (id_,)
    ).fetchone()
    database.rollback()

    state, _, delay, source, reason, live = row
    assert (state, source, reason, live) == (expected.state.value, expected.source, expected.reason, expected.live)
    assert delay == (None if expected.delay is None else near(expected.delay))
    assert (after[0], after[2]) == (expected.step, expected.refreshed)
    assert after[1] == (None if expected.previous is None else near(expected.previous))
