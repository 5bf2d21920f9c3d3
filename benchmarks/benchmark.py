"""Defines benchmarks, the rows that they produce, and their goals. This module holds values and does no measuring.

A benchmark produces rows. Each row holds every sample of one measure, for one subject in one case. Goals are separate
from rows: a goal selects the rows that it applies to and judges each of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

__all__ = [
    "CONTROL",
    "OURS",
    "PLAIN",
    "THREADED",
    "THREADED_CONTROL",
    "THREADED_PLAIN",
    "Benchmark",
    "Effort",
    "Goal",
    "Interval",
    "Measure",
    "Of",
    "Row",
    "Verdict",
]

PLAIN, OURS, CONTROL = "grpc.aio", "grpc_backoff.aio", "grpc.aio, again"
"""The subjects of most asyncio benchmarks. The control is the baseline, measured a second time."""

THREADED_PLAIN, THREADED, THREADED_CONTROL = "grpc", "grpc_backoff", "grpc, again"
"""The subjects of most benchmarks that use threads."""


class Effort(enum.Enum):
    """How long to measure, and with how many samples."""

    FULL = "full"
    """Takes enough samples for reliable figures."""
    QUICK = "quick"
    """Produces every row, but from too few samples to rely on. Used to find errors in the benchmarks."""
    TINY = "tiny"
    """Takes even fewer samples. Used by the tests of this program."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that a benchmark measures.

    Attributes:
        name: the name of the quantity.
        unit: the unit of the samples; empty for a count.
        quantile: the quantile that represents the samples: the median, unless the slow samples are what matters.
    """

    name: str
    unit: str
    quantile: float = 0.5

    @property
    def which(self) -> str:
        """The name of the quantile in parentheses; empty for the median."""
        return "" if self.quantile == 0.5 else f" (p{self.quantile * 100:g})"

    def __str__(self) -> str:
        """Return the name, the quantile and the unit, as shown in tables."""
        return f"{self.name}{self.which}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % confidence interval, computed by bootstrapping."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The samples of one measure, for one subject in one case.

    Attributes:
        case: the circumstances of the measurement.
        measure: the quantity measured.
        subject: the library or configuration measured.
        samples: every sample, in the measure's unit.
        ratio: the subject's figure divided by the baseline's; None for the baseline itself, or if there is no baseline.
    """

    case: str
    measure: Measure
    subject: str
    samples: tuple[float, ...]
    ratio: Interval | None = None

    @property
    def value(self) -> float:
        """The figure that represents all samples: the quantile chosen by the measure."""
        return float(np.quantile(self.samples, self.measure.quantile))

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and upper quartiles of the samples."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        return float(low), float(high)


class Of(enum.Enum):
    """Whether a goal applies to a row's own figure or to its ratio to the baseline."""

    VALUE = "value"
    RATIO = "ratio"


class Verdict(enum.Enum):
    """Whether a row meets its goal. A verdict is close if the confidence interval contains the bound."""

    MET = "met"
    CLOSE_MET = "met, close"
    CLOSE_MISSED = "missed, close"
    MISSED = "missed"

    @property
    def met(self) -> bool:
        """Whether the measured figure meets the goal, closely or not."""
        return self in (Verdict.MET, Verdict.CLOSE_MET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The bounds on a subject's figure for one measure, in every case that uses the measure."""

    subject: str
    measure: Measure
    of: Of = Of.RATIO
    least: float = -math.inf
    most: float = math.inf

    def concerns(self, row: Row) -> bool:
        """Return whether this goal applies to the row."""
        there = self.of is Of.VALUE or row.ratio is not None
        return there and (self.subject, self.measure) == (row.subject, row.measure)

    def judge(self, row: Row) -> Verdict:
        """Return the verdict on this row."""
        if self.of is Of.VALUE or row.ratio is None:
            return Verdict.MET if self.least <= row.value <= self.most else Verdict.MISSED
        ratio = row.ratio
        met = self.least <= ratio.value <= self.most
        if any(ratio.low < bound < ratio.high for bound in (self.least, self.most)):
            return Verdict.CLOSE_MET if met else Verdict.CLOSE_MISSED
        return Verdict.MET if met else Verdict.MISSED

    def __str__(self) -> str:
        """Return the bounds as text, such as "at most 1.1 times"."""
        unit = "times" if self.of is Of.RATIO else self.measure.unit
        bounds = ("at least", self.least), ("at most", self.most)
        asked = " and ".join(f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound))
        return f"{asked} {unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A measurement that compares several subjects.

    Attributes:
        name: its name on the command line.
        says: what it measures, in one line.
        beside: the subjects that this library is compared with.
        goals: the goals that its rows are judged by.
        run: performs the measurement and returns every row.
    """

    name: str
    says: str
    beside: tuple[str, ...]
    goals: tuple[Goal, ...]
    run: Callable[[Effort], Iterable[Row]]

    def goal_of(self, row: Row) -> Goal | None:
        """Return the goal that applies to this row; None if there is none."""
        return next((goal for goal in self.goals if goal.concerns(row)), None)
