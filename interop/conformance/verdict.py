"""What is said of a client: for each clause whether it holds, from what was measured, and by how much it was missed."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from interop.conformance.terms import Range

__all__ = ["Measure", "Outcome", "Unit", "Verdict"]


class Unit(enum.Enum):
    """What a measure counts in."""

    SECONDS = "s"
    ATTEMPTS = "attempts"
    CONNECTIONS = "connections"
    CALLS = "calls"
    CLIENTS = "clients"
    BACKOFFS = "backoffs"
    TIMES = "times"

    def show(self, value: float) -> str:
        """Return a value in words."""
        places = {Unit.SECONDS: 3, Unit.BACKOFFS: 2, Unit.TIMES: 2}.get(self, 0)
        return f"{value:.{places}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure, and what it may be.

    Attributes:
        what: what was measured.
        seen: the figure.
        allowed: what it may be.
        unit: what it counts in.
        since: where a time span is measured: its beginning, on the timeline's clock; None for what is none.
        interval: what an estimate may as well be; None for what was measured itself.
        convicts: whether an estimate is far enough from what is allowed to count as missed.
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
        """The time on which a verdict by this figure hangs, in seconds; infinity if it has no two ends."""
        if self.unit is not Unit.SECONDS or self.since is None:
            return math.inf
        bound = self.allowed.high if self.seen > self.allowed.high else self.allowed.low
        return max(bound, self.seen) if bound <= 0 else bound

    @property
    def missed_by(self) -> float:
        """How far outside the allowed band the figure is; 0 inside."""
        if self.seen in self.allowed or not self.convicts:
            return 0.0
        return max(self.allowed.low - self.seen, self.seen - self.allowed.high)

    def __str__(self) -> str:
        """Say what was seen, what was allowed, and by how much it was missed."""
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
    """The judge was late where it fails: no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One clause on one client.

    Attributes:
        clause: the clause's name.
        rule: the rule that it stands for.
        outcome: whether it holds.
        measures: all that was measured for it.
        reason: why there are no measures; otherwise empty.
    """

    clause: str
    rule: str
    outcome: Outcome
    measures: tuple[Measure, ...] = ()
    reason: str = ""

    @property
    def missed(self) -> tuple[Measure, ...]:
        """The measures that are outside what is allowed, in the order in which they were made."""
        return tuple(each for each in self.measures if each.missed_by)

    @property
    def figure(self) -> Measure | None:
        """The measure that stands for all: the first one that was missed, or the first one; None if there is none."""
        return next(iter(self.missed or self.measures), None)

    def __str__(self) -> str:
        """Say how it was found, by the first measure that was missed if it fails."""
        if self.reason:
            return self.reason
        missed = self.missed
        if not missed:
            return f"holds, {len(self.measures)} measured"
        rest = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
        return f"{missed[0]}{rest}"
