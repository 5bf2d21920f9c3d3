"""Measures the CPU time of one failed attempt to connect.

Fifty channels, each with a backoff of 100 ms, dial a peer that accepts each connection and closes it. The peer counts
the connections. The CPU time is that of the whole dialling process, which does nothing else. Every measurement uses a
new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

from benchmarks.apart import in_child, serving
from benchmarks.benchmark import CONTROL, OURS, PLAIN, Benchmark, Effort, Goal, Measure, Row
from benchmarks.channels import open_channel
from benchmarks.measure import by_round, turns
from benchmarks.peers import failing

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, CONTROL)
CHANNELS = 50
BACKOFF = tuple((f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "max"))  # grpcio's minimum
SETTLES_IN = 0.3  # seconds; leaves out the first attempts, which include loading and setup
CPU = Measure("CPU of an attempt", "µs")


@dataclass(frozen=True, slots=True)
class Size:
    """The number of rounds, and how long one measurement lasts."""

    rounds: int
    seconds: float


SIZES = {Effort.FULL: Size(6, 1.5), Effort.QUICK: Size(2, 0.5), Effort.TINY: Size(2, 0.3)}


def run(effort: Effort) -> list[Row]:
    """Measure each subject in turn, each time in a new process."""
    size = SIZES[effort]
    samples: dict[str, list[float]] = {subject: [] for subject in SUBJECTS}
    with serving(failing) as peer:
        for subject in turns(SUBJECTS, size.rounds):
            begin, end, cpu = in_child(dial, subject, peer.target, size.seconds)
            samples[subject].append(cpu / peer.ask((begin, end)) * 1e6)
    return by_round(f"{CHANNELS} channels, peer hangs up", CPU, samples, PLAIN)


def dial(subject: str, target: str, seconds: float) -> tuple[float, float, float]:
    """Dial for a while; return the start and the end on the monotonic clock, and the CPU time used in seconds."""
    return asyncio.run(_dial(subject, target, seconds))


async def _dial(subject: str, target: str, seconds: float) -> tuple[float, float, float]:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CHANNELS):
            channel = await stack.enter_async_context(open_channel(subject, target, BACKOFF))
            channel.get_state(try_to_connect=True)
            await asyncio.sleep(SETTLES_IN / CHANNELS)  # spread the first dials, and so all later ones
        begin, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        return begin, time.monotonic(), time.process_time() - cpu


BENCHMARK = Benchmark(
    name="attempt",
    says="one failed attempt to connect",
    beside=(PLAIN,),
    goals=(Goal(subject=OURS, measure=CPU, most=1.2),),
    run=run,
)
