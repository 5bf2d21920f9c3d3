"""Measures how late attempts start when a thousand channels back off on one event loop.

Each channel reports when an attempt failed and how soon the next one is due. The next report shows when the attempt
actually started. The loop has nothing else to do. For comparison, the benchmark also runs plain timers one after
another, which shows how late an idle event loop is without any channels.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass

from benchmarks.apart import in_child
from benchmarks.benchmark import OURS, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.channels import OWN_SUBCHANNELS
from benchmarks.measure import by_itself
from grpc_backoff import aio
from grpc_backoff.connection.events import AttemptFailed, AttemptStarted, ConnectionEvent

__all__ = ["BENCHMARK"]

UNREACHABLE = "127.0.0.1:9"
TIMERS = "a timer of the loop"
LATENESS = Measure("lateness of an attempt", "ms", quantile=0.99)


@dataclass(frozen=True, slots=True)
class Size:
    """The number of channels, the seconds over which their starts are spread, and how long they are then observed."""

    channels: int
    begin: float
    seconds: float
    timers: int


SIZES = {
    Effort.FULL: Size(1000, 5.0, 20.0, 2000),
    Effort.QUICK: Size(100, 0.5, 2.5, 100),
    Effort.TINY: Size(10, 0.1, 1.2, 20),
}


def run(effort: Effort) -> list[Row]:
    """Measure in a separate process."""
    size = SIZES[effort]
    return by_itself(f"{size.channels} channels in backoff", LATENESS, in_child(measure, size))


def measure(size: Size) -> dict[str, list[float]]:
    """Return the milliseconds by which each attempt and each plain timer was late."""
    return asyncio.run(_measure(size))


async def _measure(size: Size) -> dict[str, list[float]]:
    return {OURS: await _attempts(size), TIMERS: await _timers(size.timers)}


async def _attempts(size: Size) -> list[float]:
    late: list[float] = []
    channels = []
    for _ in range(size.channels):
        channel = aio.insecure_channel(UNREACHABLE, [OWN_SUBCHANNELS], listeners=[_Watch(late)])
        channel.get_state(try_to_connect=True)
        channels.append(channel)
        await asyncio.sleep(size.begin / size.channels)  # spread the first dials, and so all later ones
    await asyncio.sleep(size.seconds)
    await asyncio.gather(*(channel.close() for channel in channels))
    return late


class _Watch:
    """A listener of one channel that records, in milliseconds, how late every attempt after the first starts."""

    def __init__(self, late: list[float]) -> None:
        self._late = late
        self._due: float | None = None

    def __call__(self, event: ConnectionEvent) -> None:
        match event:
            case AttemptFailed():
                self._due = event.at + event.retry_in
            case AttemptStarted() if self._due is not None:
                self._late.append((event.at - self._due) * 1e3)


async def _timers(number: int) -> list[float]:
    loop = asyncio.get_running_loop()
    late: list[float] = []
    for place in range(number):
        due = loop.time() + 0.001 + place % 10 / 10_000
        rung = loop.create_future()
        loop.call_at(due, functools.partial(rung.set_result, None))
        await rung
        late.append((loop.time() - due) * 1e3)
    return late


BENCHMARK = Benchmark(
    name="lateness",
    says="how late attempts start",
    beside=(TIMERS,),
    goals=(Goal(subject=OURS, measure=LATENESS, of=Of.VALUE, most=5.0),),
    run=run,
)
