"""What one delay costs, beside the libraries that retry by the same growth.

    python -m benchmarks.policy [--rounds N] [--json FILE]

The schedule is 1 s, doubling, at most 60 s, with full jitter, for the first FAILURES failures in a row; each library is
asked the way that its own retry loop asks. stamina has no full jitter and adds up to its `wait_jitter` instead; its
function is private, since only its loop is public. The loops themselves are not measured. All take turns, in an order
drawn anew for every round; the ratio is the median over all rounds of a library's time to ours in the same round.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import backoff
import click
import stamina._core
import tenacity
from google.api_core.retry import exponential_sleep_generator
from rich import box
from rich.console import Console
from rich.table import Table

from grpc_backoff import BackoffPolicy, Exponential, Full

__all__ = ["Result", "main", "measure"]

BASE, MULTIPLIER, CAP = 1.0, 2.0, 60.0
FAILURES = (10, 50)
REPEATS = 100
OURS = "grpc_backoff, delay(n, rng)"

Series = Callable[[int], object]
"""Asks for the delays of so many failures in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured of one library.

    Attributes:
        failures: how many delays a series had.
        median_ns: the median time of one delay, in nanoseconds.
        quartiles_ns: the quartiles of the same; the spread.
        ratio: the median over all rounds of its time to ours in the same round.
    """

    library: str
    failures: int
    median_ns: float
    quartiles_ns: tuple[float, float]
    ratio: float


POLICY = BackoffPolicy(Exponential(BASE, MULTIPLIER), CAP, Full())
RNG = random.Random(1)
TENACITY_WAIT = tenacity.wait_random_exponential(multiplier=BASE, exp_base=MULTIPLIER, max=CAP)
STAMINA_BACKOFF = stamina._core._compute_backoff  # noqa: SLF001


def ours(failures: int) -> None:
    """Ask as the channel and the retries do."""
    for n in range(1, failures + 1):
        POLICY.delay(n, RNG)


def ours_in_a_row(failures: int) -> None:
    """Ask for one after the other."""
    for _ in islice(POLICY.delays(RNG), failures):
        pass


def with_tenacity(failures: int) -> None:
    """Ask as its loop does; all that this wait reads of the loop's state is the number."""
    state = SimpleNamespace()
    for state.attempt_number in range(1, failures + 1):
        TENACITY_WAIT(state)


def with_stamina(failures: int) -> None:
    """Ask as its loop does."""
    for n in range(1, failures + 1):
        STAMINA_BACKOFF(n, CAP, BASE, MULTIPLIER, BASE)


def with_backoff(failures: int) -> None:
    """Ask as its loop does: the growth from a generator, which is started first, and the jitter from a function."""
    waits = backoff.expo(base=MULTIPLIER, factor=BASE, max_value=CAP)
    next(waits)
    for value in islice(waits, failures):
        backoff.full_jitter(value)


def with_google(failures: int) -> None:
    """Ask as its loop does."""
    for _ in islice(exponential_sleep_generator(BASE, CAP, MULTIPLIER), failures):
        pass


LIBRARIES: dict[str, Series] = {
    OURS: ours,
    "grpc_backoff, delays(rng)": ours_in_a_row,
    "tenacity": with_tenacity,
    "stamina": with_stamina,
    "backoff": with_backoff,
    "google-api-core": with_google,
}


def measure(rounds: int) -> list[Result]:
    """Return the results of all libraries, for each length of series."""
    results = []
    for failures in FAILURES:
        times: dict[str, list[float]] = {name: [] for name in LIBRARIES}
        rng = random.Random(rounds)
        for _ in range(rounds):
            for name in rng.sample(list(LIBRARIES), k=len(LIBRARIES)):
                times[name].append(_time(LIBRARIES[name], failures))
        results += [_result(name, failures, times) for name in LIBRARIES]
    return results


def _time(series: Series, failures: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(REPEATS):
        series(failures)
    return (time.perf_counter_ns() - begin) / (REPEATS * failures)


def _result(name: str, failures: int, times: dict[str, list[float]]) -> Result:
    low, median, high = statistics.quantiles(times[name], n=4)
    ratios = [one / own for one, own in zip(times[name], times[OURS], strict=True)]
    return Result(
        library=name,
        failures=failures,
        median_ns=median,
        quartiles_ns=(low, high),
        ratio=statistics.median(ratios),
    )


def _table(results: list[Result]) -> Table:
    table = Table(title="Cost of one delay", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("failures", "library", "median ns", "spread", "ratio"):
        table.add_column(column, justify="left" if column == "library" else "right", no_wrap=True)
    for result in results:
        table.add_row(
            str(result.failures),
            result.library,
            f"{result.median_ns:.0f}",
            "{:.0f}-{:.0f}".format(*result.quartiles_ns),
            f"{result.ratio:.2f}",
        )
    return table


@click.command()
@click.option("--rounds", default=300, show_default=True, help="Rounds in which each library has its turn.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here too.")
def main(rounds: int, file: Path | None) -> None:
    """Compare the cost of one delay of the same schedule."""
    results = measure(max(2, rounds))
    Console().print(_table(results))
    if file is not None:
        file.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
