"""Measures the cost of a call on a READY channel (CH-5, TH-2): plain grpc.aio, ours, and plain grpc.aio again.

Each kind of call is made one at a time and fifty at a time, on asyncio's loop and on uvloop. Blocking unary calls are
made by one thread and by sixteen, on plain grpc, ours, and plain grpc again. Each of the three channels has its own
connection to the same server. The channels are recreated several times, in random order, because the location of a
channel in memory affects its speed for as long as the channel exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import uvloop

from benchmarks.apart import in_child, serving
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
from benchmarks.channels import open_channel, open_threaded
from benchmarks.measure import by_round, turns
from benchmarks.peers import echoing
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, CONTROL)
THREADED_SUBJECTS = (THREADED_PLAIN, THREADED, THREADED_CONTROL)
THREADS = {"unary, 1 thread": 1, "unary, 16 threads": 16}
CALLS_IN_A_TURN = 64  # by all threads together
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
STREAMED = 20
TIME = Measure("time of a call", "µs")

Call = Callable[[EchoStub], Awaitable[None]]
Samples = dict[str, list[float]]


async def unary(stub: EchoStub) -> None:
    """Make one unary call."""
    await stub.Unary(Message(text="ping"))


async def server_stream(stub: EchoStub) -> None:
    """Read a stream of responses to its end."""
    async for _ in stub.Down(Message(text="ping", count=STREAMED)):
        pass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of call, how many of them run concurrently, and how many make up one measurement."""

    name: str
    call: Call
    at_a_time: int
    turn: int


KINDS = (
    Kind("unary, 1 at a time", unary, 1, 20),
    Kind("unary, 50 at a time", unary, 50, 100),
    Kind(f"stream of {STREAMED}, 1 at a time", server_stream, 1, 10),
    Kind(f"stream of {STREAMED}, 50 at a time", server_stream, 50, 50),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How often the channels are recreated, and how many rounds are measured each time."""

    sets: int
    rounds: int


SIZES = {Effort.FULL: Size(6, 30), Effort.QUICK: Size(2, 5), Effort.TINY: Size(1, 2)}


def run(effort: Effort) -> list[Row]:
    """Measure on each event loop and with threads, each in a separate process."""
    rows = []
    with serving(echoing) as peer:
        for loop in LOOPS:
            taken = in_child(measure, loop, peer.target, SIZES[effort])
            for kind, samples in taken.items():
                rows += by_round(f"{kind}, {loop}", TIME, samples, PLAIN)
        for case, samples in in_child(measure_threads, peer.target, SIZES[effort]).items():
            rows += by_round(case, TIME, samples, THREADED_PLAIN)
    return rows


def measure(loop: str, target: str, size: Size) -> dict[str, Samples]:
    """Return the microseconds per call for each kind and subject, one sample per measurement."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(_measure(target, size))


async def _measure(target: str, size: Size) -> dict[str, Samples]:
    taken: dict[str, Samples] = {kind.name: {subject: [] for subject in SUBJECTS} for kind in KINDS}
    rng = random.Random(size.sets)
    for seed in range(size.sets):
        async with contextlib.AsyncExitStack() as stack:
            stubs = {}
            for subject in rng.sample(SUBJECTS, k=len(SUBJECTS)):
                stubs[subject] = EchoStub(await stack.enter_async_context(open_channel(subject, target)))
            for kind in KINDS:
                await _take_turns(kind, stubs, size.rounds, seed, taken[kind.name])
    return taken


async def _take_turns(kind: Kind, stubs: dict[str, EchoStub], rounds: int, seed: int, samples: Samples) -> None:
    for stub in stubs.values():
        await _turn(kind, stub)  # connects and warms up
    gc.collect()
    for subject in turns(SUBJECTS, rounds, seed):
        samples[subject].append(await _turn(kind, stubs[subject]))


async def _turn(kind: Kind, stub: EchoStub) -> float:
    """Make the calls of one measurement; return the microseconds per call."""
    begin = time.perf_counter()
    if kind.at_a_time == 1:
        await _calls(kind.call, stub, kind.turn)
    else:
        await asyncio.gather(*(_calls(kind.call, stub, kind.turn // kind.at_a_time) for _ in range(kind.at_a_time)))
    return (time.perf_counter() - begin) / kind.turn * 1e6


async def _calls(call: Call, stub: EchoStub, times: int) -> None:
    for _ in range(times):
        await call(stub)


def measure_threads(target: str, size: Size) -> dict[str, Samples]:
    """Return the microseconds per blocking call for each subject, one sample per measurement."""
    taken: dict[str, Samples] = {case: {subject: [] for subject in THREADED_SUBJECTS} for case in THREADS}
    rng = random.Random(size.sets)
    for seed in range(size.sets):
        with contextlib.ExitStack() as stack:
            stubs = {}
            for subject in rng.sample(THREADED_SUBJECTS, k=len(THREADED_SUBJECTS)):
                stubs[subject] = EchoStub(stack.enter_context(open_threaded(subject, target)))
            for case, threads in THREADS.items():
                with ThreadPoolExecutor(threads) as pool:
                    for stub in stubs.values():
                        _threaded_turn(pool, threads, stub)  # connects and warms up
                    gc.collect()
                    for subject in turns(THREADED_SUBJECTS, size.rounds, seed):
                        taken[case][subject].append(_threaded_turn(pool, threads, stubs[subject]))
    return taken


def _threaded_turn(pool: ThreadPoolExecutor, threads: int, stub: EchoStub) -> float:
    """Make the blocking calls of one measurement; return the microseconds per call."""

    def calls() -> None:
        for _ in range(CALLS_IN_A_TURN // threads):
            stub.Unary(Message(text="ping"))

    begin = time.perf_counter()
    for done in [pool.submit(calls) for _ in range(threads)]:
        done.result()
    return (time.perf_counter() - begin) / CALLS_IN_A_TURN * 1e6


BENCHMARK = Benchmark(
    name="calls",
    says="a call on a READY channel",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(Goal(subject=subject, measure=TIME, most=1.02) for subject in (OURS, THREADED)),
    run=run,
)
