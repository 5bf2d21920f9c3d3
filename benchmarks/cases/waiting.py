"""Measures a thousand calls that are made while the channel is CONNECTING and are sent once it is READY.

The server's process is suspended, so the kernel accepts the connection but no SETTINGS arrive. All calls are made and
wait; then the server resumes. The CPU time is that of the whole client process, from creating the channel to the last
answer. The elapsed time runs from the moment when the server resumes to the last answer, and includes the server's own
work. Threaded calls are made with `.future(...)`, because blocking calls would mainly measure the cost of having so
many threads.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import grpc

from benchmarks.apart import Peer, in_child, serving
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
CPU = Measure("CPU of a call that waits", "µs")
TIME = Measure("time of a call from the release", "µs")
TIMEOUT = 60.0
SETTLES_IN = 0.1  # seconds; until every call is waiting

Samples = dict[Measure, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Size:
    """How many calls wait, and how many times this is measured."""

    calls: int
    rounds: int


SIZES = {Effort.FULL: Size(1000, 12), Effort.QUICK: Size(200, 3), Effort.TINY: Size(20, 2)}


def run(effort: Effort) -> list[Row]:
    """Measure asyncio in one process and threads in another."""
    size, rows = SIZES[effort], []
    for what_calls, measured, (plain, *_) in (
        ("calls", measure, SUBJECTS),
        ("futures", measure_threads, THREADED_SUBJECTS),
    ):
        for what, samples in in_child(measured, size).items():
            rows += by_round(f"{size.calls} {what_calls} while CONNECTING", what, samples, plain)
    return rows


def measure(size: Size) -> Samples:
    """Return the cost of an asyncio call for each subject, one sample per measurement."""
    taken: Samples = {what: {subject: [] for subject in SUBJECTS} for what in (CPU, TIME)}
    with serving(echoing) as peer:
        asyncio.run(_take_turns(peer, size, taken))
    return taken


def measure_threads(size: Size) -> Samples:
    """Return the cost of a call made with `.future(...)` for each subject, one sample per measurement."""
    taken: Samples = {what: {subject: [] for subject in THREADED_SUBJECTS} for what in (CPU, TIME)}
    # The additional channel keeps grpcio's threads running.
    with serving(echoing) as peer, open_threaded(THREADED_PLAIN, peer.target) as channel:
        grpc.channel_ready_future(channel).result(TIMEOUT)
        for subject in THREADED_SUBJECTS:
            _threaded_turn(subject, peer, size.calls)  # warms up
        for subject in turns(THREADED_SUBJECTS, size.rounds):
            cpu, seconds = _threaded_turn(subject, peer, size.calls)
            taken[CPU][subject].append(cpu / size.calls * 1e6)
            taken[TIME][subject].append(seconds / size.calls * 1e6)
    return taken


def _threaded_turn(subject: str, peer: Peer, calls: int) -> tuple[float, float]:
    with peer.frozen():
        cpu = time.process_time()
        channel = open_threaded(subject, peer.target)
        stub, request = EchoStub(channel), Message(text="ping")
        waiting = [stub.Unary.future(request, wait_for_ready=True, timeout=TIMEOUT) for _ in range(calls)]
        time.sleep(SETTLES_IN)
    begin = time.perf_counter()
    for future in waiting:
        future.result()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    channel.close()
    return cpu, seconds


async def _take_turns(peer: Peer, size: Size, taken: Samples) -> None:
    async with open_channel(PLAIN, peer.target) as channel:  # grpcio's thread ends with its last channel
        for subject in SUBJECTS:
            await _turn(subject, peer, size.calls)  # warms up
        await channel.channel_ready()
        for subject in turns(SUBJECTS, size.rounds):
            cpu, seconds = await _turn(subject, peer, size.calls)
            taken[CPU][subject].append(cpu / size.calls * 1e6)
            taken[TIME][subject].append(seconds / size.calls * 1e6)


async def _turn(subject: str, peer: Peer, calls: int) -> tuple[float, float]:
    """Return the CPU time and the time from the server's resumption to the last answer, both in seconds."""
    with peer.frozen():
        cpu = time.process_time()
        channel = open_channel(subject, peer.target)
        stub = EchoStub(channel)
        waiting = [asyncio.ensure_future(_call(stub)) for _ in range(calls)]
        await asyncio.sleep(SETTLES_IN)
    begin = time.perf_counter()
    await asyncio.gather(*waiting)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    await channel.close()
    return cpu, seconds


async def _call(stub: EchoStub) -> None:
    await stub.Unary(Message(text="ping"), wait_for_ready=True, timeout=TIMEOUT)


BENCHMARK = Benchmark(
    name="waiting",
    says="calls that wait for a connection",
    beside=("grpc.aio wait_for_ready", "grpc wait_for_ready"),
    goals=tuple(Goal(subject=subject, measure=what, most=1.2) for subject in (OURS, THREADED) for what in (CPU, TIME)),
    run=run,
)
