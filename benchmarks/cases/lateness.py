"""Measures how late attempts start when a thousand channels back off on one event loop, and how late deadlines come.

Each channel reports when an attempt failed and how soon the next one is due. The next report shows when the attempt
actually started. The loop has nothing else to do. For comparison, the benchmark also runs plain timers one after
another, which shows how late an idle event loop is without any channels.

For deadlines, four threads compute all the time while eight others wait for futures on a channel whose target refuses
connections. The channel has a listener, and the log is on. How late a deadline comes depends on the machine, so the
goal is for how much later it is than the latest of plain grpcio's in the same run, which takes turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

import grpc_backoff
from benchmarks.apart import in_child
from benchmarks.benchmark import OURS, THREADED, THREADED_PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.channels import OWN_SUBCHANNELS
from benchmarks.measure import by_itself, turns
from grpc_backoff import aio
from grpc_backoff.decide.connections.events import AttemptFailed, AttemptStarted, ConnectionEvent

__all__ = ["BENCHMARK"]

UNREACHABLE = "127.0.0.1:9"
TIMERS = "a timer of the loop"
LATENESS = Measure("lateness of an attempt", "ms", quantile=0.99)
DEADLINE = Measure("lateness of a deadline", "ms", quantile=0.99)
BEYOND = Measure("lateness of a deadline beyond plain grpcio's p99", "ms", quantile=0.99)
DEADLINE_SUBJECTS = (THREADED_PLAIN, THREADED)
COMPUTING = 4
CALLERS = 8
TIMEOUT = 0.5
REFUSED_OFTEN = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300))


@dataclass(frozen=True, slots=True)
class Size:
    """The number of channels, the seconds over which their starts are spread, and how long they are then observed.

    `calls` is how many deadlines each caller awaits.
    """

    channels: int
    begin: float
    seconds: float
    timers: int
    calls: int


SIZES = {
    Effort.FULL: Size(1000, 5.0, 20.0, 2000, 40),
    Effort.QUICK: Size(100, 0.5, 2.5, 100, 6),
    Effort.TINY: Size(10, 0.1, 1.2, 20, 1),
}


def run(effort: Effort) -> list[Row]:
    """Measure in separate processes."""
    size = SIZES[effort]
    late = in_child(measure_deadlines, size)
    usual = float(np.quantile(late[THREADED_PLAIN], DEADLINE.quantile))
    case = f"{COMPUTING} threads that compute"
    return [
        *by_itself(f"{size.channels} channels in backoff", LATENESS, in_child(measure, size)),
        *by_itself(case, DEADLINE, late),
        *by_itself(case, BEYOND, {THREADED: [each - usual for each in late[THREADED]]}),
    ]


def measure_deadlines(size: Size) -> dict[str, list[float]]:
    """Return the milliseconds by which each deadline was late, for each subject."""
    logging.basicConfig(level=logging.INFO, filename=os.devnull)
    late: dict[str, list[float]] = {subject: [] for subject in DEADLINE_SUBJECTS}
    stop = threading.Event()
    for _ in range(COMPUTING):
        threading.Thread(target=_compute, args=(stop,), daemon=True).start()
    with ThreadPoolExecutor(CALLERS) as callers:
        for subject in turns(DEADLINE_SUBJECTS, size.calls):
            with _refused(subject) as channel:
                call: Any = channel.unary_unary("/benchmarks.Lateness/Call")
                late[subject] += callers.map(_lateness, [call] * CALLERS)
    stop.set()
    return late


def _refused(subject: str) -> grpc.Channel:
    options = (OWN_SUBCHANNELS, *REFUSED_OFTEN)
    if subject == THREADED_PLAIN:
        return grpc.insecure_channel(UNREACHABLE, options)
    return grpc_backoff.insecure_channel(UNREACHABLE, options, listeners=[lambda _: None])


def _lateness(call: grpc.UnaryUnaryMultiCallable[bytes, bytes]) -> float:
    began = time.monotonic()
    with contextlib.suppress(grpc.RpcError):
        call.future(b"", timeout=TIMEOUT, wait_for_ready=True).result()
    return (time.monotonic() - began - TIMEOUT) * 1e3


def _compute(stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1


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
    says="how late attempts start, and deadlines come",
    beside=(TIMERS, THREADED_PLAIN),
    goals=(
        Goal(subject=OURS, measure=LATENESS, of=Of.VALUE, most=5.0),
        Goal(subject=THREADED, measure=BEYOND, of=Of.VALUE, most=100.0),
    ),
    run=run,
)
