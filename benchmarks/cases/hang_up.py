"""Counts dials to a peer that sends SETTINGS and hangs up (CB-7); `proxies` has real peers that do much the same.

The workers behave as many programs do: they make a call, and if it fails, they call again. All channels use the default
settings, so ours may dial once per second. Each subject has its own peer in a separate process, so that counting does
not slow down the flood of dials. The subjects are measured one at a time.

In the threaded part, the workers are threads. There, grpc's core may redial between two of our checks of a connection.
Our channels report such redials (`CoreRedial`), which are counted in a separate row.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from grpclib.client import Channel as GrpclibChannel
from grpclib.exceptions import GRPCError, StreamTerminatedError

import grpc_backoff
from benchmarks.apart import in_child, serving
from benchmarks.benchmark import (
    OURS,
    PLAIN,
    THREADED,
    THREADED_PLAIN,
    Benchmark,
    Effort,
    Goal,
    Measure,
    Of,
    Row,
)
from benchmarks.channels import GRPCLIB, grpclib_method, open_channel, open_threaded
from benchmarks.measure import by_itself
from benchmarks.peers import hanging_up
from grpc_backoff import CoreRedial, aio
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, GRPCLIB, THREADED_PLAIN, THREADED)
IN_THREADS = (THREADED_PLAIN, THREADED)
CONNECTIONS = Measure("connections", "")
REDIALS = Measure("of these, redials by the core", "")
CALL_FAILED = (grpc.RpcError, GRPCError, StreamTerminatedError, OSError)

Call = Callable[[], Awaitable[object]]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Size:
    """The number of workers, and how long they make calls."""

    workers: int
    seconds: float


SIZES = {Effort.FULL: Size(16, 10.0), Effort.QUICK: Size(16, 2.0), Effort.TINY: Size(2, 0.2)}


def run(effort: Effort) -> list[Row]:
    """Return the connections that each subject's peer accepted."""
    size = SIZES[effort]
    counts, redials = {}, {}
    for subject in SUBJECTS:
        with serving(hanging_up) as peer:
            span, redialled = in_child(keep_calling, subject, peer.target, size)
            counts[subject] = [peer.ask(span)]
        if subject in (OURS, THREADED):
            redials[subject] = [redialled]
    case = f"{size.workers} workers, {size.seconds:g} s"
    return by_itself(case, CONNECTIONS, counts) + by_itself(case, REDIALS, redials)


def keep_calling(subject: str, target: str, size: Size) -> tuple[Span, int]:
    """Keep the workers calling; return the start and end on the monotonic clock, and the number of redials reported."""
    heard: list[object] = []
    if subject in IN_THREADS:
        span = _keep_calling_in_threads(subject, target, size, heard)
    else:
        span = asyncio.run(_keep_calling(subject, target, size, heard))
    return span, sum(isinstance(event, CoreRedial) and span[0] <= event.at < span[1] for event in heard)


def _keep_calling_in_threads(subject: str, target: str, size: Size, heard: list[object]) -> Span:
    with open_threaded(subject, target) as channel, ThreadPoolExecutor(size.workers) as pool:
        if isinstance(channel, grpc_backoff.Channel):
            channel.add_listener(heard.append)
        stub, begin = EchoStub(channel), time.monotonic()
        end = begin + size.seconds

        def work() -> None:
            while time.monotonic() < end:
                with contextlib.suppress(*CALL_FAILED):
                    stub.Unary(Message(text="ping"), timeout=max(0.0, end - time.monotonic()))

        for done in [pool.submit(work) for _ in range(size.workers)]:
            done.result()
        return begin, end


async def _keep_calling(subject: str, target: str, size: Size, heard: list[object]) -> Span:
    loop = asyncio.get_running_loop()
    async with _calling(subject, target, heard) as call:
        begin = loop.time()
        end = begin + size.seconds
        workers = [asyncio.ensure_future(_work(call, end)) for _ in range(size.workers)]
        await asyncio.wait(workers, timeout=size.seconds)
        for worker in workers:
            worker.cancel()  # its call may be waiting out a backoff
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        return begin, end


@contextlib.asynccontextmanager
async def _calling(subject: str, target: str, heard: list[object]) -> AsyncIterator[Call]:
    if subject == GRPCLIB:
        host, _, port = target.rpartition(":")
        async with GrpclibChannel(host, int(port)) as channel:
            method = grpclib_method(channel)
            yield lambda: method(Message(text="ping"))
    else:
        async with open_channel(subject, target) as channel:
            if isinstance(channel, aio.Channel):
                channel.add_listener(heard.append)
            stub = EchoStub(channel)
            yield lambda: stub.Unary(Message(text="ping"))


async def _work(call: Call, end: float) -> None:
    """Call repeatedly until `end`. Cancelling is not enough, because grpclib can turn a cancellation into an error."""
    loop = asyncio.get_running_loop()
    while loop.time() < end:
        with contextlib.suppress(*CALL_FAILED):
            await call()


BENCHMARK = Benchmark(
    name="hang-up",
    says="connections to a peer that sends SETTINGS and closes",
    beside=(PLAIN, GRPCLIB, THREADED_PLAIN),
    goals=(
        Goal(subject=OURS, measure=CONNECTIONS, of=Of.VALUE, most=11),
        Goal(subject=THREADED, measure=CONNECTIONS, of=Of.VALUE, most=16),
    ),
    run=run,
)
