"""What a benchmark is, what it produces, and its goals: values only.

A benchmark produces rows. A row is one subject in one case by one measure, with every sample. Goals are separate from
rows: a goal selects the rows that it applies to, and says for each whether it is met.
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
"""The subjects of most benchmarks. The control is the baseline of all others, measured a second time."""

THREADED_PLAIN, THREADED, THREADED_CONTROL = "grpc", "grpc_backoff", "grpc, again"
"""The subjects of most benchmarks of threads."""


class Effort(enum.Enum):
    """How much to measure."""

    FULL = "full"
    """For reliable figures."""
    QUICK = "quick"
    """To find errors: every row, from too few samples to rely on."""
    TINY = "tiny"
    """For the tests of this program."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What the samples of a row measure.

    Attributes:
        name: what was measured.
        unit: the unit of the samples; empty for a count.
        quantile: the quantile that represents them; the median, unless the slowest matter.
    """

    name: str
    unit: str
    quantile: float = 0.5

    @property
    def which(self) -> str:
        """The quantile, if it is not the median."""
        return "" if self.quantile == 0.5 else f" (p{self.quantile * 100:g})"

    def __str__(self) -> str:
        """Return the name and the unit."""
        return f"{self.name}{self.which}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % confidence interval, by bootstrap."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured of one subject.

    Attributes:
        case: the circumstances.
        measure: what was measured.
        subject: the subject.
        samples: every sample, in the measure's unit.
        ratio: the subject compared with the benchmark's baseline; None if there is none, and for the baseline itself.
    """

    case: str
    measure: Measure
    subject: str
    samples: tuple[float, ...]
    ratio: Interval | None = None

    @property
    def value(self) -> float:
        """The figure that represents all samples."""
        return float(np.quantile(self.samples, self.measure.quantile))

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        return float(low), float(high)


class Of(enum.Enum):
    """The figure of a row that a goal is about."""

    VALUE = "value"
    RATIO = "ratio"


class Verdict(enum.Enum):
    """The verdict on a row. If it is close, the bound is inside the ratio's interval: another run may differ."""

    MET = "met"
    CLOSE_MET = "met, close"
    CLOSE_MISSED = "missed, close"
    MISSED = "missed"

    @property
    def met(self) -> bool:
        """Whether the figure itself meets the goal."""
        return self in (Verdict.MET, Verdict.CLOSE_MET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a subject should achieve by one measure, in every case that has it.

    Attributes:
        subject: the subject.
        measure: the measure.
        of: which figure of the row.
        least: the smallest acceptable figure.
        most: the largest acceptable figure.
    """

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
        """Return whether the row meets the goal."""
        if self.of is Of.VALUE or row.ratio is None:
            return Verdict.MET if self.least <= row.value <= self.most else Verdict.MISSED
        ratio = row.ratio
        met = self.least <= ratio.value <= self.most
        if any(ratio.low < bound < ratio.high for bound in (self.least, self.most)):
            return Verdict.CLOSE_MET if met else Verdict.CLOSE_MISSED
        return Verdict.MET if met else Verdict.MISSED

    def __str__(self) -> str:
        """Return the bounds as text."""
        unit = "times" if self.of is Of.RATIO else self.measure.unit
        bounds = ("at least", self.least), ("at most", self.most)
        asked = " and ".join(f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound))
        return f"{asked} {unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One measurement that compares subjects.

    Attributes:
        name: its name on the command line.
        says: what it measures, in one line.
        beside: the subjects that this library is compared with.
        goals: its goals.
        run: performs the measurement, and returns every row.
    """

    name: str
    says: str
    beside: tuple[str, ...]
    goals: tuple[Goal, ...]
    run: Callable[[Effort], Iterable[Row]]

    def goal_of(self, row: Row) -> Goal | None:
        """Return the goal for this row; None if there is none."""
        return next((goal for goal in self.goals if goal.concerns(row)), None)
