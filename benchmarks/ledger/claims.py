"""Has many processes claim operations from one ledger and checks that none is claimed twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
import uuid
from collections import Counter
from dataclasses import dataclass, replace

from grpc_backoff.ledger.records import AttemptReport, Submission
from grpc_backoff.ledger.stores.urls import open_store
from grpc_backoff.ledger.transactions import claiming, recording, submitting
from grpc_backoff.policy.ledger_settings import LedgerSettings
from grpc_backoff.policy.presets import LEDGER, RETRY_PRESETS

__all__ = ["Shared", "share"]

_SETTINGS = replace(LedgerSettings(**LEDGER), lock_timeout=60.0, timeout=120.0)
_BATCH = 50
_LEASE = 600.0


@dataclass(frozen=True, slots=True)
class Shared:
    """How many operations there were, how many were claimed twice, and how many were never claimed."""

    processes: int
    operations: int
    twice: int
    missed: int
    seconds: float


async def _claim(url: str) -> list[str]:
    store = open_store(url, _SETTINGS)
    mine: list[str] = []
    try:
        while taken := await claiming.claim(store, "t", _BATCH, "me", _LEASE):
            mine += [operation.id for operation in taken]
            await recording.record_ends(
                store, [AttemptReport(each.id, each.lease_token, RETRY_PRESETS["steps"]) for each in taken]
            )
    finally:
        await store.close()
    return mine


def _process(url, answers):
    answers.put(asyncio.run(_claim(url)))


async def share(url: str, processes: int, operations: int) -> Shared:
    """Submit the operations and have the processes claim and finish all of them."""
    store = open_store(url, _SETTINGS)
    await store.migrate(apply=True)
    made = [Submission(str(uuid.uuid4()), "t", "/m/m", b"x", (), "steps", None, None) for _ in range(operations)]
    for first in range(0, operations, 1000):
        await submitting.submit(store, made[first : first + 1000])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grpc_backoff.ledger", "benchmarks.ledger.claims", "psycopg"])
    answers = context.Queue()
    began = time.monotonic()
    running = [context.Process(target=_process, args=(url, answers)) for _ in range(processes)]
    for process in running:
        process.start()
    claimed: Counter[str] = Counter()
    for _ in running:
        claimed.update(await asyncio.to_thread(answers.get, True, 3000))
    seconds = time.monotonic() - began
    for process in running:
        process.join()
    await store.close()
    twice = sum(1 for times in claimed.values() if times > 1)
    return Shared(processes, operations, twice, operations - len(claimed), seconds)
