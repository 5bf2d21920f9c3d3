"""Clauses about a peer that is silent or late: how long an attempt lasts, and what follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from interop.conformance.clause import Clause, NotApplicableError
from interop.conformance.evidence import Evidence
from interop.conformance.gaps import attempts, gaps
from interop.conformance.scenario import Scenario
from interop.conformance.terms import CLOSE_WITHIN, Range
from interop.conformance.verdict import Measure, Unit
from interop.timeline import Visit

__all__ = ["LIMITS"]

_TWO = 2


def _limit(evidence: Evidence) -> Iterator[Measure]:
    """Hold each attempt to the limit; what was cut short by the end of the scenario counts if it was too long."""
    terms = evidence.terms
    yield attempts(evidence.visits, 1)
    for number, visit in enumerate(evidence.visits, 1):
        allowed = Range(
            terms.min_connect_timeout - terms.tolerance, terms.outlasting(number) + CLOSE_WITHIN + terms.tolerance
        )
        lasted = _ended(visit, evidence) - visit.accepted
        if _ended(visit, evidence) < evidence.over or lasted > allowed.high:
            yield Measure(what=f"attempt {number} lasted", seen=lasted, allowed=allowed, since=visit.accepted)


def _ended(visit: Visit, evidence: Evidence) -> float:
    return evidence.timeline.taken if visit.ended is None else visit.ended


def _one_at_a_time(evidence: Evidence) -> Iterator[Measure]:
    """Allow the socket of an attempt that was given up a moment longer (CB-3)."""
    yield attempts(evidence.visits, 1)
    if len(evidence.visits) == 1:
        raise NotApplicableError("there was one attempt only")
    for number, (visit, after) in enumerate(pairwise(evidence.visits), 1):
        yield Measure(
            what=f"attempt {number} went on beside the next one for",
            seen=max(0.0, _ended(visit, evidence) - after.accepted),
            allowed=Range(0.0, CLOSE_WITHIN + evidence.terms.tolerance),
            since=after.accepted,
        )


def _no_pause(evidence: Evidence) -> Iterator[Measure]:
    terms = evidence.terms
    yield attempts(evidence.visits, terms.fewest_starts(evidence.seconds, lasting=terms.min_connect_timeout))
    for gap in gaps(evidence.visits, terms):
        yield gap.measure(Range(0.0, terms.outlasting(gap.number) + terms.tolerance))


def _waits_for_settings(evidence: Evidence) -> Iterator[Measure]:
    seen = len(evidence.visits)
    yield Measure(what="connections seen", seen=seen, allowed=Range(1, 1), unit=Unit.CONNECTIONS)
    yield Measure(what="calls answered", seen=evidence.calls.ok, allowed=Range(1, math.inf), unit=Unit.CALLS)


LIMITS = (
    Clause(
        name="limit",
        rule="CB-3",
        scenario=Scenario.SILENT,
        says="An attempt without SETTINGS is given up, and its socket closed, when its limit passes and not before.",
        measure=_limit,
    ),
    Clause(
        name="one-at-a-time",
        rule="CB-1",
        scenario=Scenario.SILENT,
        says="No attempt starts while another one is in flight.",
        measure=_one_at_a_time,
    ),
    Clause(
        name="no-pause-after-the-limit",
        rule="CB-4",
        scenario=Scenario.SILENT,
        says="An attempt that outlasted its backoff is followed by the next one at once.",
        measure=_no_pause,
    ),
    Clause(
        name="waits-for-settings",
        rule="CB-3",
        scenario=Scenario.SLOW_SETTINGS,
        says="A server whose SETTINGS come late, but within the limit, is waited for.",
        measure=_waits_for_settings,
    ),
)
"""In the order in which they are reported."""
