"""What the tests of stores do with operations."""

from __future__ import annotations

import asyncio
import inspect
import random

from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.ledger.transactions import claiming, queries, recording, submitting
from grpc_backoff.ledger.transitions import ledger_policy
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.ledger.conftest import execute, submission

SHOP = "shop:443"
STEPS = RETRY_PRESETS["steps"]
QUICK = parse_policy("max_attempts: unlimited, deadline: 1d, delay: 10ms")
UNAVAILABLE = FailedAttempt("UNAVAILABLE")
CHANCE = random.Random(1)


def policy_of(text):
    return ledger_policy(parse_policy(text))


async def claimed(store, limit=1, lease=30.0):
    return await claiming.claim(store, SHOP, limit, "me", lease)


async def submitted(store, *numbers, **parts):
    return [told.id for told in await submitting.submit(store, [submission(number, **parts) for number in numbers])]


async def one(store, id_):
    return (await queries.find(store, Filter(ids=(id_,)), 1))[0]


async def failed(store, operation, policy=STEPS, failure=UNAVAILABLE, draw=0.5, **how):
    report = AttemptReport(operation.id, operation.lease_token, policy, failure, draw=draw, **how)
    return (await recording.record_ends(store, [report]))[0]


async def fail_many(ledger, number, request=b"x"):
    """Submit this many operations that have failed, and return their ids."""
    prepared = [ledger.prepared(SHOP, "/shop.Orders/Place", request) for _ in range(number)]
    ids = [told.id for told in await ledger.submit_many(prepared)]
    for first in range(0, number, 500):
        reports = [AttemptReport(id_, None, STEPS, FailedAttempt("INTERNAL")) for id_ in ids[first:][:500]]
        await recording.record_ends(ledger.store, reports)
    return ids


async def expired(url, seconds):
    """Let all leases have expired this many seconds ago."""
    sqlite = "(julianday('now') - 2440587.5) * 86400.0 - {}"
    now = "clock_timestamp() - make_interval(secs => {})" if "://" in url else sqlite
    execute(url, f"UPDATE {{}} SET lease_until = {now} WHERE lease_until IS NOT NULL", seconds)


async def did(answer):
    """Return what a function has returned or, if it is a coroutine function, will return."""
    return await answer if inspect.isawaitable(answer) else answer


async def eventually(holds):
    """Wait up to ten seconds until a function, or a coroutine function, returns something true."""
    for _ in range(500):
        if await did(holds()):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen within ten seconds")
