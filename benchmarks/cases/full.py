"""Makes more calls at once than all connections may carry, without a retry policy (PO-14).

The server is grpcio's own threaded one, which refuses streams although its clients keep to its limit (`streams`). A
channel of ours that may open several connections is compared with as many plain channels, among which the calls are
spread in turn, as a program would do. Each call of a burst starts before any of them ends.

A refused call costs almost no time, so there is also the time of a burst for each call that was answered. The first
burst, in which our channel opens its connections, counts for the refused calls, but not for the times.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

import grpc_backoff
from benchmarks.apart import in_child, serving
from benchmarks.benchmark import OURS, PLAIN, THREADED, THREADED_PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.channels import OWN_SUBCHANNELS
from benchmarks.measure import by_itself
from benchmarks.peers import limited
from grpc_backoff import aio
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS, THREADED_SUBJECTS = (PLAIN, OURS), (THREADED_PLAIN, THREADED)
REFUSED = Measure("refused calls", "")
TIME = Measure("time of a burst", "ms")
EACH = Measure("time of a burst, for each answered call", "ms")
TIMEOUT, WORKERS = 30.0, 100


@dataclass(frozen=True, slots=True)
class Size:
    """The number of bursts, the calls in each, the server's limit of streams, and the number of connections."""

    bursts: int
    calls: int
    limit: int
    connections: int


SIZES = {
    Effort.FULL: (Size(21, 300, 10, 8), Size(21, 300, 100, 4)),
    Effort.QUICK: (Size(6, 300, 10, 8), Size(4, 300, 100, 4)),
    Effort.TINY: (Size(2, 20, 4, 2),),
}


def run(effort: Effort) -> list[Row]:
    """Return the refused calls of each subject in all bursts, and the times of its bursts."""
    rows: list[Row] = []
    for size in SIZES[effort]:
        case = f"{size.bursts} x {size.calls} calls at once, {size.connections} connections, {size.limit} streams"
        for subjects in (SUBJECTS, THREADED_SUBJECTS):
            refused, times, each = {}, {}, {}
            for subject in subjects:
                with serving(limited, size.limit, WORKERS) as peer:
                    counts, took = in_child(bursts, subject, peer.target, size)
                refused[subject] = [sum(counts)]
                times[subject] = took[1:]
                each[subject] = [
                    spent / max(1, size.calls - count) for spent, count in zip(took[1:], counts[1:], strict=True)
                ]
            rows += by_itself(case, REFUSED, refused)
            rows += by_itself(case, TIME, times, subjects[0]) + by_itself(case, EACH, each, subjects[0])
    return rows


def bursts(subject: str, target: str, size: Size) -> tuple[list[int], list[float]]:
    """Make the bursts; return how many calls of each were refused, and its time in milliseconds."""
    options = [OWN_SUBCHANNELS]
    if subject in (OURS, THREADED):
        options += [("grpc_backoff.max_connections", size.connections)]
        options += [("grpc_backoff.streams_per_connection", size.limit)]
    count = 1 if subject in (OURS, THREADED) else size.connections
    if subject in SUBJECTS:
        return asyncio.run(_on_asyncio(aio if subject == OURS else grpc.aio, target, options, count, size))
    return _on_threads(grpc_backoff if subject == THREADED else grpc, target, options, count, size)


async def _on_asyncio(
    api: Any, target: str, options: list[Any], count: int, size: Size
) -> tuple[list[int], list[float]]:
    channels = [api.insecure_channel(target, options) for _ in range(count)]
    for channel in channels:
        await channel.channel_ready()
    methods = [EchoStub(channel).Unary for channel in channels]
    counts, times = [], []
    for _ in range(size.bursts):
        begin = time.perf_counter()
        made = [methods[turn % count](Message(text="a"), timeout=TIMEOUT) for turn in range(size.calls)]
        counts.append(sum([await call.code() is not grpc.StatusCode.OK for call in made]))
        times.append((time.perf_counter() - begin) * 1e3)
    for channel in channels:
        await channel.close(None)
    return counts, times


def _on_threads(api: Any, target: str, options: list[Any], count: int, size: Size) -> tuple[list[int], list[float]]:
    channels = [api.insecure_channel(target, options) for _ in range(count)]
    for channel in channels:
        grpc.channel_ready_future(channel).result(TIMEOUT)
    methods = [EchoStub(channel).Unary for channel in channels]

    def fails(turn: int) -> bool:
        try:
            methods[turn % count](Message(text="a"), timeout=TIMEOUT)
        except grpc.RpcError:
            return True
        return False

    counts, times = [], []
    with ThreadPoolExecutor(size.calls) as pool:
        for _ in range(size.bursts):
            begin = time.perf_counter()
            counts.append(sum(pool.map(fails, range(size.calls))))
            times.append((time.perf_counter() - begin) * 1e3)
    for channel in channels:
        channel.close()
    return counts, times


BENCHMARK = Benchmark(
    name="full",
    says="more calls than all connections may carry",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(
        goal
        for subject in (OURS, THREADED)
        for goal in (
            Goal(subject=subject, measure=REFUSED, of=Of.VALUE, most=0),
            Goal(subject=subject, measure=TIME, most=1.2),
            Goal(subject=subject, measure=EACH, most=1.2),
        )
    ),
    run=run,
)
