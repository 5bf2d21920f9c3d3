"""The benchmarks' goals: which rows each goal applies to, and how a goal judges them."""

from __future__ import annotations

import pytest

from benchmarks.benchmark import OURS, PLAIN, Goal, Interval, Measure, Of, Row, Verdict
from benchmarks.suite import BENCHMARKS

TIME, MEMORY = Measure("time of a call", "µs"), Measure("memory of a channel", "KiB")
RATIO = Goal(subject=OURS, measure=TIME, most=1.02)


def row(*samples, subject=OURS, measure=TIME, case="unary", ratio=None):
    return Row(case=case, measure=measure, subject=subject, samples=samples, ratio=ratio)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Interval(1.00, 0.99, 1.01), Verdict.MET),
        (Interval(1.02, 1.01, 1.02), Verdict.MET),
        (Interval(1.00, 0.90, 1.10), Verdict.CLOSE_MET),
        (Interval(1.03, 1.01, 1.05), Verdict.CLOSE_MISSED),
        (Interval(1.05, 1.04, 1.06), Verdict.MISSED),
    ],
)
def test_ratio(ratio, verdict):
    """CH-5: a ratio is judged by its value; the verdict is "close" if the bound lies within its confidence interval."""
    judged = RATIO.judge(row(1.0, ratio=ratio))
    assert judged is verdict
    assert judged.met is (ratio.value <= 1.02)


@pytest.mark.parametrize(("samples", "verdict"), [((3.0, 5.0, 90.0), Verdict.MET), ((3.0, 5.1, 5.2), Verdict.MISSED)])
def test_value(samples, verdict):
    """CB-7: a goal for a value judges the row's representative figure, here the median."""
    assert Goal(subject=OURS, measure=TIME, of=Of.VALUE, most=5.0).judge(row(*samples)) is verdict


def test_least():
    """RT-3: a goal may set a lower bound."""
    goal = Goal(subject=OURS, measure=TIME, of=Of.VALUE, least=50)
    assert (goal.judge(row(50.0)), goal.judge(row(49.0))) == (Verdict.MET, Verdict.MISSED)


@pytest.mark.parametrize(
    ("other", "concerned"),
    [
        (row(1.0, ratio=Interval(1, 1, 1)), True),
        (row(1.0), False),  # no ratio
        (row(1.0, subject=PLAIN, ratio=Interval(1, 1, 1)), False),
        (row(1.0, measure=MEMORY, ratio=Interval(1, 1, 1)), False),
    ],
)
def test_which_rows(other, concerned):
    """CH-5: a goal applies only to rows with its subject and its measure."""
    assert RATIO.concerns(other) is concerned


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (RATIO, "at most 1.02 times"),
        (Goal(subject=OURS, measure=TIME, of=Of.VALUE, most=5), "at most 5 µs"),
        (Goal(subject=OURS, measure=Measure("connections", ""), of=Of.VALUE, most=11), "at most 11"),
        (Goal(subject=OURS, measure=TIME, of=Of.VALUE, least=1, most=2), "at least 1 and at most 2 µs"),
    ],
)
def test_in_words(goal, text):
    """CH-5: a goal's text states its bounds and unit, as shown in the table."""
    assert str(goal) == text


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_every_benchmark_has_goals(benchmark):
    """CH-5: every benchmark has goals and subjects to compare with."""
    assert benchmark.goals
    assert benchmark.beside
    assert all(str(goal) for goal in benchmark.goals)
