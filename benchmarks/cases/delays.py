"""Measures the time to compute a delay, for single delays and for a whole fleet, and compares libraries that retry.

All libraries use the same schedule: 1 s, doubling up to 60 s, with full jitter. stamina does not have full jitter, so
it adds a random time of up to `wait_jitter` instead. Its function for delays is private, because only its retry loop is
public. The retry loops themselves are not measured.

To draw single delays, each library is called as its own retry loop calls it, for the first FAILURES consecutive
failures.

The delays of a fleet show how a policy loads a server. This library has a simulator that draws the delays of all
clients at once. The other libraries have no equivalent, so their delays are drawn one by one in a loop, for a tenth of
the clients: the cost per delay does not depend on how many there are. The comparison favours the others in two ways:
the simulator also computes and counts the start of every attempt, and the CPU time of all its threads is included.
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
from benchmarks.dispersal.simulation import Outage, simulate
from benchmarks.measure import by_round, turns
from grpc_backoff import BackoffPolicy, Exponential, Full
from grpc_backoff.policy.presets import CONNECT

__all__ = ["BENCHMARK", "LIBRARIES"]

BASE, MULTIPLIER, CAP = 1.0, 2.0, 60.0
FAILURES = 10
REPEATS = 100
OUTAGE = 600.0  # seconds; about twenty attempts for each client

OURS = "grpc_backoff, delay(n, rng)"
OURS_IN_A_ROW = "grpc_backoff, delays(rng)"
SIMULATOR = "grpc_backoff, simulate"
CONTROL = "grpc_backoff, simulate, again"

ONE = Measure("time of a delay", "ns")
OF_MANY = Measure("CPU of a delay", "ns")

Series = Callable[[int], object]
"""Draws the delays for this many consecutive failures."""

POLICY = BackoffPolicy(Exponential(BASE, MULTIPLIER), CAP, Full())
CONNECTING = replace(CONNECT, backoff=POLICY, jitter_first=True)
RNG = random.Random(1)
TENACITY_WAIT = tenacity.wait_random_exponential(multiplier=BASE, exp_base=MULTIPLIER, max=CAP)
STAMINA_BACKOFF = stamina._core._compute_backoff  # noqa: SLF001


def ours(failures: int) -> None:
    """Draw delays as our channels and retries do."""
    for n in range(1, failures + 1):
        POLICY.delay(n, RNG)


def ours_in_a_row(failures: int) -> None:
    """Draw delays from our iterator over the delays of consecutive failures."""
    for _ in islice(POLICY.delays(RNG), failures):
        pass


def with_tenacity(failures: int) -> None:
    """Draw delays as tenacity's retry loop does. This wait reads only the attempt number from the loop's state."""
    state = SimpleNamespace()
    for state.attempt_number in range(1, failures + 1):
        TENACITY_WAIT(state)


def with_stamina(failures: int) -> None:
    """Draw delays as stamina's retry loop does."""
    for n in range(1, failures + 1):
        STAMINA_BACKOFF(n, CAP, BASE, MULTIPLIER, BASE)


def with_backoff(failures: int) -> None:
    """Draw delays as backoff's retry loop does: the growth comes from a generator, the jitter from a function."""
    waits = backoff.expo(base=MULTIPLIER, factor=BASE, max_value=CAP)
    next(waits)
    for value in islice(waits, failures):
        backoff.full_jitter(value)


def with_google(failures: int) -> None:
    """Draw delays as google-api-core's retry loop does."""
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
    """The rounds of single delays, the rounds of simulated fleets, and the number of simulated clients."""

    rounds: int
    fleets: int
    clients: int


SIZES = {
    Effort.FULL: Size(300, 10, 1_000_000),
    Effort.QUICK: Size(20, 3, 100_000),
    Effort.TINY: Size(2, 2, 1000),
}


def run(effort: Effort) -> list[Row]:
    """Measure single delays and fleets, in one process."""
    size = SIZES[effort]
    one, of_many = in_child(measure, size)
    return [
        *by_round(f"one at a time, {FAILURES} failures in a row", ONE, one, OURS),
        *by_round(f"a fleet of {size.clients:,}", OF_MANY, of_many, SIMULATOR),
    ]


def measure(size: Size) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the nanoseconds per delay for each subject: single delays first, then fleets."""
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
    says="computing delays, one at a time and for a fleet",
    beside=tuple(PEERS),
    goals=tuple(Goal(subject=name, measure=OF_MANY, least=5.0) for name in PEERS),
    run=run,
)
