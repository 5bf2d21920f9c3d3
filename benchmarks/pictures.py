"""Draws a picture for each measure of a benchmark.

The left half shows the figures of every subject: a mark at the median (or at the measure's other quantile) and a bar
between the quartiles. The right half shows the ratio to the baseline with its 95 % interval. A dashed line marks a
goal. Every subject has a different shape, so the picture is readable in greyscale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.benchmark import Benchmark, Of, Row
from benchmarks.suite import Result

__all__ = ["draw"]

_SHADES = ("black", "tab:orange", "0.5", "tab:blue", "tab:green", "tab:purple")
_MARKERS = "oDsv^P"
_WIDTH, _LINE, _MARGIN = 11.0, 0.22, 1.6  # inches
_GAP = 1.0  # lines between two cases
_MANY_TIMES = 20.0  # figures that differ by more than this factor need a logarithmic axis


def draw(result: Result, folder: Path) -> list[Path]:
    """Draw the results of one benchmark; return the paths of the files."""
    names = list(dict.fromkeys(row.measure.name for row in result.rows))
    files = []
    for name in names:
        stem = result.benchmark.name if len(names) == 1 else f"{result.benchmark.name} {name}"
        file = folder / f"{re.sub(r'[^a-z0-9]+', '-', stem.lower())}.svg"
        rows = [row for row in result.rows if row.measure.name == name]
        _Picture(result.benchmark, rows).save(file)
        files.append(file)
    return files


class _Picture:
    """The rows of one measure, one per line, grouped by case."""

    def __init__(self, benchmark: Benchmark, rows: Sequence[Row]) -> None:
        self._benchmark = benchmark
        self._rows = rows
        names = {row.subject: f"{row.subject}{row.measure.which}" for row in rows}
        looks = zip(names.items(), cycle(_MARKERS), cycle(_SHADES), strict=False)
        self._looks = {
            subject: {"marker": marker, "color": shade, "label": name} for (subject, name), marker, shade in looks
        }
        self._cases = list(dict.fromkeys(row.case for row in rows))
        self._lines = list(_lines(rows))

    def save(self, file: Path) -> None:
        """Draw the picture into a file. The same rows always produce the same file."""
        compared = any(row.ratio for row in self._rows)
        figure = Figure(figsize=(_WIDTH, _MARGIN + _LINE * (self._lines[-1] + 1)), layout="constrained")
        panels: Any = figure.subplots(1, 1 + compared, squeeze=False, sharey=True)
        self._draw_values(panels[0][0])
        if compared:
            self._draw_ratios(panels[0][1])
        figure.suptitle(self._benchmark.says, fontsize="medium")
        handles = [Line2D([], [], linestyle="", ms=6, **look) for look in self._looks.values()]
        handles.append(Line2D([], [], color="0.3", linestyle="--", label="goal"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
        with rc_context({"svg.hashsalt": self._benchmark.name, "svg.fonttype": "none"}):
            figure.savefig(file, metadata={"Date": None})

    def _draw_values(self, axes: Axes) -> None:
        for row, line in zip(self._rows, self._lines, strict=True):
            self._mark(axes, row, line, row.value, *row.spread)
            self._draw_goal(axes, row, line, Of.VALUE)
        values = [row.value for row in self._rows if row.value > 0]
        if values and max(values) > _MANY_TIMES * min(values):
            axes.set_xscale("log")
        else:
            axes.set_xlim(left=0)
        measure = self._rows[0].measure
        axes.set_xlabel(f"{measure.name}{f', {measure.unit}' if measure.unit else ''}; bar: quartiles")
        axes.set_yticks([self._middle(case) for case in self._cases], self._cases, fontsize="small")
        axes.set_ylim(self._lines[-1] + _GAP, -_GAP)
        axes.grid(axis="x", color="0.9")

    def _draw_ratios(self, axes: Axes) -> None:
        for row, line in zip(self._rows, self._lines, strict=True):
            if row.ratio is not None:
                self._mark(axes, row, line, row.ratio.value, row.ratio.low, row.ratio.high)
                self._draw_goal(axes, row, line, Of.RATIO)
        axes.axvline(1.0, color="0.6", linewidth=0.8)
        ratios = [row.ratio.value for row in self._rows if row.ratio is not None]
        if max(ratios) > _MANY_TIMES * min(ratios):
            axes.set_xscale("log")
        baseline = next(row.subject for row in self._rows if row.ratio is None)
        axes.set_xlabel(f"times {baseline}; bar: 95 %")
        axes.grid(axis="x", color="0.9")

    def _mark(self, axes: Axes, row: Row, line: float, value: float, low: float, high: float) -> None:
        look = self._looks[row.subject]
        axes.plot([low, high], [line, line], color=look["color"], linewidth=2)
        axes.plot([value], [line], ms=6, **look)

    def _draw_goal(self, axes: Axes, row: Row, line: float, of: Of) -> None:
        goal = self._benchmark.goal_of(row)
        if goal is not None and goal.of is of:
            for bound in filter(math.isfinite, (goal.least, goal.most)):
                axes.plot([bound, bound], [line - 0.5, line + 0.5], color="0.3", linestyle="--")

    def _middle(self, case: str) -> float:
        lines = [line for row, line in zip(self._rows, self._lines, strict=True) if row.case == case]
        return (lines[0] + lines[-1]) / 2


def _lines(rows: Sequence[Row]) -> Iterator[float]:
    """Yield the vertical position of each row."""
    line, case = -1.0, rows[0].case
    for row in rows:
        line += 1 if row.case == case else 1 + _GAP
        case = row.case
        yield line
