"""Clauses about a server that is silent or slow: how long an attempt lasts, and what follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from interop.conformance.clause import Clause, NotApplicableError
from interop.conformance.evidence import Evidence
from interop.conformance.gaps import attempts
from interop.conformance.scenario import Scenario
from interop.conformance.terms import CLOSE_WITHIN, Range
from interop.conformance.verdict import Measure, Unit
from interop.timeline import Visit

__all__ = ["LIMITS"]

_TWO = 2


def _limits(evidence: Evidence, behaviour: str) -> Iterator[Measure]:
    """Compare each attempt with the limit; an attempt cut short by the end of the scenario counts only if too long."""
    terms = evidence.terms
    yield attempts(evidence.visits, 1)
    if evidence.visits and all(visit.behaviour != behaviour for visit in evidence.visits):
        raise NotApplicableError("it did not come to such an attempt")
    for number, visit in enumerate(evidence.visits, 1):
        if visit.behaviour != behaviour:
            continue
        backoff = _backoff(number, evidence)
        allowed = Range(
            max(terms.min_connect_timeout, backoff.low) - terms.tolerance,
            max(terms.min_connect_timeout, backoff.high) + CLOSE_WITHIN + terms.tolerance,
        )
        lasted = _ended(visit, evidence) - visit.accepted
        if _ended(visit, evidence) < evidence.over or lasted > allowed.high:
            yield Measure(what=f"attempt {number} lasted", seen=lasted, allowed=allowed, since=visit.accepted)


def _backoff(number: int, evidence: Evidence) -> Range:
    """Return the allowed gap after an attempt, without tolerance."""
    return replace(evidence, terms=replace(evidence.terms, tolerance=0.0)).band(number)


def _ended(visit: Visit, evidence: Evidence) -> float:
    return evidence.timeline.taken if visit.ended is None else visit.ended


def _limit(evidence: Evidence) -> Iterator[Measure]:
    yield from _limits(evidence, "silent")


def _tls_limit(evidence: Evidence) -> Iterator[Measure]:
    yield from _limits(evidence, "silent")


def _trickle_limit(evidence: Evidence) -> Iterator[Measure]:
    """Check whether received bytes make an attempt last longer than a silent one, which `limit` judges."""
    silent = [
        _ended(visit, evidence) - visit.accepted
        for visit in evidence.visits
        if visit.behaviour == "silent" and _ended(visit, evidence) < evidence.over
    ]
    for each in _limits(evidence, "trickle"):
        if each.since is None:
            yield each
            continue
        longest = max([each.allowed.high, *(lasted + CLOSE_WITHIN for lasted in silent)])
        yield replace(each, allowed=Range(0.0, longest))


def _one_at_a_time(evidence: Evidence) -> Iterator[Measure]:
    """Measure how long an attempt within its limit overlapped with the next; `limit` judges sockets left open later."""
    yield attempts(evidence.visits, 1)
    if len(evidence.visits) == 1:
        raise NotApplicableError("there was one attempt only")
    for number, (visit, after) in enumerate(pairwise(evidence.visits), 1):
        limit = visit.accepted + max(evidence.terms.min_connect_timeout, _backoff(number, evidence).low)
        yield Measure(
            what=f"attempt {number} went on beside the next one for",
            seen=max(0.0, min(_ended(visit, evidence), limit) - after.accepted),
            allowed=Range(0.0, evidence.terms.tolerance),
            since=after.accepted,
        )


def _no_pause(evidence: Evidence) -> Iterator[Measure]:
    """Measure from the end of an attempt or the end of its backoff, whichever is later."""
    yield attempts(evidence.visits, 1)
    ended = [visit for visit in evidence.visits if _ended(visit, evidence) < evidence.over]
    if evidence.visits and (not ended or len(evidence.visits) < _TWO):
        raise NotApplicableError("no attempt was given up")
    for number, (visit, after) in enumerate(pairwise(evidence.visits), 1):
        end = max(_ended(visit, evidence), visit.accepted + _backoff(number, evidence).high)
        yield Measure(
            what=f"from the end of attempt {number} to the next one",
            seen=max(0.0, after.accepted - end),
            allowed=Range(0.0, evidence.terms.tolerance),
            since=end,
        )


def _waits_for_settings(evidence: Evidence) -> Iterator[Measure]:
    yield Measure(what="connections seen", seen=len(evidence.visits), allowed=Range(1, math.inf), unit=Unit.CONNECTIONS)
    given_up = [visit for visit in evidence.visits if visit.settings_sent is None and visit.ended is not None]
    yield Measure(
        what="connections given up before SETTINGS", seen=len(given_up), allowed=Range(0, 0), unit=Unit.CONNECTIONS
    )
    answered = sum(request.outcome == "ok" for visit in evidence.visits for request in visit.requests)
    yield Measure(what="calls answered", seen=answered, allowed=Range(1, math.inf), unit=Unit.CALLS)


def _acknowledges(evidence: Evidence) -> Iterator[Measure]:
    served = [visit for visit in evidence.visits if visit.settings_sent is not None]
    yield Measure(what="connections served", seen=len(served), allowed=Range(1, math.inf), unit=Unit.CONNECTIONS)
    silent = [visit for visit in served if visit.settings_acknowledged is None]
    yield Measure(
        what="connections without acknowledgement", seen=len(silent), allowed=Range(0, 0), unit=Unit.CONNECTIONS
    )


def _one_connection(evidence: Evidence) -> Iterator[Measure]:
    """Count connections made while another one works."""
    yield Measure(what="connections seen", seen=len(evidence.visits), allowed=Range(1, math.inf), unit=Unit.CONNECTIONS)
    beside = [
        after
        for visit, after in pairwise(evidence.visits)
        if visit.settings_sent is not None and after.accepted < _ended(visit, evidence)
    ]
    yield Measure(
        what="connections beside one that works", seen=len(beside), allowed=Range(0, 0), unit=Unit.CONNECTIONS
    )


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
    Clause(
        name="trickle-limit",
        rule="CB-3",
        scenario=Scenario.SILENT,
        says="SETTINGS that come byte by byte do not prolong an attempt: its limit is one, over all that it does.",
        measure=_trickle_limit,
    ),
    Clause(
        name="tls-limit",
        rule="CB-3",
        scenario=Scenario.TLS_SILENT,
        says="The limit holds for a TLS handshake that the server does not answer.",
        measure=_tls_limit,
    ),
    Clause(
        name="acknowledges-settings",
        rule="CB-6",
        scenario=Scenario.SLOW_SETTINGS,
        says="The server's SETTINGS are acknowledged, as HTTP/2 demands.",
        measure=_acknowledges,
    ),
    Clause(
        name="one-connection",
        rule="CB-1",
        scenario=Scenario.SLOW_SETTINGS,
        says="One connection is all that a client has to a server that works.",
        measure=_one_connection,
    ),
)
"""In the order in which they are reported."""
