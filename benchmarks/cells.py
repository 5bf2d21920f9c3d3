"""Formats a row as table cells, which the terminal and the page share."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.benchmark import Benchmark, Interval, Row, Verdict

__all__ = ["HEADINGS", "Cells", "cells"]

HEADINGS = ("case", "subject", "figure", "spread", "ratio", "95 %", "goal", "")
_DIGITS = 3


class Cells(NamedTuple):
    """The text of each column, and which verdict to highlight."""

    texts: tuple[str, ...]
    verdict: Verdict | None


def cells(row: Row, benchmark: Benchmark) -> Cells:
    """Return the cells of one row."""
    goal = benchmark.goal_of(row)
    verdict = None if goal is None else goal.judge(row)
    alone = len(row.samples) == 1
    texts = (
        row.case,
        row.subject,
        number(row.value),
        "" if alone else "{} to {}".format(*map(number, row.spread)),
        "" if row.ratio is None else f"{row.ratio.value:.{_DIGITS}f}",
        "" if row.ratio is None or alone else _interval(row.ratio),
        "" if goal is None else f"{goal}",
        "" if verdict is None else verdict.value,
    )
    return Cells(texts, verdict)


def number(value: float) -> str:
    """Format a figure with its significant digits."""
    return f"{value:,.0f}" if abs(value) >= 10**_DIGITS or value == int(value) else f"{value:.{_DIGITS}g}"


def _interval(interval: Interval) -> str:
    return f"{interval.low:.{_DIGITS}f} to {interval.high:.{_DIGITS}f}"
