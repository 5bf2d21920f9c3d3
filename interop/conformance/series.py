"""Clauses about a series of attempts that all fail: how far apart their starts are."""

from __future__ import annotations

import math
from collections.abc import Iterator

from interop.conformance.clause import Clause, NotApplicableError
from interop.conformance.evidence import Evidence
from interop.conformance.gaps import Gap, attempts, gaps, series_by_client
from interop.conformance.scenario import Scenario
from interop.conformance.terms import Range
from interop.conformance.verdict import Measure, Unit

__all__ = ["SERIES"]

_ONE_GAP, _TWO_GAPS = 2, 3
"""How many attempts it takes to see so many gaps."""
_TWO = 2
"""How many clients a herd has."""


def _series(evidence: Evidence) -> list[Gap]:
    """Return the gaps; of a flood as many as there could have been, since the others would say the same."""
    terms = evidence.terms
    return gaps(evidence.visits[: terms.most_starts(evidence.seconds) + 1], terms)


def _keeps_trying(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, evidence.terms.fewest_starts(evidence.seconds))


def _first_gap(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, _ONE_GAP)
    yield from (gap.measure() for gap in _series(evidence)[:1])


def _growth(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, _TWO_GAPS)
    yield from (gap.measure() for gap in _series(evidence)[1:] if not evidence.terms.capped(gap.number))


def _cap(evidence: Evidence) -> Iterator[Measure]:
    terms = evidence.terms
    first = terms.first_capped
    if terms.fewest_starts(evidence.seconds) <= first:
        raise NotApplicableError(f"MAX_BACKOFF of {terms.cap:g} s is not reached in {evidence.seconds:g} s")
    yield attempts(evidence.visits, first + 1)
    yield from (gap.measure() for gap in _series(evidence) if gap.number >= first)


def _jitter(evidence: Evidence) -> Iterator[Measure]:
    """Look at gaps that are where they belong; the first one may be without jitter."""
    yield attempts(evidence.visits, _TWO_GAPS)
    right = [gap for gap in _series(evidence)[1:] if gap.fits]
    departure = max((gap.departure for gap in right), default=0.0)
    yield Measure(
        what="the largest departure of a gap from its length without jitter",
        seen=departure,
        allowed=_more_than_noise(evidence),
    )


def _compounding(evidence: Evidence) -> Iterator[Measure]:
    """Look at the gaps that their number or the gap before explains; the others are the business of other clauses."""
    explained = [gap for gap in _series(evidence)[1:] if gap.explained]
    if len(evidence.visits) >= _TWO_GAPS and not explained:
        raise NotApplicableError("no gap after the first one is anywhere near its length")
    yield attempts(evidence.visits, _TWO_GAPS)
    yield from (gap.measure(gap.band) for gap in explained)


def _every_gap(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, evidence.terms.fewest_starts(evidence.seconds))
    yield from (gap.measure() for gap in _series(evidence))


def _dispersion(evidence: Evidence) -> Iterator[Measure]:
    """Compare gaps that are where they belong, compounding or not; the first one may be without jitter."""
    clients = series_by_client(evidence.visits)
    yield Measure(what="clients seen", seen=len(clients), allowed=Range(_TWO, _TWO), unit=Unit.CLIENTS)
    if len(clients) != _TWO:
        return
    for number, series in enumerate(clients, 1):
        yield attempts(series, _TWO_GAPS, f"attempts of client {number} after the loss")
    first, second = (gaps(series, evidence.terms)[1:] for series in clients)
    pairs = [pair for pair in zip(first, second, strict=False) if all(gap.explained for gap in pair)]
    apart = max((abs(one.seconds - other.seconds) for one, other in pairs), default=0.0)
    yield Measure(what="the largest difference between their gaps", seen=apart, allowed=_more_than_noise(evidence))


def _more_than_noise(evidence: Evidence) -> Range:
    return Range(evidence.terms.tolerance, math.inf)


SERIES = (
    Clause(
        name="keeps-trying",
        rule="CB-4",
        scenario=Scenario.HANG_UP,
        says="After each failed attempt another one follows, as many as the longest gaps allowed leave room for.",
        measure=_keeps_trying,
    ),
    Clause(
        name="first-gap",
        rule="CB-2",
        scenario=Scenario.HANG_UP,
        says="The second attempt starts INITIAL_BACKOFF after the first one; jitter is allowed.",
        measure=_first_gap,
    ),
    Clause(
        name="growth",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="Each gap below MAX_BACKOFF is MULTIPLIER times the one before, within the jitter.",
        measure=_growth,
    ),
    Clause(
        name="cap",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="Gaps stop growing at MAX_BACKOFF; jitter comes on top.",
        measure=_cap,
    ),
    Clause(
        name="jitter",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="Gaps after the first one are moved at random.",
        measure=_jitter,
    ),
    Clause(
        name="jitter-does-not-compound",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="The jitter of one gap does not enter the next one.",
        measure=_compounding,
    ),
    Clause(
        name="start-to-start",
        rule="CB-4",
        scenario=Scenario.SLOW_FAILURE,
        says="Gaps are counted from start to start: the time that an attempt took to fail adds nothing.",
        measure=_every_gap,
    ),
    Clause(
        name="accept-does-not-reset",
        rule="CB-6",
        scenario=Scenario.HANDSHAKE,
        says="An accepted connection and a finished TLS handshake do not reset the backoff.",
        measure=_every_gap,
    ),
    Clause(
        name="clients-disperse",
        rule="CB-11",
        scenario=Scenario.HERD,
        says="Two clients that lose the same server at the same moment do not dial in step.",
        measure=_dispersion,
    ),
)
"""In the order in which they are reported."""
