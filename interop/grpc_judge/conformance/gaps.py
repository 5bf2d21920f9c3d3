"""The gaps between the starts of one series of attempts, compared with the client's own schedule.

Whether that schedule matches the client's settings is decided once, from all gaps of the client together (`fit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from grpc_judge.conformance.evidence import Evidence
from grpc_judge.conformance.schedule import Series
from grpc_judge.conformance.terms import Range
from grpc_judge.conformance.verdict import Measure, Unit
from grpc_judge.timeline import Visit

AT_ONCE = 0.5
"""The fraction of INITIAL_BACKOFF within which something counts as immediate."""

LATE = 0.1
"""If the judge was late by more than this fraction of a time span, the span counts as unknown."""

NO_SCHEDULE = "its attempts follow no schedule, as `growth` says"
"""Why a clause about the backoff cannot be asked."""


def measured(starts: Sequence[float], evidence: Evidence) -> Iterator[Measure]:
    """Yield each gap in a series of attempts, with its allowed range.

    A client without a schedule is not asked for the gaps that are too short, because it has none that were longer.
    """
    before = None
    for number, (start, after) in enumerate(pairwise(starts), 1):
        gap = span(f"gap {number}", start, after, evidence.band(number, before))
        before = after - start
        yield replace(gap, asked=evidence.scheduled or before >= gap.allowed.low)


def span(what: str, since: float, until: float, allowed: Range) -> Measure:
    """Return the time from one moment to another, compared with the allowed range."""
    return Measure(what=what, seen=until - since, allowed=allowed, since=since)


def attempts(series: Sequence[object], fewest: int, what: str = "attempts seen") -> Measure:
    """Return the number of attempts, compared with the required minimum (IO-2)."""
    return Measure(what=what, seen=len(series), allowed=Range(fewest, math.inf), unit=Unit.ATTEMPTS)


def count_connections(seen: int, allowed: Range, what: str = "connections") -> Measure:
    """Return a number of connections, compared with the allowed range."""
    return Measure(what=what, seen=seen, allowed=allowed, unit=Unit.CONNECTIONS)


def count_calls(what: str, seen: int, allowed: Range) -> Measure:
    """Return a number of calls, compared with the allowed range."""
    return Measure(what=what, seen=seen, allowed=allowed, unit=Unit.CALLS)


def accepted(visits: Sequence[Visit]) -> list[float]:
    """Return the times at which the connections were accepted."""
    return [visit.accepted for visit in visits]


def shortest_initial(evidence: Evidence) -> float:
    """Return the shorter of the INITIAL_BACKOFF seen and the one configured; one seen within tolerance is ignored."""
    own = evidence.schedule.nominal(1, evidence.terms)
    return min(own, evidence.terms.initial) if own > evidence.terms.tolerance else evidence.terms.initial


def without_early(starts: Sequence[float], evidence: Evidence, in_a_row: int = 1) -> list[float]:
    """Return a series of attempts without the first early one, or without up to `in_a_row` successive ones (CB-16).

    A client cannot always prevent a dial for a call that is assigned to a connection just as it ends. Any other early
    attempt stays in the series and makes a gap that is too short. If the client's own first gap is that short, no
    attempt is early.
    """
    soon, own = AT_ONCE * shortest_initial(evidence), evidence.schedule
    if own.nominal(1, evidence.terms) * (1 + own.low) < soon:
        return list(starts)
    early = [place for place, (one, two) in enumerate(pairwise(starts), 1) if two - one < soon]
    ignored = [place for number, place in enumerate(early[:in_a_row]) if place == early[0] + number]
    return [start for place, start in enumerate(starts) if place not in ignored]


def bounds(evidence: Evidence) -> Iterator[Measure]:
    """Compare each client's number of connections with the most that any conforming schedule makes in the same time.

    One connection more may be early (CB-16). The flood of a client without a schedule is judged by `growth` alone.
    """
    if not evidence.scheduled:
        return
    for visits in by_client(evidence.visits):
        place, shortest = 0, []
        for visit in visits[:-1]:
            place = 1 if visit.settings_sent is not None else place + 1
            shortest.append(evidence.band(place).low)
        lasted = visits[-1].accepted - visits[0].accepted
        most = 2 + sum(total <= lasted for total in accumulate(sorted(shortest)))
        what = f"connections in {lasted:.1f} s, counted against any schedule"
        yield count_connections(len(visits), Range(0, most), what)


def after_service(visits: Sequence[Visit]) -> Sequence[Visit]:
    """Return the connections accepted after the last one with SETTINGS ended, or all if none had SETTINGS."""
    served = [visit for visit in visits if visit.settings_sent is not None]
    if not served:
        return visits
    end = math.inf if served[-1].ended is None else served[-1].ended
    return [visit for visit in visits if visit.accepted > served[-1].accepted and visit.accepted >= end]


def by_client(visits: Sequence[Visit]) -> list[list[Visit]]:
    """Return each client's connections separately."""
    clients = sorted({visit.client for visit in visits})
    return [[visit for visit in visits if visit.client == client] for client in clients]


def series_of(evidence: Evidence) -> list[Series]:
    """Return each client's gaps. Of a flood, only the first gaps are needed, because the rest are the same."""
    most = 3 * evidence.terms.most_starts(evidence.seconds) + 1
    found = [accepted(visits[:most]) for visits in by_client(evidence.visits)]
    return [
        Series(tuple(_gap(start, after, evidence) for start, after in pairwise(starts)), evidence.terms)
        for starts in found
    ]


def _gap(start: float, after: float, evidence: Evidence) -> float:
    """Return a gap; NaN if the judge was late by more than a tenth of the gap at either end."""
    length = after - start
    return math.nan if evidence.late(start, length) > LATE * length else length


def after_loss(evidence: Evidence) -> list[float]:
    """Return the start times of the attempts after the loss of a served connection, without one early attempt."""
    return without_early(accepted(after_service(evidence.visits)), evidence) if evidence.served else []


def resets_at_settings(evidence: Evidence) -> bool:
    """Return whether the gaps after a loss belong to a new series, as far as they were observed."""
    return not any(gap.missed_by for gap in list(measured(after_loss(evidence), evidence))[:2])
