"""Measures a program that creates a channel for each request, as grpc's own quick start does, to a healthy server.

Each request creates a channel, makes one unary call, and closes the channel; the next request follows at once. The
channels have their default options. grpcio closes a subchannel with its last channel, so most plain requests make a
connection; some find the last one before it is closed. With this library, a connection serves the requests of a fifth
of a second (SH-8). The figure is the CPU of the whole client process. The benchmark `sharing` measures the rate of such
programs.
"""

from __future__ import annotations

import asyncio
import time
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
from benchmarks.measure import by_round, turns
from benchmarks.peers import echoing
from grpc_backoff import aio
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, CONTROL)
THREADED_SUBJECTS = (THREADED_PLAIN, THREADED, THREADED_CONTROL)
CPU = Measure("CPU of a request with a channel of its own", "µs")
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """How many requests a program makes, and how many times this is measured."""

    requests: int
    rounds: int


SIZES = {Effort.FULL: Size(500, 9), Effort.QUICK: Size(50, 3), Effort.TINY: Size(5, 1)}


def run(effort: Effort) -> list[Row]:
    """Measure a new process for each program."""
    size, rows = SIZES[effort], []
    with serving(echoing) as peer:
        for case, subjects, program in (
            ("asyncio", SUBJECTS, in_tasks),
            ("threads", THREADED_SUBJECTS, in_threads),
        ):
            samples: dict[str, list[float]] = {subject: [] for subject in subjects}
            for subject in turns(subjects, size.rounds):
                samples[subject].append(in_child(program, subject, peer.target, size.requests) / size.requests * 1e6)
            rows += by_round(case, CPU, samples, subjects[0])
    return rows


def in_tasks(subject: str, target: str, requests: int) -> float:
    """Return the CPU seconds of requests on asyncio."""

    async def make() -> float:
        api = aio if subject == OURS else grpc.aio
        begin = 0.0
        for number in range(requests + 1):
            if number == 1:
                begin = time.process_time()  # the first one warms up
            async with api.insecure_channel(target) as channel:
                await EchoStub(channel).Unary(Message(text="ping"), timeout=TIMEOUT)
        return time.process_time() - begin

    return asyncio.run(make())


def in_threads(subject: str, target: str, requests: int) -> float:
    """Return the CPU seconds of blocking requests."""
    api = grpc_backoff if subject == THREADED else grpc
    begin = 0.0
    for number in range(requests + 1):
        if number == 1:
            begin = time.process_time()  # as above
        with api.insecure_channel(target) as channel:
            EchoStub(channel).Unary(Message(text="ping"), timeout=TIMEOUT)
    return time.process_time() - begin


BENCHMARK = Benchmark(
    name="churn",
    says="a channel for each request",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(Goal(subject=subject, measure=CPU, most=1.3) for subject in (OURS, THREADED)),
    run=run,
)
