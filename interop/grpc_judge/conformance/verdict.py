"""Verdicts on a client: whether each clause holds, what was measured, and by how much it missed its range."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from grpc_judge.conformance.terms import Range


class Unit(enum.Enum):
    """The unit of a measure."""

    SECONDS = "s"
    ATTEMPTS = "attempts"
    CONNECTIONS = "connections"
    CALLS = "calls"
    CLIENTS = "clients"
    TIMES = "times"

    def show(self, value: float) -> str:
        """Format a value with the precision that suits the unit."""
        places = {Unit.SECONDS: 3, Unit.TIMES: 2}.get(self, 0)
        return f"{value:.{places}f}"

    def count(self, value: float) -> str:
        """Format a value and its unit, which is singular if a count is 1."""
        shown = self.show(value)
        return f"{shown} {self.value.removesuffix('s') if shown == '1' else self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measured figure and its allowed range.

    Attributes:
        what: what was measured.
        seen: the figure.
        allowed: its allowed range.
        unit: its unit.
        since: for a time span, its start on the timeline's clock; otherwise None.
        interval: the confidence interval of an estimate; None for a direct measurement.
        convicts: whether a figure outside the allowed range counts as a miss; an uncertain estimate may not.
        asked: whether the figure can be asked of this client; if not, it neither misses nor holds.
    """

    what: str
    seen: float
    allowed: Range
    unit: Unit = Unit.SECONDS
    since: float | None = None
    interval: Range | None = None
    convicts: bool = True
    asked: bool = True

    @property
    def hangs_on(self) -> float:
        """The time span that decides the verdict on this figure, in seconds; infinity for other figures."""
        if self.unit is not Unit.SECONDS or self.since is None:
            return math.inf
        bound = self.allowed.high if self.seen > self.allowed.high else self.allowed.low
        return max(bound, self.seen) if bound <= 0 else bound

    @property
    def missed_by(self) -> float:
        """How far outside the allowed range the figure is; 0 if it is inside."""
        if self.seen in self.allowed or not self.convicts or not self.asked:
            return 0.0
        return max(self.allowed.low - self.seen, self.seen - self.allowed.high)

    @property
    def shown(self) -> str:
        """What was measured and the figure, as text; for an estimate, with its interval."""
        if self.interval is None:
            return f"{self.what}: {self.unit.count(self.seen)}"
        low, high = (self.unit.show(end) for end in (self.interval.low, self.interval.high))
        unit = "" if self.unit is Unit.TIMES else f" {self.unit.value}"
        return f"{self.what}: {self.unit.show(self.seen)} ({low} to {high}){unit}"

    @property
    def allowance(self) -> str:
        """The allowed range or, for an estimate, the expected value, as text."""
        low, high = self.unit.show(self.allowed.low), self.unit.show(self.allowed.high)
        if self.interval is not None:
            return low
        if math.isinf(self.allowed.high):
            return f"at least {low}"
        return f"at most {high}" if self.allowed.low <= 0 else f"{low} to {high}"

    def __str__(self) -> str:
        """Return the figure, what is allowed or, for an estimate, expected, and how far it misses that."""
        if self.interval is not None:
            return f"{self.shown}, expected {self.allowance}"
        missed = f", missed by {self.unit.count(self.missed_by)}" if self.missed_by else ""
        return f"{self.shown}, allowed {self.allowance}{missed}"


class Outcome(enum.Enum):
    """Whether a clause holds for a client."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    INCONCLUSIVE = "inconclusive"
    """The clause would fail, but the judge may have recorded the times late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of one clause on one client.

    Attributes:
        clause: the name of the clause.
        rule: the rule that the clause tests.
        outcome: whether the clause holds.
        measures: everything that was measured for it.
        reason: why the measures did not decide the verdict; empty if they did.
        close: whether the verdict is inconclusive because the clause was missed by less than timers may be late.
    """

    clause: str
    rule: str
    outcome: Outcome
    measures: tuple[Measure, ...] = ()
    reason: str = ""
    close: bool = False

    @property
    def missed(self) -> tuple[Measure, ...]:
        """The measures outside their allowed ranges, in the order in which they were taken."""
        return tuple(each for each in self.measures if each.missed_by)

    @property
    def figure(self) -> Measure | None:
        """The measure to show in tables: the first that misses its range, or else the first; None if there are none."""
        return next(iter(self.missed or self.measures), None)

    def __str__(self) -> str:
        """Return the reason, the first measure that misses its range, or a statement that the clause holds."""
        if self.reason:
            return self.reason
        missed = self.missed
        if not missed:
            return f"holds, {len(self.measures)} measured"
        rest = f" (and {len(missed) - 1} more out of range)" if len(missed) > 1 else ""
        return f"{missed[0]}{rest}"
