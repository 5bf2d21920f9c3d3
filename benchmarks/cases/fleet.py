"""Measures ten thousand channels in backoff: their memory, CPU and threads, and how much they delay their event loop.

Each channel has its own loopback target, which refuses connections, and the default backoff. The subjects run at the
same time, each in its own process, and share the machine's cores; the control shows whether they share them fairly.
Memory is the growth of the process while it creates the channels and they dial, not counting the first few channels.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import NamedTuple

import grpc.aio
import psutil

from benchmarks.apart import at_once
from benchmarks.benchmark import CONTROL, OURS, PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.channels import open_channel
from benchmarks.measure import by_itself

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, CONTROL)
AT_ONCE = 10  # channels created before the loop gets a turn
FIRST = 20  # channels that exist when threads are first counted
TICK = 0.01

MEMORY = Measure("memory of a channel", "KiB")
CPU = Measure("CPU of a channel", "ms")
THREADS = Measure("threads in addition to those for a few channels", "")
LATENESS = Measure("worst lateness of the loop", "ms")


MEASURES = (MEMORY, CPU, THREADS, LATENESS)


@dataclass(frozen=True, slots=True)
class Size:
    """The number of channels, and how long they are observed."""

    channels: int
    seconds: float


SIZES = {Effort.FULL: Size(10_000, 60.0), Effort.QUICK: Size(200, 3.0), Effort.TINY: Size(30, 0.3)}


class Figures(NamedTuple):
    """The resources that one subject used, in the order and units of MEASURES."""

    memory: float
    cpu: float
    threads: float
    lateness: float


def run(effort: Effort) -> list[Row]:
    """Measure all subjects concurrently."""
    size = SIZES[effort]
    taken = dict(zip(SUBJECTS, at_once(back_off, [(subject, size) for subject in SUBJECTS]), strict=True))
    rows = []
    for place, measure in enumerate(MEASURES):
        samples = {subject: [figures[place]] for subject, figures in taken.items()}
        baseline = PLAIN if measure in (MEMORY, CPU) else None
        rows += by_itself(f"{size.channels} channels, {size.seconds:g} s", measure, samples, baseline)
    return rows


def back_off(subject: str, size: Size) -> Figures:
    """Keep the channels in backoff; return the resources that they used."""
    return asyncio.run(_back_off(subject, size))


async def _back_off(subject: str, size: Size) -> Figures:
    process = psutil.Process()
    channels = [_dialling(subject, number) for number in range(FIRST)]
    await asyncio.sleep(min(1.0, size.seconds))
    memory, threads, cpu = process.memory_info().rss, process.num_threads(), time.process_time()
    ticker = _Ticker(asyncio.get_running_loop())
    for number in range(FIRST, size.channels):
        channels.append(_dialling(subject, number))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(size.seconds)
    more = size.channels - FIRST
    figures = Figures(
        memory=(process.memory_info().rss - memory) / 1024 / more,
        cpu=(time.process_time() - cpu) * 1e3 / more,
        threads=process.num_threads() - threads,
        lateness=ticker.worst * 1e3,
    )
    ticker.stop()
    await asyncio.gather(*(channel.close() for channel in channels))
    return figures


def _dialling(subject: str, number: int) -> grpc.aio.Channel:
    channel = open_channel(subject, f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}:9")
    channel.get_state(try_to_connect=True)
    return channel


class _Ticker:
    """Schedules a timer repeatedly and records the worst lateness in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.worst = 0.0
        self._loop = loop
        self._tick(loop.time())

    def _tick(self, due: float) -> None:
        now = self._loop.time()
        self.worst = max(self.worst, now - due)
        self._timer = self._loop.call_at(now + TICK, self._tick, now + TICK)

    def stop(self) -> None:
        self._timer.cancel()


BENCHMARK = Benchmark(
    name="fleet",
    says="channels in backoff whose targets refuse connections",
    beside=("grpc.aio with its own subchannels",),
    goals=(
        Goal(subject=OURS, measure=MEMORY, most=0.5),
        Goal(subject=OURS, measure=CPU, most=1.0),
        Goal(subject=OURS, measure=THREADS, of=Of.VALUE, most=16),  # grpcio's pool grows a little under load
    ),
    run=run,
)
