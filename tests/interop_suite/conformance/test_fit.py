"""Fitting a schedule to gaps that the reference client computes: which of its numbers is wrong."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from grpc_judge.clients.reference.backoff import Backoff
from grpc_judge.clients.reference.defects import DEFECTS, habits_with
from grpc_judge.clients.reference.habits import Habits
from grpc_judge.conformance.fit import Fit, Trait, fit
from grpc_judge.conformance.schedule import Schedule, Series
from tests.interop_suite.conformance import made

SCALED = replace(made.TERMS, cap=24.0)
TRAITS = {
    "first-gap": Trait.INITIAL,
    "growth": Trait.GROWTH,
    "cap": Trait.CAP,
    "jitter": Trait.JITTER,
    "jitter-does-not-compound": Trait.COMPOUNDING,
}
WRONG = (
    "initial-0.8",
    "first-gap-none",
    "multiplier-1.5",
    "multiplier-1.7",
    "cap-0.85",
    "cap-1.15",
    "jitter-10",
    "jitter-30",
    "growth-fibonacci",
    "late-200-ms",
)
SEEN_BY_CHANCE = ("jitter-compounds",)


def series(habits, terms, seconds, rng, latency=0.003):
    """Return gaps as a server would see them, with each connection a few milliseconds late."""
    backoff, now, starts = Backoff(made.order(terms), habits), 0.0, []
    backoff._rng = rng
    while now <= seconds and len(starts) <= 300:
        starts.append(now + rng.expovariate(1 / latency))
        backoff.start(now)
        backoff.fail(now, "closed")
        now += max(0.001, backoff.wakes(now))
    return Series(tuple(after - start for start, after in pairwise(sorted(starts))), terms)


def full(name, seed):
    """Return what a full run sees: four clients with the usual terms, and one with a low MAX_BACKOFF."""
    habits, rng = habits_with(name), random.Random(seed)
    found = [series(habits, SCALED, 108.0, rng) for _ in range(4)]
    return (*found, series(habits, made.STEADY, 20.0, rng))


@pytest.mark.parametrize("name", [None, *WRONG, *SEEN_BY_CHANCE])
def test_what_is_wrong_is_known_and_nothing_else(name):
    """CB-2, CB-5: in a full run, the fit names the one number that is wrong, even slightly, and blames nothing else."""
    expected = set() if name is None else {TRAITS[DEFECTS[name].clauses[0]]}
    assert fit(full(name, seed=1), SCALED).wrong == expected


def compressed(name, seed, clients=4):
    """Return what a compressed run sees: `clients` with the usual terms, and one with a low MAX_BACKOFF."""
    habits, rng = habits_with(name), random.Random(seed)
    found = [series(habits, made.TERMS, 10.0, rng) for _ in range(clients)]
    return (*found, series(habits, made.STEADY, 8.0, rng))


def test_fibonacci_numbers_are_told_from_a_short_initial_backoff():
    """CB-5: the gaps of four clients tell Fibonacci numbers from INITIAL_BACKOFF that is a quarter too short.

    Tries twelve fixed seeds, all of which must pass.
    """
    for seed in range(12):
        assert fit(compressed("growth-fibonacci", seed), made.TERMS).wrong == {Trait.GROWTH}


@pytest.mark.parametrize(
    ("habits", "latency"),
    [
        (Habits(tick=0.05), 0.003),
        (Habits(tick=0.1), 0.003),
        (Habits(late=0.03), 0.003),
        (Habits(late=0.1), 0.003),
        (Habits(), 0.015),
    ],
    ids=["tick of 50 ms", "tick of 100 ms", "30 ms late", "100 ms late", "latency of 15 ms"],
)
def test_a_late_timer_is_no_mistake(habits, latency):
    """IO-4: a client whose timer is up to 100 ms late, or ticks, and one with a slow network, do nothing wrong.

    Tries eight fixed seeds, all of which must pass.
    """
    for seed in range(8):
        rng = random.Random(seed)
        seen = (*[(made.TERMS, 10.0)] * 4, (made.STEADY, 8.0))
        found = [series(habits, terms, seconds, rng, latency) for terms, seconds in seen]
        fitted = fit(tuple(found), made.TERMS)
        assert fitted.explained
        assert fitted.wrong == frozenset()
        assert list(fitted.unexplained()) == []


@pytest.mark.parametrize(
    ("first", "named"),
    [(0.24, []), (0.34, []), (0.36, []), (0.46, [1]), (0.05, [1])],
    ids=["longest", "100 ms late", "100 ms late and the network too", "220 ms late", "too early"],
)
def test_one_late_gap_is_explained_and_one_that_is_early_is_not(first, named):
    """IO-4: a timer that is late once is as late as the others may be: up to 100 ms above the longest jitter."""
    gaps = Series((first, *made.GAPS[1:]), made.TERMS)
    found = Fit(schedule=Schedule.told(made.TERMS), series=(gaps,))
    assert [n for n, _, _ in found.unexplained()] == named
    assert all(gap not in allowed for _, gap, allowed in found.unexplained())


@pytest.mark.parametrize("bursts", [2, 3, 5])
def test_bursts_are_explained_by_no_schedule(bursts):
    """CB-5: attempts in bursts have no schedule, however wide its jitter, since they are not drawn from one range."""
    rng = random.Random(bursts)
    habits = Habits(bursts=bursts)
    found = fit(tuple(series(habits, terms, 10.0, rng) for terms in (made.TERMS, made.STEADY)), made.TERMS)
    assert not found.explained
    assert list(found.unexplained())


def test_a_small_mistake_is_not_given_another_name():
    """IO-4: the gaps of one client may hide a small mistake; it is usually likely then, and nothing else is blamed."""
    found = [fit(compressed("multiplier-1.7", seed, clients=1), made.TERMS) for seed in range(8)]
    assert all(each.wrong <= {Trait.GROWTH} for each in found)
    missed = [each for each in found if not each.wrong]
    likely = [any(schedule.multiplier > 1.62 for schedule in each.likely) for each in missed]
    assert sum(likely) > len(missed) / 2


@pytest.mark.parametrize("name", ["initial-1.2", "jitter-compounds"])
def test_a_small_mistake_leaves_nothing_unexplained(name):
    """IO-4: a mistake too small to be proven is not reported as gaps that no schedule explains either."""
    found = [fit(compressed(name, seed), made.TERMS) for seed in range(12)]
    assert not any(list(each.unexplained()) for each in found if not each.wrong)


def test_estimates_have_intervals():
    """CB-5: an estimate comes with an interval that contains the true value."""
    found = fit(full("multiplier-1.45", seed=3), SCALED).estimate("multiplier")
    assert found.interval.low <= found.value <= found.interval.high
    assert found.interval.low < found.interval.high
    assert 1.42 < found.interval.low - 0.005 < 1.45 < found.interval.high + 0.005 < 1.48


def test_nothing_seen_is_nothing_wrong():
    """IO-4: without gaps, the fit returns the configured schedule and finds nothing wrong."""
    assert fit((), made.TERMS).schedule == Schedule.told(made.TERMS)
    assert fit((Series((), made.TERMS),), made.TERMS).wrong == frozenset()


def test_unknown_gaps_are_left_out():
    """IO-4: a gap that the judge recorded late is ignored, and the gaps after it keep their positions."""
    known = full(None, seed=5)
    gaps = [math.nan if place == 2 else gap for place, gap in enumerate(known[0].gaps)]
    assert fit((Series(tuple(gaps), SCALED), *known[1:]), SCALED).wrong == frozenset()


def test_a_gap_that_no_schedule_explains_is_named():
    """CB-5: a single gap that is far off does not change the fitted schedule, but is reported by its number."""
    known = full(None, seed=6)
    gaps = [3 * gap if place == 4 else gap for place, gap in enumerate(known[0].gaps)]
    found = fit((Series(tuple(gaps), SCALED), *known[1:]), SCALED)
    assert found.wrong == frozenset()
    assert [n for n, _, _ in found.unexplained()] == [5]
