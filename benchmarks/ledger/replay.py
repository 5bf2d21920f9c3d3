"""Replays many failed operations with the command, and measures its time and its largest memory."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import LedgerSettings, OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter, Submission
from grpc_backoff.ledger.stores.urls import open_store
from grpc_backoff.ledger.transactions import queries, recording, submitting
from grpc_backoff.policy.presets import LEDGER

__all__ = ["Replayed", "replay"]

_SETTINGS = LedgerSettings(**LEDGER)
_REQUEST = b"x" * 1000
_MANY = 1000
_ONCE = "max_attempts: 1"


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many operations were failed before and pending afterwards, and what the command needed."""

    failed: int
    pending: int
    seconds: float
    megabytes: float


async def _fail(url: str, number: int) -> None:
    store = open_store(url, _SETTINGS)
    await store.migrate(apply=True)
    policy = parse_policy(_ONCE)
    for _ in range(number // _MANY):
        made = [Submission(str(uuid.uuid4()), "t", "/m/m", _REQUEST, (), _ONCE, None, None) for _ in range(_MANY)]
        await submitting.submit(store, made)
        await recording.record_ends(
            store, [AttemptReport(each.id, None, policy, FailedAttempt("UNAVAILABLE")) for each in made]
        )
    await store.close()


async def _pending(url: str) -> int:
    store = open_store(url, _SETTINGS)
    try:
        return len((await queries.ids(store, Filter(states=(OperationState.PENDING,)), 10_000_000))[0])
    finally:
        await store.close()


def replay(url: str, number: int) -> Replayed:
    """Let this many operations fail, and replay all of them with one command."""
    asyncio.run(_fail(url, number))
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "grpc_backoff", "ledger", "--db", url, "replay", "--all"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - began
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Replayed(number, asyncio.run(_pending(url)), seconds, most)
