"""Has ten orchestrators record a failure of one step at the same moment, with the ledger and with unlocked UPDATEs."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from dataclasses import dataclass

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.records import AttemptReport, Filter, Submission
from grpc_backoff.ledger.stores.urls import open_store
from grpc_backoff.ledger.transactions import queries, recording, submitting
from grpc_backoff.policy.ledger_settings import LedgerSettings
from grpc_backoff.policy.presets import LEDGER, RETRY_PRESETS

__all__ = ["Tally", "locked", "unlocked"]

_AT_ONCE = 10
_SETTINGS = LedgerSettings(**LEDGER)
_STEPS = RETRY_PRESETS["steps"]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many attempts were recorded, and how many were lost."""

    rounds: int
    attempts: int
    lost: int
    outside: int
    seconds: float


async def locked(url: str, rounds: int) -> Tally:
    """For each of this many steps, have ten stores each record a failure at the same moment."""
    began = time.monotonic()
    rng = random.Random(1)
    stores = [open_store(url, _SETTINGS) for _ in range(_AT_ONCE)]
    await stores[0].migrate(apply=True)
    attempts = lost = outside = 0
    for _ in range(rounds):
        step = str(uuid.uuid4())
        await submitting.submit(stores[0], [Submission(step, "t", "/m/m", b"", (), "steps", None, None)])
        await asyncio.gather(
            *(
                recording.record_ends(
                    store, [AttemptReport(step, None, _STEPS, FailedAttempt("UNAVAILABLE"), draw=rng.random())]
                )
                for store in stores
            )
        )
        [operation] = await queries.find(stores[0], Filter(ids=(step,)), 1)
        rows = await queries.attempts(stores[0], step)
        attempts += len(rows)
        lost += _AT_ONCE - min(operation.attempts, len({row.number for row in rows}))
        low, high = _STEPS.bounds(_AT_ONCE)
        wait = operation.next_attempt_at - operation.last_attempted_at
        outside += not low - 1e-5 <= wait <= high + 1e-5
    await asyncio.gather(*(store.close() for store in stores))
    return Tally(rounds, attempts, lost, outside, time.monotonic() - began)


async def unlocked(url: str, rounds: int) -> Tally:
    """Read the attempts, compute and write without a lock or a transaction; reproduces a known bug (PostgreSQL)."""
    import psycopg

    began = time.monotonic()
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(_AT_ONCE)]
    await connections[0].execute("CREATE TABLE steps (id integer, attempts integer, backoff_request_seconds integer)")

    async def fail(connection, step):
        cursor = await connection.execute("SELECT attempts FROM steps WHERE id = %s", (step,))
        (attempts,) = await cursor.fetchone()
        await connection.execute(
            "UPDATE steps SET attempts = %s, backoff_request_seconds = %s WHERE id = %s",
            (attempts + 1, min(2**attempts, 60), step),
        )

    kept = 0
    for step in range(rounds):
        await connections[0].execute("INSERT INTO steps VALUES (%s, 0, NULL)", (step,))
        await asyncio.gather(*(fail(connection, step) for connection in connections))
        cursor = await connections[0].execute("SELECT attempts FROM steps WHERE id = %s", (step,))
        kept += (await cursor.fetchone())[0]
    for connection in connections:
        await connection.close()
    return Tally(rounds, kept, _AT_ONCE * rounds - kept, 0, time.monotonic() - began)
