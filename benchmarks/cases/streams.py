"""Counts the calls that fail when many are made at once to a server with a limit of concurrent streams (RT-13, PO-8).

The server is grpcio's own threaded one. It refuses streams although its clients keep to its limit, because it counts
streams that have ended too late. Each subject makes bursts of calls on one channel, and each call of a burst starts
before any of them ends. The time is that of the longest call of a burst. Ours has one connection, or up to four; the
other connections are opened during the first burst.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
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

FOUR = (("grpc_backoff.max_connections", 4),)
RETRY = {"retry": "standard"}
RETRYING, SEVERAL = f"{OURS}, retry", f"{OURS}, retry, 4 connections"
THREADED_SEVERAL = f"{THREADED}, retry, 4 connections"
MAKERS: dict[str, Callable[[str], Any]] = {
    PLAIN: lambda target: grpc.aio.insecure_channel(target, [OWN_SUBCHANNELS]),
    OURS: lambda target: aio.insecure_channel(target, [OWN_SUBCHANNELS]),
    RETRYING: lambda target: aio.insecure_channel(target, [OWN_SUBCHANNELS], **RETRY),
    SEVERAL: lambda target: aio.insecure_channel(target, [OWN_SUBCHANNELS, *FOUR], **RETRY),
    THREADED_PLAIN: lambda target: grpc.insecure_channel(target, [OWN_SUBCHANNELS]),
    THREADED_SEVERAL: lambda target: grpc_backoff.insecure_channel(target, [OWN_SUBCHANNELS, *FOUR], **RETRY),
}
SUBJECTS = tuple(MAKERS)
IN_THREADS = (THREADED_PLAIN, THREADED_SEVERAL)
FAILED = Measure("failed calls", "")
TIME = Measure("time of a burst", "ms")
TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """The number of bursts, the calls in each, and the server's limit of streams."""

    bursts: int
    calls: int
    limit: int


SIZES = {Effort.FULL: Size(3, 300, 100), Effort.QUICK: Size(3, 300, 100), Effort.TINY: Size(1, 20, 10)}


def run(effort: Effort) -> list[Row]:
    """Return the failed calls of each subject in all bursts, and the time of each burst."""
    size, failed, times = SIZES[effort], {}, {}
    for subject in SUBJECTS:
        with serving(limited, size.limit) as peer:
            lost, times[subject] = in_child(burst, subject, peer.target, size)
            failed[subject] = [lost]
    case = f"{size.bursts} x {size.calls} calls at once, {size.limit} streams"
    return by_itself(case, FAILED, failed) + by_itself(case, TIME, times)


def burst(subject: str, target: str, size: Size) -> tuple[int, list[float]]:
    """Make the bursts; return how many calls failed, and the time of each burst in milliseconds."""
    if subject in IN_THREADS:
        with MAKERS[subject](target) as channel, ThreadPoolExecutor(size.calls) as pool:
            method = EchoStub(channel).Unary

            def fails(_: int) -> bool:
                with contextlib.suppress(grpc.RpcError):
                    return method(Message(text="a"), timeout=TIMEOUT) is None
                return True

            assert not fails(0)
            return _timed(lambda: sum(pool.map(fails, range(size.calls))), size.bursts)
    with asyncio.Runner() as runner:
        channel = runner.run(_opened(subject, target))
        counted = _timed(lambda: runner.run(_at_once(channel, size.calls)), size.bursts)
        runner.run(channel.close(None))
        return counted


def _timed(make: Callable[[], int], bursts: int) -> tuple[int, list[float]]:
    counts, times = [], []
    for _ in range(bursts):
        begin = time.perf_counter()
        counts.append(make())
        times.append((time.perf_counter() - begin) * 1e3)
    return sum(counts), times


async def _opened(subject: str, target: str) -> grpc.aio.Channel:
    channel: grpc.aio.Channel = MAKERS[subject](target)
    await channel.channel_ready()
    return channel


async def _at_once(channel: grpc.aio.Channel, calls: int) -> int:
    method = EchoStub(channel).Unary
    made = [method(Message(text="a"), timeout=TIMEOUT) for _ in range(calls)]
    return sum([await call.code() is not grpc.StatusCode.OK for call in made])


BENCHMARK = Benchmark(
    name="streams",
    says="more calls than streams",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(
        Goal(subject=subject, measure=FAILED, of=Of.VALUE, most=0) for subject in (RETRYING, SEVERAL, THREADED_SEVERAL)
    ),
    run=run,
)
