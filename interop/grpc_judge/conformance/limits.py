"""Clauses about silent and slow servers: how long an attempt lasts, and what follows it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from grpc_judge.conformance.clause import NotApplicableError, clause
from grpc_judge.conformance.evidence import Evidence
from grpc_judge.conformance.gaps import attempts, bounds, count_calls, count_connections, span
from grpc_judge.conformance.scenario import Scenario
from grpc_judge.conformance.terms import CLOSE_WITHIN, Range
from grpc_judge.conformance.verdict import Measure
from grpc_judge.timeline import Visit

_TWO = 2
_SHORT = 0.8
"""A limit shorter than this, in units of MIN_CONNECT_TIMEOUT, may end before late SETTINGS arrive."""


def _limits(evidence: Evidence, behaviour: str) -> Iterator[Measure]:
    """Compare each attempt's length with the limit. One that still runs at the end counts only if too long."""
    terms = evidence.terms
    yield attempts(evidence.visits, 1)
    if evidence.visits and all(visit.behaviour != behaviour for visit in evidence.visits):
        raise NotApplicableError("no attempt met the server behaviour that this clause tests")
    for number, (place, visit) in enumerate(_placed(evidence.visits), 1):
        if visit.behaviour != behaviour:
            continue
        backoff = _backoff(place, evidence)
        allowed = Range(
            max(terms.min_connect_timeout, backoff.low) - terms.tolerance,
            max(terms.min_connect_timeout, backoff.high) + CLOSE_WITHIN + terms.tolerance,
        )
        lasted = span(f"attempt {number} lasted", visit.accepted, evidence.end_of(visit), allowed)
        if evidence.end_of(visit) < evidence.over or lasted.seen > allowed.high:
            yield lasted


def _placed(visits: Iterable[Visit]) -> Iterator[tuple[int, Visit]]:
    """Yield each attempt with its position in its series. An attempt that receives SETTINGS ends a series."""
    place = 0
    for visit in visits:
        place += 1
        yield place, visit
        if visit.settings_sent is not None:
            place = 0


def _backoff(place: int, evidence: Evidence) -> Range:
    """Return the allowed gap after an attempt at this position in its series, without tolerance."""
    return replace(evidence, terms=replace(evidence.terms, tolerance=0.0)).band(place)


def _refuse_short_limit(evidence: Evidence) -> None:
    """Check that the client's own limit leaves time for late SETTINGS. The clause `limit` judges one that is too short.

    Raises:
        NotApplicableError: the limit is too short.
    """
    if evidence.own_limit < _SHORT:
        raise NotApplicableError(f"its attempts are limited to {evidence.own_limit:.2f} times MIN_CONNECT_TIMEOUT")


@clause("CB-3", Scenario.SILENT)
def limit(evidence: Evidence) -> Iterator[Measure]:
    """An attempt that receives no SETTINGS is abandoned, and its socket closed, at its limit and not before."""
    yield from _limits(evidence, "silent")


@clause("CB-1", Scenario.SILENT)
def one_at_a_time(evidence: Evidence) -> Iterator[Measure]:
    """No attempt starts while another one is in flight.

    Measure the overlap of each attempt with the next, up to its limit; `limit` judges sockets that close later.
    """
    yield attempts(evidence.visits, 1)
    if len(evidence.visits) == 1:
        raise NotApplicableError("there was only one attempt")
    for number, ((place, visit), (_, after)) in enumerate(pairwise(_placed(evidence.visits)), 1):
        limit = visit.accepted + max(evidence.terms.min_connect_timeout, _backoff(place, evidence).low)
        yield Measure(
            what=f"attempt {number} overlapped with the next one for",
            seen=max(0.0, min(evidence.end_of(visit), limit) - after.accepted),
            allowed=Range(0.0, evidence.terms.tolerance),
            since=after.accepted,
        )


