"""Clauses about what follows a connection that was established: on its loss, on its return, and for the calls on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from interop.conformance.clause import Clause
from interop.conformance.evidence import Evidence
from interop.conformance.gaps import AT_ONCE, after_service, attempts, gaps, without_one_early
from interop.conformance.scenario import Scenario
from interop.conformance.terms import Range
from interop.conformance.verdict import Measure, Unit

__all__ = ["CONNECTIONS"]

_TWO_GAPS = 3
_SLOWEST = 4
"""A client that is flapped at may wait so many INITIAL_BACKOFFs between connections, and still counts as trying."""


def _at_once(evidence: Evidence) -> Range:
    return Range(-math.inf, AT_ONCE * evidence.terms.initial)


def _first_attempt(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, 1)
    for visit in evidence.visits[:1]:
        waited = visit.accepted - evidence.wanted
        yield Measure(
            what="from the first call to the first attempt",
            seen=waited,
            allowed=_at_once(evidence),
            since=evidence.wanted,
        )


def _resets(evidence: Evidence) -> Iterator[Measure]:
    """Leave out one connection that came early after the loss, as `_no_flood` does."""
    served = [visit for visit in evidence.visits if visit.settings_sent is not None]
    yield _connections(len(served), Range(1, math.inf), "connections that were served")
    series = without_one_early(after_service(evidence.visits), evidence.terms) if served else ()
    yield attempts(series, _TWO_GAPS, "attempts seen after the loss")
    yield from (gap.measure() for gap in gaps(series, evidence.terms)[:2])


def _no_flood(evidence: Evidence) -> Iterator[Measure]:
    """Count one connection for each INITIAL_BACKOFF, and one on top.

    So one may come early if the next one makes up for it: a client whose call enters a connection at the moment of its
    end cannot always help it. What comes early again and again is a flood.
    """
    terms, visits = evidence.terms, evidence.visits
    each = (1 - terms.jitter) * terms.initial
    most = math.floor((evidence.seconds + terms.tolerance) / each) + 2
    fewest = math.floor(evidence.seconds / (_SLOWEST * terms.initial))
    yield _connections(len(visits), Range(max(2, fewest), most), f"connections in {evidence.lasted:.1f} s")
    due = -math.inf  # when the next connection may come
    for number, (visit, after) in enumerate(pairwise(visits[: most + 1]), 1):
        if visit.accepted >= due - terms.tolerance:  # one that came too early is no reason for the next to be later
            due = max(due, visit.accepted - each) + each
        yield Measure(
            what=f"gap {number}",
            seen=after.accepted - visit.accepted,
            allowed=Range(max(0.0, due - visit.accepted - terms.tolerance), math.inf),
            since=visit.accepted,
        )


def _stable_after(evidence: Evidence) -> Iterator[Measure]:
    """Leave out one connection that came early; it is the one on top of `_no_flood`."""
    terms = evidence.terms
    series = without_one_early(evidence.visits, terms)
    yield attempts(series, terms.fewest_starts(evidence.seconds))
    yield from (gap.measure() for gap in gaps(series, terms))


def _recovers(evidence: Evidence) -> Iterator[Measure]:
    """Refused connections are not seen, so the gap that the return falls into is the longest one possible."""
    gone = evidence.timeline.refusing[0] if evidence.timeline.refusing else None
    if gone is None or gone.end is None:  # it did not come to an outage: there was no connection
        yield _connections(len(evidence.visits), Range(2, math.inf))
        return
    back = [visit for visit in evidence.visits if visit.accepted >= gone.end]
    yield _connections(len(back), Range(1, math.inf), "connections after the return")
    for visit in back[:1]:
        longest = evidence.terms.longest_gap_after(gone.end - gone.begin).high
        waited = visit.accepted - gone.end
        yield Measure(
            what="from the return to the next attempt", seen=waited, allowed=Range(0.0, longest), since=gone.end
        )
    answered = sum(request.outcome == "ok" for visit in back for request in visit.requests)
    yield _calls("calls answered after the return", answered, Range(1, math.inf))


def _replaced(evidence: Evidence) -> Iterator[Measure]:
    yield _connections(len(evidence.visits), Range(2, math.inf))
    for visit, after in pairwise(evidence.visits):
        if visit.ended is not None:
            yield Measure(
                what=f"from the end of connection {visit.number} to the next attempt",
                seen=after.accepted - visit.ended,
                allowed=_at_once(evidence),
                since=visit.ended,
            )


def _loses_no_call(evidence: Evidence) -> Iterator[Measure]:
    yield _connections(len(evidence.visits), Range(2, math.inf))
    yield _calls("calls answered", evidence.calls.ok, Range(1, math.inf))
    yield _calls("calls lost", evidence.calls.lost, Range(0, 0))


def _connections(seen: int, allowed: Range, what: str = "connections") -> Measure:
    return Measure(what=what, seen=seen, allowed=allowed, unit=Unit.CONNECTIONS)


def _calls(what: str, seen: int, allowed: Range) -> Measure:
    return Measure(what=what, seen=seen, allowed=allowed, unit=Unit.CALLS)


CONNECTIONS = (
    Clause(
        name="settings-reset",
        rule="CB-6",
        scenario=Scenario.RESET,
        says="The server's SETTINGS frame resets the backoff: after the loss of a connection it begins anew.",
        measure=_resets,
    ),
    Clause(
        name="no-flood",
        rule="CB-7",
        scenario=Scenario.FLAPPING,
        says="A peer that hangs up behind its SETTINGS is dialled once per INITIAL_BACKOFF, whatever calls are made.",
        measure=_no_flood,
    ),
    Clause(
        name="stable-after",
        rule="CB-8",
        scenario=Scenario.UNSTABLE,
        says="With the option, a connection that is lost at once counts as a failed attempt, and the backoff grows.",
        measure=_stable_after,
    ),
    Clause(
        name="recovery",
        rule="CB-4",
        scenario=Scenario.OUTAGE,
        says="A server that is back is dialled at the next planned start, and calls are answered.",
        measure=_recovers,
    ),
    Clause(
        name="first-attempt",
        rule="CB-1",
        scenario=Scenario.RESTART,
        says="The first attempt starts as soon as a call wants a connection.",
        measure=_first_attempt,
    ),
    Clause(
        name="lost-is-replaced",
        rule="CB-7",
        scenario=Scenario.RESTART,
        says="A connection that lived longer than INITIAL_BACKOFF is replaced at once, while calls are made.",
        measure=_replaced,
    ),
    Clause(
        name="rolling-restart",
        rule="CH-6",
        scenario=Scenario.RESTART,
        says="A server that is replaced behind a graceful GOAWAY costs no call.",
        measure=_loses_no_call,
    ),
)
"""In the order in which they are reported."""
