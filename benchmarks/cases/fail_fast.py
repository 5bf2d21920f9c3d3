"""Measures the cost of a fail-fast call while the channel is in backoff (CH-3). Such a call fails immediately.

The target refuses connections, and the backoff is so long that no attempt starts during the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

import grpc
import grpc.aio

from benchmarks.apart import in_child
from benchmarks.benchmark import CONTROL, OURS, PLAIN, Benchmark, Effort, Goal, Measure, Row
from benchmarks.channels import open_channel
from benchmarks.measure import by_round, turns
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, CONTROL)
UNREACHABLE = "127.0.0.1:9"  # the discard port; only root could listen on it
LONG_BACKOFF = tuple((f"grpc.{which}_reconnect_backoff_ms", 3_600_000) for which in ("initial", "max"))
TURN = 50
TIME = Measure("time of a call", "µs")


@dataclass(frozen=True, slots=True)
class Size:
    """The number of rounds."""

    rounds: int


SIZES = {Effort.FULL: Size(150), Effort.QUICK: Size(20), Effort.TINY: Size(2)}


def run(effort: Effort) -> list[Row]:
    """Measure all subjects in one process."""
    return by_round("fail-fast call in backoff", TIME, in_child(measure, SIZES[effort]), PLAIN)


def measure(size: Size) -> dict[str, list[float]]:
    """Return the microseconds per call for each subject, one sample per measurement."""
    return asyncio.run(_measure(size))


async def _measure(size: Size) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {subject: [] for subject in SUBJECTS}
    async with contextlib.AsyncExitStack() as stack:
        stubs = {}
        for subject in SUBJECTS:
            channel = await stack.enter_async_context(open_channel(subject, UNREACHABLE, LONG_BACKOFF))
            stubs[subject] = EchoStub(channel)
            await _turn(stubs[subject])  # the first call makes the channel dial and fail
        for subject in turns(SUBJECTS, size.rounds):
            samples[subject].append(await _turn(stubs[subject]))
    return samples


async def _turn(stub: EchoStub) -> float:
    """Make the calls of one measurement; return the microseconds per call."""
    begin = time.perf_counter()
    for _ in range(TURN):
        await _fail(stub)
    return (time.perf_counter() - begin) / TURN * 1e6


async def _fail(stub: EchoStub) -> None:
    try:
        await stub.Unary(Message(text="ping"))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise


BENCHMARK = Benchmark(
    name="fail-fast",
    says="a fail-fast call during backoff",
    beside=(PLAIN,),
    goals=(Goal(subject=OURS, measure=TIME, most=1.0),),
    run=run,
)
