"""The gaps between the starts of one series of attempts, each held against its band.

A gap that is outside its band can still be what would have followed from the gap before it, had the jitter of that one
been kept in. Then the jitter compounds, and nothing else is wrong; so each gap that misses is laid at one door only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from interop.conformance.terms import Range, Terms
from interop.conformance.verdict import Measure, Unit
from interop.timeline import Visit

__all__ = ["AT_ONCE", "Gap", "after_service", "attempts", "gaps", "series_by_client", "without_one_early"]

AT_ONCE = 0.5
"""The part of INITIAL_BACKOFF within which a client has done what it does at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The time from one start to the next.

    Attributes:
        number: counts the gaps of a series, from 1.
        since: the start that it begins with.
        seconds: how long it is.
        before: how long the gap before it is; None for the first, and where that one is not explained itself.
        terms: what it is held to.
    """

    number: int
    since: float
    seconds: float
    before: float | None
    terms: Terms

    @property
    def band(self) -> Range:
        """What it may be."""
        return self.terms.band(self.number)

    @property
    def departure(self) -> float:
        """How far it is from its length without jitter."""
        return abs(self.seconds - self.terms.nominal(self.number))

    @property
    def fits(self) -> bool:
        """Whether it is in its band."""
        return self.seconds in self.band

    @property
    def compounded(self) -> bool:
        """Whether it is outside its band, but would be right had the jitter of the gaps before been kept in."""
        return not self.fits and self.before is not None and self.seconds in self.terms.following(self.before)

    @property
    def explained(self) -> bool:
        """Whether it is in its band, or would be but for compounding."""
        return self.fits or self.compounded

    @property
    def allowed(self) -> Range:
        """What it may be where compounding jitter is not asked about."""
        return self.terms.following(self.before) if self.compounded and self.before is not None else self.band

    def measure(self, allowed: Range | None = None) -> Measure:
        """Return the gap beside what it may be, compounding or not, or beside another range."""
        return Measure(what=f"gap {self.number}", seen=self.seconds, allowed=allowed or self.allowed, since=self.since)


def gaps(visits: Sequence[Visit], terms: Terms) -> list[Gap]:
    """Return the gaps of a series of attempts."""
    series: list[Gap] = []
    before = None
    for number, (visit, after) in enumerate(pairwise(visits), 1):
        length = after.accepted - visit.accepted
        gap = Gap(number=number, since=visit.accepted, seconds=length, before=before, terms=terms)
        series.append(gap)
        before = length if gap.explained else None
    return series


def attempts(series: Sequence[Visit], fewest: int, what: str = "attempts seen") -> Measure:
    """Return how many attempts there were, beside how many there have to be (IO-2)."""
    return Measure(what=what, seen=len(series), allowed=Range(fewest, math.inf), unit=Unit.ATTEMPTS)


def without_one_early(visits: Sequence[Visit], terms: Terms) -> list[Visit]:
    """Return a series of attempts without the first connection that came early (CB-7).

    A client whose call enters a connection at the moment of its end cannot always prevent that one. A second early
    connection stays in the series, and makes a gap that is too short.
    """
    early = [place for place, gap in enumerate(gaps(visits, terms), 1) if gap.seconds < AT_ONCE * terms.initial]
    return [visit for place, visit in enumerate(visits) if place not in early[:1]]


def after_service(visits: Sequence[Visit]) -> Sequence[Visit]:
    """Return the connections that came after the last one on which the server sent SETTINGS."""
    served = [place for place, visit in enumerate(visits, 1) if visit.settings_sent is not None]
    return visits[served[-1] :] if served else visits


def series_by_client(visits: Sequence[Visit]) -> list[Sequence[Visit]]:
    """Return for each client the attempts that it made after its last served connection."""
    clients = sorted({visit.client for visit in visits})
    return [after_service([visit for visit in visits if visit.client == client]) for client in clients]
