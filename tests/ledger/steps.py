"""What the tests of stores do with operations."""

from __future__ import annotations

import asyncio
import inspect
import random

from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.policy.presets import RETRY
from tests.ledger.conftest import execute, submission

SHOP = "shop:443"
STEPS = RETRY["steps"]
QUICK = parse_policy("max_attempts: unlimited, deadline: 1d, delay: 10ms")
UNAVAILABLE = FailedAttempt("UNAVAILABLE")
CHANCE = random.Random(1)


def policy_of(text):
    return parse_policy(text)


async def claimed(store, limit=1, lease=30.0):
    return await store.claim(SHOP, limit, "me", lease)


async def submitted(store, *numbers, **parts):
    return [told.id for told in await store.submit([submission(number, **parts) for number in numbers])]


async def one(store, id_):
    return (await store.find(Filter(ids=(id_,)), 1))[0]


async def failed(store, operation, policy=STEPS, failure=UNAVAILABLE, draw=0.5, **how):
    report = AttemptReport(operation.id, operation.lease_token, policy, failure, draw=draw, **how)
    return (await store.record([report]))[0]


async def expired(url, seconds):
    """Let all leases have expired this many seconds ago."""
    sqlite = "(julianday('now') - 2440587.5) * 86400.0 - {}"
    now = "clock_timestamp() - make_interval(secs => {})" if "://" in url else sqlite
    execute(url, f"UPDATE {{}} SET lease_until = {now} WHERE lease_until IS NOT NULL", seconds)


async def eventually(holds):
    """Wait up to ten seconds until a function, or a coroutine function, returns something true."""
    for _ in range(500):
        told = holds()
        if await told if inspect.isawaitable(told) else told:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen within ten seconds")
