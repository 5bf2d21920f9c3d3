"""Measures the additional cost of importing `grpc_backoff.aio` in a program that has imported `grpc.aio`.

Each round starts a new interpreter and measures the CPU time of importing first `grpc.aio`, then `grpc_backoff.aio`.
`grpc_backoff.aio` requires `grpc.aio`, and its users import that module anyway.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.benchmark import OURS, PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.measure import by_itself

__all__ = ["BENCHMARK"]

ROOT = Path(__file__).parents[2]
PROGRAM = """
from time import process_time
begin = process_time()
import grpc.aio
between = process_time()
import grpc_backoff.aio
print(between - begin, process_time() - between)
"""
OVER = f"{OURS}, after grpc.aio"
TIME = Measure("CPU of the import", "ms")


@dataclass(frozen=True, slots=True)
class Size:
    """How many interpreters are measured."""

    rounds: int


SIZES = {Effort.FULL: Size(30), Effort.QUICK: Size(4), Effort.TINY: Size(2)}


def run(effort: Effort) -> list[Row]:
    """Take one measurement after another, each in a new interpreter."""
    samples: dict[str, list[float]] = {PLAIN: [], OVER: []}
    with tempfile.TemporaryDirectory() as bytecode:
        _import(bytecode)  # writes the bytecode that later imports read
        for _ in range(SIZES[effort].rounds):
            for subject, seconds in zip(samples, _import(bytecode), strict=True):
                samples[subject].append(seconds * 1e3)
    return by_itself("fresh interpreter", TIME, samples)


def _import(bytecode: str) -> tuple[float, float]:
    """Return the CPU seconds of importing `grpc.aio` and of importing `grpc_backoff.aio`."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    first, second = map(float, done.stdout.split())
    return first, second


BENCHMARK = Benchmark(
    name="import",
    says="importing the package",
    beside=(PLAIN,),
    goals=(Goal(subject=OVER, measure=TIME, of=Of.VALUE, most=40),),
    run=run,
)
