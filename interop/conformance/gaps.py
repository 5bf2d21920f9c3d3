"""The gaps between the starts of one series of attempts, each compared with the client's own schedule.

Whether that schedule matches the client's settings is decided once, from all its gaps together (`fit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from interop.conformance.evidence import Evidence
from interop.conformance.schedule import Series
from interop.conformance.terms import Range, Terms
from interop.conformance.verdict import Measure, Unit
from interop.timeline import Visit

__all__ = [
    "AT_ONCE",
    "LATE",
    "accepted",
    "after_loss",
    "after_service",
    "attempts",
    "by_client",
    "gaps",
    "measured",
    "resets_at_settings",
    "series_of",
    "without_one_early",
]

AT_ONCE = 0.5
"""The fraction of INITIAL_BACKOFF within which something counts as done at once."""

LATE = 0.1
"""If the judge was late by more than this fraction of a time span, the span is unknown."""


def measured(starts: Sequence[float], evidence: Evidence) -> Iterator[Measure]:
    """Yield each gap of a series of attempts with its allowed range."""
    before = None
    for number, (start, after) in enumerate(pairwise(starts), 1):
        length = after - start
        yield Measure(what=f"gap {number}", seen=length, allowed=evidence.band(number, before), since=start)
        before = length


def gaps(visits: Sequence[Visit], terms: Terms) -> list[Measure]:
    """Return the gaps of a series of attempts compared with the client's settings, whatever its own schedule is."""
    return [
        Measure(
            what=f"gap {number}", seen=after.accepted - visit.accepted, allowed=terms.band(number), since=visit.accepted
        )
        for number, (visit, after) in enumerate(pairwise(visits), 1)
    ]


def attempts(series: Sequence[object], fewest: int, what: str = "attempts seen") -> Measure:
    """Return how many attempts there were, compared with how many there must be (IO-2)."""
    return Measure(what=what, seen=len(series), allowed=Range(fewest, math.inf), unit=Unit.ATTEMPTS)


def accepted(visits: Sequence[Visit]) -> list[float]:
    """Return when each connection was accepted."""
    return [visit.accepted for visit in visits]


def without_one_early(starts: Sequence[float], terms: Terms) -> list[float]:
    """Return a series of attempts without the first early one (CB-7).

    A client whose call is assigned to a connection at the moment of its end cannot always prevent that one. A second
    early attempt stays in the series, and makes a gap that is too short.
    """
    early = [place for place, (one, two) in enumerate(pairwise(starts), 1) if two - one < AT_ONCE * terms.initial]
    return [start for place, start in enumerate(starts) if place not in early[:1]]


def after_service(visits: Sequence[Visit]) -> Sequence[Visit]:
    """Return the connections that came after the end of the last one on which the server sent SETTINGS."""
    served = [visit for visit in visits if visit.settings_sent is not None]
    if not served:
        return visits
    end = math.inf if served[-1].ended is None else served[-1].ended
    return [visit for visit in visits if visit.accepted > served[-1].accepted and visit.accepted >= end]


def by_client(visits: Sequence[Visit]) -> list[list[Visit]]:
    """Return each client's connections."""
    clients = sorted({visit.client for visit in visits})
    return [[visit for visit in visits if visit.client == client] for client in clients]


def series_of(evidence: Evidence) -> list[Series]:
    """Return each client's gaps; of a flood, as many as there should have been, because the rest show the same."""
    most = 3 * evidence.terms.most_starts(evidence.seconds) + 1
    found = [accepted(visits[:most]) for visits in by_client(evidence.visits)]
    return [
        Series(tuple(_gap(start, after, evidence) for start, after in pairwise(starts)), evidence.terms)
        for starts in found
    ]


def _gap(start: float, after: float, evidence: Evidence) -> float:
    """Return a gap, or that it is unknown: the judge was late by more than a tenth of it at one of its ends."""
    length = after - start
    return math.nan if evidence.late(start, length) > LATE * length else length


def after_loss(evidence: Evidence) -> list[float]:
    """Return when the attempts after the loss of a served connection began, without one that came early."""
    served = [visit for visit in evidence.visits if visit.settings_sent is not None]
    return without_one_early(accepted(after_service(evidence.visits)), evidence.terms) if served else []


def resets_at_settings(evidence: Evidence) -> bool:
    """Return whether the gaps after a loss are those of a new series, as far as they were seen."""
    return not any(gap.missed_by for gap in list(measured(after_loss(evidence), evidence))[:2])