@clause("CB-4", Scenario.SILENT)
def no_pause_after_the_limit(evidence: Evidence) -> Iterator[Measure]:
    """An attempt that outlasts its backoff is followed by the next one at once.

    Measure the time from the end of an attempt, or of its backoff if that is later, to the next attempt.
    """
    yield attempts(evidence.visits, 1)
    ended = [visit for visit in evidence.visits if evidence.end_of(visit) < evidence.over]
    if evidence.visits and (not ended or len(evidence.visits) < _TWO):
        raise NotApplicableError("no attempt was abandoned")
    for number, ((place, visit), (_, after)) in enumerate(pairwise(_placed(evidence.visits)), 1):
        end = max(evidence.end_of(visit), visit.accepted + _backoff(place, evidence).high)
        yield Measure(
            what=f"from the end of attempt {number} to the next one",
            seen=max(0.0, after.accepted - end),
            allowed=Range(0.0, evidence.terms.tolerance),
            since=end,
        )


@clause("CB-3", Scenario.SLOW_SETTINGS, needs=(Scenario.SILENT,))
def waits_for_settings(evidence: Evidence) -> Iterator[Measure]:
    """The client waits for SETTINGS that come late but within the limit."""
    _refuse_short_limit(evidence)
    yield count_connections(len(evidence.visits), Range(1, math.inf), "connections seen")
    given_up = [visit for visit in evidence.visits if visit.settings_sent is None and visit.ended is not None]
    yield count_connections(len(given_up), Range(0, 0), "connections abandoned before SETTINGS")
    answered = sum(request.outcome == "ok" for visit in evidence.visits for request in visit.requests)
    yield count_calls("calls answered", answered, Range(1, math.inf))


@clause("CB-3", Scenario.SILENT)
def trickle_limit(evidence: Evidence) -> Iterator[Measure]:
    """One limit covers the whole attempt, so SETTINGS that arrive byte by byte do not prolong it.

    Check that trickling bytes do not prolong an attempt beyond a silent one; `limit` judges silent attempts.
    """
    silent = [
        evidence.end_of(visit) - visit.accepted
        for visit in evidence.visits
        if visit.behaviour == "silent" and evidence.end_of(visit) < evidence.over
    ]
    for each in _limits(evidence, "trickle"):
        if each.since is None:
            yield each
            continue
        longest = max([each.allowed.high, *(lasted + CLOSE_WITHIN for lasted in silent)])
        yield replace(each, allowed=Range(0.0, longest))


@clause("CB-3", Scenario.TLS_SILENT)
def tls_limit(evidence: Evidence) -> Iterator[Measure]:
    """The limit also applies to a TLS handshake that the server does not answer."""
    yield from _limits(evidence, "silent")
    yield from bounds(evidence)


@clause("CB-6", Scenario.SLOW_SETTINGS, needs=(Scenario.SILENT,))
def acknowledges_settings(evidence: Evidence) -> Iterator[Measure]:
    """The client acknowledges the server's SETTINGS, as HTTP/2 requires."""
    _refuse_short_limit(evidence)
    yield count_connections(len(evidence.served), Range(1, math.inf), "connections served")
    silent = [visit for visit in evidence.served if visit.settings_acknowledged is None]
    yield count_connections(len(silent), Range(0, 0), "connections whose SETTINGS were not acknowledged")


@clause("CB-1", Scenario.SLOW_SETTINGS)
def one_connection(evidence: Evidence) -> Iterator[Measure]:
    """A client opens only one connection to a server that works.

    Count connections that are made while an earlier one works.
    """
    yield count_connections(len(evidence.visits), Range(1, math.inf), "connections seen")
    beside = [
        after
        for visit, after in pairwise(evidence.visits)
        if visit.settings_sent is not None and after.accepted < evidence.end_of(visit)
    ]
    yield count_connections(len(beside), Range(0, 0), "connections made while another one worked")
    yield from bounds(evidence)
