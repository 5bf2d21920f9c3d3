"""Measures a hedged call that is answered before its delay, beside a plain call (HG-1).

Calls are made one at a time, on asyncio and as blocking calls, each subject on its own connection to the same server.
The main thread is measured apart from others, because it does not serve hedged calls itself: signals reach it. The
delay is 50 ms, which no call takes, so no second copy is sent, except where the machine stalls.
The CPU is that of the client's process, with the threads of both libraries.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import grpc.aio

import grpc_backoff
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
from benchmarks.channels import OWN_SUBCHANNELS, open_channel, open_threaded
from benchmarks.measure import by_round, turns
from benchmarks.peers import echoing
from grpc_backoff import aio
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

HEDGED, THREADED_HEDGED = f"{OURS}, hedge", f"{THREADED}, hedge"
SUBJECTS = (PLAIN, HEDGED, CONTROL)
THREADED_SUBJECTS = (THREADED_PLAIN, THREADED_HEDGED, THREADED_CONTROL)
POLICY = "hedge: 50ms, attempts: 3"
CPU = Measure("CPU of a call", "µs")
TIME = Measure("time of a call", "µs")
CALLS = 50  # in a turn

Samples = dict[Measure, dict[str, list[float]]]
ROUNDS = {Effort.FULL: 60, Effort.QUICK: 5, Effort.TINY: 2}


@dataclass(frozen=True, slots=True)
class _Turn:
    """When the calls of one measurement began."""

    began: float
    cpu: float

    @classmethod
    def begin(cls) -> _Turn:
        return cls(time.perf_counter(), time.process_time())

    def end(self, subject: str, taken: Samples) -> None:
        """Note the cost of a call."""
        cpu, seconds = time.process_time() - self.cpu, time.perf_counter() - self.began
        taken[CPU][subject].append(cpu / CALLS * 1e6)
        taken[TIME][subject].append(seconds / CALLS * 1e6)


def run(effort: Effort) -> list[Row]:
    """Measure asyncio in one process and threads in another."""
    rows = []
    with serving(echoing) as peer:
        for case, measured, (plain, *_) in (
            ("unary, asyncio", measure, SUBJECTS),
            ("unary, a thread", in_a_thread, THREADED_SUBJECTS),
            ("unary, the main thread", measure_threads, THREADED_SUBJECTS),
        ):
            for what, samples in in_child(measured, peer.target, ROUNDS[effort]).items():
                rows += by_round(case, what, samples, plain)
    return rows


def measure(target: str, rounds: int) -> Samples:
    """Return the cost of an asyncio call for each subject, one sample per measurement."""
    return asyncio.run(_measure(target, rounds))


async def _measure(target: str, rounds: int) -> Samples:
    taken: Samples = {what: {subject: [] for subject in SUBJECTS} for what in (CPU, TIME)}
    async with contextlib.AsyncExitStack() as stack:
        stubs = {}
        for subject in SUBJECTS:
            stubs[subject] = EchoStub(await stack.enter_async_context(_open(subject, target)))
            await stubs[subject].Unary(Message(text="ping"))  # connects
        for subject in turns(SUBJECTS, rounds):
            stub, turn = stubs[subject], _Turn.begin()
            for _ in range(CALLS):
                await stub.Unary(Message(text="ping"))
            turn.end(subject, taken)
    return taken


def in_a_thread(target: str, rounds: int) -> Samples:
    """Measure as `measure_threads` does, in a thread other than the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(measure_threads, target, rounds).result()


def measure_threads(target: str, rounds: int) -> Samples:
    """Return the cost of a blocking call for each subject, one sample per measurement."""
    taken: Samples = {what: {subject: [] for subject in THREADED_SUBJECTS} for what in (CPU, TIME)}
    with contextlib.ExitStack() as stack:
        stubs = {}
        for subject in THREADED_SUBJECTS:
            stubs[subject] = EchoStub(stack.enter_context(_open_threaded(subject, target)))
            stubs[subject].Unary(Message(text="ping"))  # connects
        for subject in turns(THREADED_SUBJECTS, rounds):
            stub, turn = stubs[subject], _Turn.begin()
            for _ in range(CALLS):
                stub.Unary(Message(text="ping"))
            turn.end(subject, taken)
    return taken


def _open(subject: str, target: str) -> grpc.aio.Channel:
    if subject == HEDGED:
        return aio.insecure_channel(target, [OWN_SUBCHANNELS], retry=POLICY)
    return open_channel(subject, target)


def _open_threaded(subject: str, target: str) -> grpc.Channel:
    if subject == THREADED_HEDGED:
        return grpc_backoff.insecure_channel(target, [OWN_SUBCHANNELS], retry=POLICY)
    return open_threaded(subject, target)


BENCHMARK = Benchmark(
    name="hedged",
    says="a hedged call answered before its delay",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(
        Goal(subject=subject, measure=what, most=most)
        for subject, most in ((HEDGED, 1.15), (THREADED_HEDGED, 1.4))
        for what in (CPU, TIME)
    ),
    run=run,
)
