"""Measures rate and dead tuples under a steady load on PostgreSQL, also beside a transaction that stays open.

PostgreSQL cannot remove a dead version of a row while any transaction may still see it. So a transaction that is idle
for minutes makes the tables of a queue grow. Dead tuples are those that PostgreSQL's statistics report.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import psycopg

from benchmarks.ledger.rates import METHOD, serving
from grpc_backoff import aio
from grpc_backoff.ledger import Ledger, LedgerSettings
from grpc_backoff.policy.presets import LEDGER

__all__ = ["Phase", "idle", "steady"]

_SAMPLE = 1.0
_DEAD = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'grpc_backoff'"
_KEEP = 60.0  # seconds after which operations are pruned, so that DELETE is part of the load


@dataclass(frozen=True, slots=True)
class Phase:
    """What was measured in one part of a run.

    Attributes:
        offered: operations submitted per second.
        rate: operations delivered per second.
        dead_median: the median of the number of dead tuples.
        dead_last: the number at the end.
        waiting: operations that were still waiting at the end.
    """

    phase: str
    seconds: float
    offered: float
    rate: float
    dead_median: float
    dead_most: int
    dead_last: int
    waiting: int


class _Load:
    """Submits and delivers operations at a rate, in this process."""

    def __init__(self, ledger: Ledger, target: str, rate: int, calls: Callable[[], int], url: str) -> None:
        self._ledger = ledger
        self._target = target
        self._rate = rate
        self._calls = calls
        self._url = url
        self.submitted = 0

    async def feed(self) -> None:
        began = time.monotonic()
        while True:
            due = round((time.monotonic() - began) * self._rate) - self.submitted
            if due > 0:
                await self._ledger.submit_many(
                    [self._ledger.prepared(self._target, METHOD, b"x" * 100) for _ in range(due)]
                )
                self.submitted += due
            await asyncio.sleep(0.02)

    async def measure(self, phase: str, seconds: float) -> Phase:
        began, submitted, calls = time.monotonic(), self.submitted, self._calls()
        dead: list[int] = []
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            while not dead or time.monotonic() < began + seconds:
                await asyncio.sleep(min(_SAMPLE, seconds))
                [number] = await (await connection.execute(_DEAD)).fetchone()
                dead.append(number)
        took = time.monotonic() - began
        return Phase(
            phase,
            took,
            (self.submitted - submitted) / took,
            (self._calls() - calls) / took,
            statistics.median(dead),
            max(dead),
            dead[-1],
            self.submitted - self._calls(),
        )


@contextlib.asynccontextmanager
async def _loaded(url: str, rate: int):
    settings = replace(LedgerSettings(**LEDGER), keep=_KEEP)
    async with (
        serving() as (handler, target),
        await Ledger.open(url, settings=settings) as ledger,
        aio.insecure_channel(target) as channel,
    ):
        load = _Load(ledger, target, rate, lambda: handler.calls, url)
        tasks = [asyncio.ensure_future(each) for each in (ledger.deliver(channel), load.feed())]
        await asyncio.sleep(1.0)
        try:
            yield load
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def steady(url: str, rate: int, seconds: float) -> Phase:
    """Measure a steady load."""
    async with _loaded(url, rate) as load:
        return await load.measure("steady", seconds)


async def idle(url: str, rate: int, seconds: float) -> list[Phase]:
    """Measure a load before, beside and after a transaction that is idle; the last phase takes half as long."""
    async with _loaded(url, rate) as load:
        phases = [await load.measure("before", seconds / 5)]
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("SELECT txid_current()")
            phases.append(await load.measure("idle transaction", seconds))
        return [*phases, await load.measure("after", seconds / 2)]
