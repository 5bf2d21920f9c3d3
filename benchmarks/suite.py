"""Lists all benchmarks in the order in which they run and runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.benchmark import Benchmark, Effort, Row
from benchmarks.cases import (
    attempt,
    calls,
    churn,
    delays,
    deliveries,
    fail_fast,
    fleet,
    full,
    hang_up,
    hedged,
    importing,
    lateness,
    proxies,
    recovery,
    retry,
    sharing,
    start,
    streams,
    waiting,
)

__all__ = ["BENCHMARKS", "Result", "Run", "run"]

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (
        calls,
        waiting,
        fail_fast,
        hang_up,
        proxies,
        sharing,
        attempt,
        fleet,
        lateness,
        recovery,
        retry,
        hedged,
        streams,
        full,
        delays,
        importing,
        start,
        churn,
        deliveries,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rows of one benchmark, and the seconds it took."""

    benchmark: Benchmark
    rows: tuple[Row, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The results of all benchmarks in one run of the program."""

    began: datetime
    effort: Effort
    results: tuple[Result, ...]


def run(benchmarks: Sequence[Benchmark], effort: Effort, tell: Callable[[Benchmark], object]) -> Run:
    """Run these benchmarks one after another, calling `tell` with each before it starts."""
    began = datetime.now().astimezone()
    results = []
    for benchmark in benchmarks:
        tell(benchmark)
        begin = time.monotonic()
        rows = tuple(benchmark.run(effort))
        results.append(Result(benchmark=benchmark, rows=rows, seconds=time.monotonic() - begin))
    return Run(began=began, effort=effort, results=tuple(results))
