"""Measures the CPU time of one failed attempt to connect.

Fifty channels, each with a backoff of 100 ms, dial a peer that accepts each connection and closes it. The peer counts
the connections. The CPU time is that of the whole dialling process, which does nothing else. Every measurement uses a
new process.

Two more subjects make a plain channel for each attempt, as this library does, and nothing else. They show what part of
the cost is that of the channels, and of asking the core for the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import grpc.aio

from benchmarks.apart import in_child, serving
from benchmarks.benchmark import CONTROL, OURS, PLAIN, Benchmark, Effort, Goal, Measure, Row
from benchmarks.channels import OWN_SUBCHANNELS, open_channel
from benchmarks.measure import by_round, turns
from benchmarks.peers import failing

__all__ = ["BENCHMARK"]

PER_ATTEMPT, EXPLAINED = "grpc.aio, a channel per attempt", "grpc.aio, a channel per attempt, reason"
SUBJECTS = (PLAIN, OURS, PER_ATTEMPT, EXPLAINED, CONTROL)
CHANNELS = 50
SECONDS = 0.1  # grpcio's minimum
BACKOFF = tuple((f"grpc.{which}_reconnect_backoff_ms", round(SECONDS * 1000)) for which in ("initial", "max"))
JITTER = 0.2
ONE_ATTEMPT = (OWN_SUBCHANNELS, ("grpc.testing.fixed_reconnect_backoff_ms", 20_000))
LOOKS = 0.001  # seconds between two looks at an attempt, as in this library
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
            for _ in range(5):  # a busy machine may make no attempt in so short a time
                begin, end, cpu = in_child(dial, subject, peer.target, size.seconds)
                if attempts := peer.ask((begin, end)):
                    break
            samples[subject].append(cpu / attempts * 1e6)
    return by_round(f"{CHANNELS} channels, peer hangs up", CPU, samples, PLAIN)


def dial(subject: str, target: str, seconds: float) -> tuple[float, float, float]:
    """Dial for a while; return the start and the end on the monotonic clock, and the CPU time used in seconds."""
    return asyncio.run(_dial(subject, target, seconds))


async def _dial(subject: str, target: str, seconds: float) -> tuple[float, float, float]:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CHANNELS):
            await stack.enter_async_context(_dialling(subject, target))
            await asyncio.sleep(SETTLES_IN / CHANNELS)  # spread the first dials, and so all later ones
        begin, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        return begin, time.monotonic(), time.process_time() - cpu


@contextlib.asynccontextmanager
async def _dialling(subject: str, target: str) -> AsyncIterator[None]:
    """Dial again and again, with one channel of the subject's kind or with one for each attempt."""
    if subject not in (PER_ATTEMPT, EXPLAINED):
        async with open_channel(subject, target, BACKOFF) as channel:
            channel.get_state(try_to_connect=True)
            yield
        return
    attempts = asyncio.create_task(_channel_per_attempt(target, asks=subject == EXPLAINED))
    async with grpc.aio.insecure_channel(target):  # while there is a channel, grpcio's poller keeps running
        try:
            yield
        finally:
            attempts.cancel()
            await asyncio.wait([attempts])


async def _channel_per_attempt(target: str, *, asks: bool) -> None:
    """Dial with a new channel each time, after the same backoff as the other subjects."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + SECONDS * random.uniform(1 - JITTER, 1 + JITTER)
        async with grpc.aio.insecure_channel(target, ONE_ATTEMPT) as channel:
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await asyncio.sleep(LOOKS)
                state = channel.get_state()
            if asks:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await channel.unary_unary("/never/sent")(b"")
        await asyncio.sleep(due - loop.time())


BENCHMARK = Benchmark(
    name="attempt",
    says="one failed attempt to connect",
    beside=(PLAIN,),
    goals=(Goal(subject=OURS, measure=CPU, most=1.2),),
    run=run,
)
