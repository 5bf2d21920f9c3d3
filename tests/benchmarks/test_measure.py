"""The benchmarks' statistics, checked on synthetic timings whose true ratio is known."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.benchmark import CONTROL, OURS, PLAIN, Measure
from benchmarks.measure import by_itself, by_round, ratio_by_round, ratio_of_medians, turns

TIME = Measure("time of a call", "µs")


def machine(rounds, *, seed):
    """Return the slowness of a simulated machine in each round: it rises steadily and has random spikes."""
    rng = random.Random(seed)
    return [1 + number / rounds + (3 if rng.random() < 0.05 else 0) for number in range(rounds)]


def timings(factor, slowness, *, seed):
    rng = random.Random(seed)
    return [factor * slow * rng.gauss(100, 5) for slow in slowness]


def test_each_has_its_turn_in_every_round():
    """CH-5: each round contains every subject exactly once."""
    order = list(turns(["a", "b", "c"], 50))
    assert [sorted(order[place : place + 3]) for place in range(0, 150, 3)] == [["a", "b", "c"]] * 50


def test_no_order_is_favoured():
    """CH-5: the order of subjects in each round is random, without favouring a position or a predecessor."""
    order = list(turns(["a", "b", "c"], 3000))
    first = Counter(order[::3])
    before_a = Counter(one for one, other in pairwise(order) if other == "a")
    assert all(900 < first[name] < 1100 for name in "abc")
    assert 0.9 < before_a["b"] / before_a["c"] < 1.1


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.02, 3.0])
def test_ratio_of_rounds(factor):
    """CH-5: the estimated ratio is accurate, with a narrow interval, even if the machine's speed varies."""
    slowness = machine(400, seed=1)
    ratio = ratio_by_round(timings(factor, slowness, seed=2), timings(1.0, slowness, seed=3))
    assert ratio.low <= factor <= ratio.high
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.high - ratio.low < 0.03 * factor


def test_the_interval_holds_what_it_says():
    """CH-5: for equal subjects, about 95 % of the confidence intervals contain 1."""
    held = 0
    for run in range(200):
        slowness = machine(60, seed=run)
        ratio = ratio_by_round(timings(1.0, slowness, seed=1000 + run), timings(1.0, slowness, seed=2000 + run))
        held += ratio.low <= 1.0 <= ratio.high
    assert held >= 180


def test_more_rounds_say_more():
    """CH-5: the confidence interval narrows as the number of rounds grows."""

    def width(rounds):
        slowness = machine(rounds, seed=4)
        ratio = ratio_by_round(timings(1.0, slowness, seed=5), timings(1.0, slowness, seed=6))
        return ratio.high - ratio.low

    assert width(1600) < width(100) / 2


def test_ratio_of_medians():
    """CH-5: samples without rounds in common are compared by their medians, even if their counts differ."""
    rng = random.Random(7)
    own, base = [rng.expovariate(1 / 30) for _ in range(900)], [rng.expovariate(1 / 20) for _ in range(700)]
    ratio = ratio_of_medians(own, base)
    assert ratio.value == pytest.approx(statistics.median(own) / statistics.median(base))
    assert ratio.low <= 1.5 <= ratio.high
    assert 0.2 < ratio.high - ratio.low < 0.6


def test_the_same_timings_give_the_same_figures():
    """CH-5: the resampling is seeded, so the same timings always give the same figures."""
    slowness = machine(50, seed=8)
    own, base = timings(1.0, slowness, seed=9), timings(1.0, slowness, seed=10)
    assert ratio_by_round(own, base) == ratio_by_round(own, base)
    assert ratio_of_medians(own, base) == ratio_of_medians(own, base)


@pytest.mark.parametrize("rows_of", [by_round, by_itself])
def test_rows(rows_of):
    """CH-5: each subject has a row with all its samples, and each except the baseline has a ratio to the baseline."""
    samples = {PLAIN: [2.0, 4.0, 6.0], OURS: [3.0, 6.0, 9.0], CONTROL: [2.0, 4.0, 6.0]}
    plain, ours, control = rows_of("unary", TIME, samples, PLAIN)
    assert (plain.subject, plain.samples, plain.value, plain.spread) == (PLAIN, (2.0, 4.0, 6.0), 4.0, (3.0, 5.0))
    assert plain.ratio is None
    assert ours.ratio.value == 1.5
    assert control.ratio.value == 1.0


def test_rounds_must_match():
    """CH-5: samples with different numbers of rounds cannot be paired and raise an error."""
    with pytest.raises(ValueError, match="broadcast"):
        by_round("unary", TIME, {PLAIN: [1.0, 2.0, 3.0], OURS: [1.0, 2.0]}, PLAIN)


def test_without_baseline():
    """CH-5: a row without a baseline to compare with has no ratio."""
    (row,) = by_itself("1000 channels", Measure("lateness", "ms", 0.99), {OURS: list(range(101))})
    assert (row.ratio, row.value, row.spread) == (None, 99.0, (25.0, 75.0))
