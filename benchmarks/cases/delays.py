"""Delays per second, compared with libraries that retry with the same growth: one at a time, and for a whole fleet.

The schedule is 1 s, doubling, at most 60 s, with full jitter. stamina has no full jitter and adds up to its
`wait_jitter` instead; its function is private, because only its loop is public. The loops themselves are not measured.

One at a time, each library is called the way its own retry loop does, for the first FAILURES failures in a row.

A fleet's delays answer the question what a policy does to a server. This library has a simulator for that, which draws
for all clients at once. The others have nothing comparable: with them, one draws each delay in a loop. That loop is the
comparison, for a tenth of the clients, because the cost of a delay does not depend on their number. The comparison
favours the others twice: the simulator also adds up when each attempt starts and counts them, and it is the CPU time
of all the simulator's threads that is compared.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace

import backoff
import stamina._core
import tenacity
from google.api_core.retry import exponential_sleep_generator

from benchmarks.apart import in_child
from benchmarks.benchmark import Benchmark, Effort, Goal, Measure, Row
from benchmarks.measure import by_round, turns
from grpc_backoff import BackoffPolicy, Exponential, Full
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.simulation import Outage, simulate

__all__ = ["BENCHMARK", "LIBRARIES"]

BASE, MULTIPLIER, CAP = 1.0, 2.0, 60.0
FAILURES = 10
REPEATS = 100
OUTAGE = 600.0  # seconds; some twenty attempts of each client

OURS = "grpc_backoff, delay(n, rng)"
OURS_IN_A_ROW = "grpc_backoff, delays(rng)"
SIMULATOR = "grpc_backoff, simulate"
CONTROL = "grpc_backoff, simulate, again"

ONE = Measure("time of a delay", "ns")
OF_MANY = Measure("CPU of a delay", "ns")

Series = Callable[[int], object]
"""Draws the delays of this many failures in a row."""

POLICY = BackoffPolicy(Exponential(BASE, MULTIPLIER), CAP, Full())
CONNECTING = replace(CONNECT, backoff=POLICY, jitter_first=True)
RNG = random.Random(1)
TENACITY_WAIT = tenacity.wait_random_exponential(multiplier=BASE, exp_base=MULTIPLIER, max=CAP)
STAMINA_BACKOFF = stamina._core._compute_backoff  # noqa: SLF001


def ours(failures: int) -> None:
    """Draw as the channel and the retries do."""
    for n in range(1, failures + 1):
        POLICY.delay(n, RNG)


def ours_in_a_row(failures: int) -> None:
    """Draw one after the other."""
    for _ in islice(POLICY.delays(RNG), failures):
        pass


def with_tenacity(failures: int) -> None:
    """Draw as its loop does; the number is all that this wait reads of the loop's state."""
    state = SimpleNamespace()
    for state.attempt_number in range(1, failures + 1):
        TENACITY_WAIT(state)


def with_stamina(failures: int) -> None:
    """Draw as its loop does."""
    for n in range(1, failures + 1):
        STAMINA_BACKOFF(n, CAP, BASE, MULTIPLIER, BASE)


def with_backoff(failures: int) -> None:
    """Draw as its loop does: the growth from a generator, started first, and the jitter from a function."""
    waits = backoff.expo(base=MULTIPLIER, factor=BASE, max_value=CAP)
    next(waits)
    for value in islice(waits, failures):
        backoff.full_jitter(value)


def with_google(failures: int) -> None:
    """Draw as its loop does."""
    for _ in islice(exponential_sleep_generator(BASE, CAP, MULTIPLIER), failures):
        pass


PEERS: dict[str, Series] = {
    "tenacity": with_tenacity,
    "stamina": with_stamina,
    "backoff": with_backoff,
    "google-api-core": with_google,
}
LIBRARIES: dict[str, Series] = {OURS: ours, OURS_IN_A_ROW: ours_in_a_row, **PEERS}


@dataclass(frozen=True, slots=True)
class Size:
    """The number of rounds of each kind, and of simulated clients."""

    rounds: int
    fleets: int
    clients: int


SIZES = {
    Effort.FULL: Size(300, 10, 1_000_000),
    Effort.QUICK: Size(20, 3, 100_000),
    Effort.TINY: Size(2, 2, 1000),
}


def run(effort: Effort) -> list[Row]:
    """Measure both in one process."""
    size = SIZES[effort]
    one, of_many = in_child(measure, size)
    return [
        *by_round(f"one at a time, {FAILURES} failures in a row", ONE, one, OURS),
        *by_round(f"a fleet of {size.clients:,}", OF_MANY, of_many, SIMULATOR),
    ]


def measure(size: Size) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the nanoseconds of a delay: drawn one at a time, and for a fleet."""
    one: dict[str, list[float]] = {name: [] for name in LIBRARIES}
    for name in turns(list(LIBRARIES), size.rounds):
        one[name].append(_seconds(time.perf_counter, LIBRARIES[name], REPEATS))
    of_many: dict[str, list[float]] = {name: [] for name in (SIMULATOR, CONTROL, *PEERS)}
    for name in turns(list(of_many), size.fleets):
        if name in PEERS:
            of_many[name].append(_seconds(time.process_time, PEERS[name], size.clients // FAILURES // 10))
        else:
            of_many[name].append(_simulated(size.clients))
    return one, of_many


def _seconds(clock: Callable[[], float], series: Series, repeats: int) -> float:
    begin = clock()
    for _ in range(repeats):
        series(FAILURES)
    return (clock() - begin) / (repeats * FAILURES) * 1e9


def _simulated(clients: int) -> float:
    begin = time.process_time()
    recovery = simulate(CONNECTING, Outage(clients=clients, seconds=OUTAGE))
    return (time.process_time() - begin) / recovery.total * 1e9


BENCHMARK = Benchmark(
    name="delays",
    says="delays, one at a time and for a fleet",
    beside=tuple(PEERS),
    goals=tuple(Goal(subject=name, measure=OF_MANY, least=5.0) for name in PEERS),
    run=run,
)
