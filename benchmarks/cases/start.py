"""Measures a short program: a new process that makes one call on one channel and ends when it has the answer.

Such programs are command-line tools, functions that a request starts, and the workers of tests. Each process imports
its API, creates a channel, makes one unary call, and reports the CPU of the process so far, with the interpreter's own,
and its peak memory. The bytecode is written beforehand. The request is bytes, so that no program pays for protobuf.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.apart import serving
from benchmarks.benchmark import (
    CONTROL,
    OURS,
    PLAIN,
    THREADED,
    THREADED_CONTROL,
    THREADED_PLAIN,
    Benchmark,
    Effort,
    Goal,
    Measure,
    Row,
)
from benchmarks.measure import by_round, turns
from benchmarks.peers import echoing

__all__ = ["BENCHMARK"]

ROOT = Path(__file__).parents[2]
SUBJECTS = (PLAIN, OURS, CONTROL)
THREADED_SUBJECTS = (THREADED_PLAIN, THREADED, THREADED_CONTROL)
CPU = Measure("CPU from the start of a process to its first answer", "ms")
MEMORY = Measure("peak memory of a process that has its first answer", "MiB")

# Not `ru_maxrss`, which on Linux a process inherits from the one that starts it.
_REPORT = """
import time
cpu = time.process_time()
with open("/proc/self/status") as status:
    peak, = (line.split()[1] for line in status if line.startswith("VmHWM"))
print(cpu, peak)
"""
_ASYNCIO = """
import asyncio, sys
{imports}
async def main():
    async with {module}.insecure_channel(sys.argv[1]) as channel:
        await channel.unary_unary("/echo.v1.Echo/Unary")(b"", timeout=60)
asyncio.run(main())
"""
_THREADED = """
import sys
{imports}
with {module}.insecure_channel(sys.argv[1]) as channel:
    channel.unary_unary("/echo.v1.Echo/Unary")(b"", timeout=60)
"""
PROGRAMS = {
    PLAIN: _ASYNCIO.format(imports="import grpc.aio", module="grpc.aio"),
    OURS: _ASYNCIO.format(imports="from grpc_backoff import aio", module="aio"),
    THREADED_PLAIN: _THREADED.format(imports="import grpc", module="grpc"),
    THREADED: _THREADED.format(imports="import grpc_backoff", module="grpc_backoff"),
}
PROGRAMS |= {CONTROL: PROGRAMS[PLAIN], THREADED_CONTROL: PROGRAMS[THREADED_PLAIN]}


@dataclass(frozen=True, slots=True)
class Size:
    """How many processes of each subject are measured."""

    rounds: int


SIZES = {Effort.FULL: Size(9), Effort.QUICK: Size(3), Effort.TINY: Size(1)}


def run(effort: Effort) -> list[Row]:
    """Measure one process after another."""
    rows: list[Row] = []
    with serving(echoing) as peer, tempfile.TemporaryDirectory() as bytecode:
        for case, subjects in (("asyncio", SUBJECTS), ("threads", THREADED_SUBJECTS)):
            taken: dict[Measure, dict[str, list[float]]] = {
                what: {subject: [] for subject in subjects} for what in (CPU, MEMORY)
            }
            for subject in subjects:
                _start(subject, peer.target, bytecode)  # writes the bytecode that later processes read
            for subject in turns(subjects, SIZES[effort].rounds):
                seconds, kibibytes = _start(subject, peer.target, bytecode)
                taken[CPU][subject].append(seconds * 1e3)
                taken[MEMORY][subject].append(kibibytes / 1024)
            for what, samples in taken.items():
                rows += by_round(case, what, samples, subjects[0])
    return rows


def _start(subject: str, target: str, bytecode: str) -> tuple[float, float]:
    """Return the CPU, in seconds, and the peak memory, in KiB, of one process."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", PROGRAMS[subject] + _REPORT, target]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds, kibibytes = map(float, done.stdout.split())
    return seconds, kibibytes


BENCHMARK = Benchmark(
    name="start",
    says="the first answer of a new process",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(
        Goal(subject=subject, measure=what, most=most)
        for subject in (OURS, THREADED)
        for what, most in ((CPU, 1.25), (MEMORY, 1.06))
    ),
    run=run,
)
