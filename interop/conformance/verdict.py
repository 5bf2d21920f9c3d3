"""Verdicts on a client: for each clause, whether it holds, what was measured, and by how much it was missed."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from interop.conformance.terms import Range

__all__ = ["Measure", "Outcome", "Unit", "Verdict"]


class Unit(enum.Enum):
    """The unit of a measure."""

    SECONDS = "s"
    ATTEMPTS = "attempts"
    CONNECTIONS = "connections"
    CALLS = "calls"
    CLIENTS = "clients"
    BACKOFFS = "backoffs"
    TIMES = "times"

    def show(self, value: float) -> str:
        """Return a value as text, rounded as suits the unit."""
        places = {Unit.SECONDS: 3, Unit.BACKOFFS: 2, Unit.TIMES: 2}.get(self, 0)
        return f"{value:.{places}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure and its allowed range.

    Attributes:
        what: what was measured.
        seen: the figure.
        allowed: its allowed range.
        unit: its unit.
        since: the start of a measured time span, on the timeline's clock; None if it is not a time span.
        interval: the confidence interval of an estimate; None for a direct measurement.
        convicts: whether an estimate outside the allowed range is far enough outside to count as missed.
    """

    what: str
    seen: float
    allowed: Range
    unit: Unit = Unit.SECONDS
    since: float | None = None
    interval: Range | None = None
    convicts: bool = True

    @property
    def hangs_on(self) -> float:
        """The time that decides a verdict on this figure, in seconds; infinity if it is not a time span."""
        if self.unit is not Unit.SECONDS or self.since is None:
            return math.inf
        bound = self.allowed.high if self.seen > self.allowed.high else self.allowed.low
        return max(bound, self.seen) if bound <= 0 else bound

    @property
    def missed_by(self) -> float:
        """How far outside the allowed range the figure is; 0 if inside."""
        if self.seen in self.allowed or not self.convicts:
            return 0.0
        return max(self.allowed.low - self.seen, self.seen - self.allowed.high)

    def __str__(self) -> str:
        """Return what was seen, what is allowed, and by how much it was missed."""
        unit = self.unit.value
        if self.interval is not None:
            low, high = (self.unit.show(end) for end in (self.interval.low, self.interval.high))
            expected = self.unit.show(self.allowed.low)
            unit = "" if self.unit is Unit.TIMES else f" {unit}"
            return f"{self.what}: {self.unit.show(self.seen)} ({low} to {high}){unit}, expected {expected}"
        text = f"{self.what}: {self.unit.show(self.seen)} {unit}, allowed {self._allowance()}"
        if self.missed_by:
            text += f", missed by {self.unit.show(self.missed_by)} {unit}"
        return text

    def _allowance(self) -> str:
        low, high = self.unit.show(self.allowed.low), self.unit.show(self.allowed.high)
        if math.isinf(self.allowed.high):
            return f"at least {low}"
        return f"at most {high}" if self.allowed.low <= 0 else f"{low} to {high}"


class Outcome(enum.Enum):
    """Whether a clause holds."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    INCONCLUSIVE = "inconclusive"
    """No verdict: the clause fails, but the judge may have recorded the times late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of one clause on one client.

    Attributes:
        clause: the clause's name.
        rule: the rule that it represents.
        outcome: whether it holds.
        measures: everything that was measured for it.
        reason: why there is no verdict on the measures; otherwise empty.
    """

    clause: str
    rule: str
    outcome: Outcome
    measures: tuple[Measure, ...] = ()
    reason: str = ""

    @property
    def missed(self) -> tuple[Measure, ...]:
        """The measures outside their allowed ranges, in the order in which they were made."""
        return tuple(each for each in self.measures if each.missed_by)

    @property
    def figure(self) -> Measure | None:
        """The measure shown in tables: the first one missed, or else the first one; None if there is none."""
        return next(iter(self.missed or self.measures), None)

    def __str__(self) -> str:
        """Return the reason, the first measure missed, or that the clause holds."""
        if self.reason:
            return self.reason
        missed = self.missed
        if not missed:
            return f"holds, {len(self.measures)} measured"
        rest = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
        return f"{missed[0]}{rest}"
