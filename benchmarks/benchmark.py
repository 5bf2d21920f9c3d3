"""What a benchmark is, what it gives, and what is asked of it: values only.

A benchmark gives rows. A row is one subject, in one case, by one measure, with every figure that was taken. Goals are
kept apart from rows: a goal names the rows that it is about, and says of each whether it is met.
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
"""The subjects that most benchmarks have. The control is what all others are set beside, a second time."""

THREADED_PLAIN, THREADED, THREADED_CONTROL = "grpc", "grpc_backoff", "grpc, again"
"""The same for threads."""


class Effort(enum.Enum):
    """How much is measured."""

    FULL = "full"
    """For figures."""
    QUICK = "quick"
    """For errors: every row, from too few figures to go by."""
    TINY = "tiny"
    """For the tests of this program."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What the figures of a row are.

    Attributes:
        name: what was measured.
        unit: of the figures; empty for a count.
        quantile: which of them stands for all; the median, unless the slowest matter.
    """

    name: str
    unit: str
    quantile: float = 0.5

    @property
    def which(self) -> str:
        """The quantile, where it is not the median."""
        return "" if self.quantile == 0.5 else f" (p{self.quantile * 100:g})"

    def __str__(self) -> str:
        """Say what it is, and in which unit."""
        return f"{self.name}{self.which}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the bounds between which it lies, 95 % by bootstrap."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured of one subject.

    Attributes:
        case: under which circumstances.
        measure: what.
        subject: of whom.
        samples: every figure that was taken, in the measure's unit.
        ratio: how the subject compares with the benchmark's baseline; None where there is none, and for itself.
    """

    case: str
    measure: Measure
    subject: str
    samples: tuple[float, ...]
    ratio: Interval | None = None

    @property
    def value(self) -> float:
        """The figure that stands for all."""
        return float(np.quantile(self.samples, self.measure.quantile))

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        return float(low), float(high)


class Of(enum.Enum):
    """Which figure of a row a goal is about."""

    VALUE = "value"
    RATIO = "ratio"


class Verdict(enum.Enum):
    """What is said of a row. Where it is close, the bound is inside the ratio's interval: another run may differ."""

    MET = "met"
    CLOSE_MET = "met, close"
    CLOSE_MISSED = "missed, close"
    MISSED = "missed"

    @property
    def met(self) -> bool:
        """Whether the figure itself is on the right side."""
        return self in (Verdict.MET, Verdict.CLOSE_MET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a subject is to reach by one measure, in every case that has it.

    Attributes:
        subject: who.
        measure: by what.
        of: which figure of the row.
        least: the smallest figure that is good.
        most: the largest that is.
    """

    subject: str
    measure: Measure
    of: Of = Of.RATIO
    least: float = -math.inf
    most: float = math.inf

    def concerns(self, row: Row) -> bool:
        """Return whether the row is one that this goal is about."""
        there = self.of is Of.VALUE or row.ratio is not None
        return there and (self.subject, self.measure) == (row.subject, row.measure)

    def judge(self, row: Row) -> Verdict:
        """Say whether the row meets the goal."""
        if self.of is Of.VALUE or row.ratio is None:
            return Verdict.MET if self.least <= row.value <= self.most else Verdict.MISSED
        ratio = row.ratio
        met = self.least <= ratio.value <= self.most
        if any(ratio.low < bound < ratio.high for bound in (self.least, self.most)):
            return Verdict.CLOSE_MET if met else Verdict.CLOSE_MISSED
        return Verdict.MET if met else Verdict.MISSED

    def __str__(self) -> str:
        """Say what is asked."""
        unit = "times" if self.of is Of.RATIO else self.measure.unit
        bounds = ("at least", self.least), ("at most", self.most)
        asked = " and ".join(f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound))
        return f"{asked} {unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One measurement, side by side.

    Attributes:
        name: by which it is called on the command line.
        says: what it measures, in a line.
        beside: whom it sets this library beside.
        goals: what is asked.
        run: measures, and gives every row.
    """

    name: str
    says: str
    beside: tuple[str, ...]
    goals: tuple[Goal, ...]
    run: Callable[[Effort], Iterable[Row]]

    def goal_of(self, row: Row) -> Goal | None:
        """Return what is asked of a row; None is nothing."""
        return next((goal for goal in self.goals if goal.concerns(row)), None)
