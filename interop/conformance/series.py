"""Clauses about a series of attempts that all fail: how far apart their starts are.

Each of the first clauses checks one number of the schedule that explains all gaps (`fit.py`). The others hold the
client to that schedule, which is its own, so that one wrong number fails only one clause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from interop.conformance.clause import Clause, NotApplicableError, TooLateError
from interop.conformance.evidence import Evidence
from interop.conformance.fit import Fit, Trait
from interop.conformance.gaps import accepted, after_service, attempts, by_client, measured, series_of
from interop.conformance.scenario import Scenario
from interop.conformance.schedule import INTERVAL, Gaps, Schedule
from interop.conformance.terms import Range, Terms
from interop.conformance.verdict import Measure, Unit

__all__ = ["SERIES"]

_ONE_GAP, _TWO_GAPS = 2, 3
"""How many attempts it takes to see one gap, and two."""
_TWO = 2
"""How many clients a herd has."""
_CONVINCING = 8.0
"""How much more likely it must be, as a logarithm, that the gaps include the duration of attempts."""
_NEARLY = 0.999
_PARTS = np.linspace(0.0, 1.5, 61)
_SHOWN = 0.1
"""The least jitter by which clients can be told apart: the width of its range, as a fraction of a gap."""


def _keeps_trying(evidence: Evidence) -> Iterator[Measure]:
    own = evidence.schedule.fewest_starts(evidence.seconds, evidence.terms, evidence.slack)
    yield attempts(evidence.visits, min(own, evidence.terms.fewest_starts(evidence.seconds)))


def _trait(trait: Trait, fewest: int = _TWO_GAPS) -> Callable[[Evidence], Iterable[Measure]]:
    """Return a function that measures one trait of the schedule."""

    def measure(evidence: Evidence) -> Iterator[Measure]:
        yield attempts(evidence.visits, fewest)
        if evidence.own is not None and len(evidence.visits) >= fewest:
            _refuse_late(evidence.own, fewest - 1)
            if trait not in evidence.own.wrong:
                _refuse_unseen(trait, evidence.own, evidence)
            yield from _NUMBERS[trait](evidence.own, evidence.terms)

    return measure


def _refuse_late(own: Fit, fewest: int) -> None:
    """Check that the judge recorded enough gaps on time.

    Raises:
        TooLateError: fewer than `fewest` are left.
    """
    known = sum(not math.isnan(gap) for each in own.series for gap in each.gaps)
    if known < fewest:
        raise TooLateError(f"the judge noted all gaps late but {known}")


def _refuse_unseen(trait: Trait, own: Fit, evidence: Evidence) -> None:
    """Check that these gaps can show the trait.

    Raises:
        NotApplicableError: they cannot.
    """
    lengths = [
        (own.schedule.nominal(n, each.terms), each.terms) for each in own.series for n in range(1, len(each.gaps) + 1)
    ]
    if trait is Trait.CAP and all(length < _NEARLY * own.schedule.cap * told.cap for length, told in lengths):
        raise NotApplicableError(f"MAX_BACKOFF of {evidence.terms.cap:g} s is not reached in {evidence.seconds:g} s")
    if trait in {Trait.JITTER, Trait.COMPOUNDING} and all(length < told.tolerance for length, told in lengths):
        raise NotApplicableError("the gaps are too short to show any jitter")


@dataclass(frozen=True, slots=True)
class _Number:
    """Estimates one number of a schedule: its name, its description and its unit."""

    name: str
    what: str
    unit: Unit = Unit.TIMES
    scale: Callable[[Terms], float] = lambda _: 1.0

    def measure(self, own: Fit, terms: Terms, *, wrong: bool) -> Measure:
        found, scale = own.estimate(self.name), self.scale(terms)
        expected = getattr(Schedule.told(terms), self.name) * scale
        return Measure(
            what=self.what,
            seen=found.value * scale,
            allowed=Range(expected, expected),
            unit=self.unit,
            interval=Range(found.interval.low * scale, found.interval.high * scale),
            convicts=wrong,
        )


def _first(terms: Terms) -> float:
    return min(terms.initial, terms.cap)


_INITIAL = _Number("initial", "INITIAL_BACKOFF", Unit.SECONDS, _first)
_FIRST = _Number("first", "the first gap", Unit.SECONDS, _first)
_MULTIPLIER = _Number("multiplier", "MULTIPLIER")
_ADDED = _Number("added", "INITIAL_BACKOFFs that each gap is longer than the one before")
_CAP = _Number("cap", "MAX_BACKOFF", Unit.SECONDS, lambda terms: terms.cap)
_JITTER = (_Number("low", "the lowest jitter"), _Number("high", "the highest jitter"))


def _initial(own: Fit, terms: Terms) -> Iterator[Measure]:
    number = _INITIAL if own.schedule.first == 1 else _FIRST
    yield number.measure(own, terms, wrong=Trait.INITIAL in own.wrong)


def _growth(own: Fit, terms: Terms) -> Iterator[Measure]:
    if own.schedule.period:
        most = max(len(each.gaps) for each in own.series)
        yield Measure(
            what="gaps before the series restarts",
            seen=own.schedule.period,
            allowed=Range(most, math.inf),
            unit=Unit.ATTEMPTS,
        )
        return
    number = _ADDED if own.schedule.added else _MULTIPLIER
    yield number.measure(own, terms, wrong=Trait.GROWTH in own.wrong)
    for n, gap, band in own.unexplained():
        yield Measure(what=f"gap {n}, which no schedule explains", seen=gap, allowed=band)


def _cap(own: Fit, terms: Terms) -> Iterator[Measure]:
    yield _CAP.measure(own, terms, wrong=Trait.CAP in own.wrong)


def _jitter(own: Fit, terms: Terms) -> Iterator[Measure]:
    yield from (side.measure(own, terms, wrong=Trait.JITTER in own.wrong) for side in _JITTER)


def _compounding(own: Fit, _terms: Terms) -> Iterator[Measure]:
    """Yield the gaps that compounding jitter has moved out of their ranges."""
    if Trait.COMPOUNDING not in own.wrong:
        return
    alone = own.schedule.changed(compounds=False)
    for each in own.series:
        for n, gap in enumerate(each.gaps, 1):
            band = alone.band(alone.nominal(n, each.terms), each.terms)
            yield Measure(what=f"gap {n}", seen=gap, allowed=band)
    yield Measure(what="clients whose jitter enters the next gap", seen=1, allowed=Range(0, 0), unit=Unit.CLIENTS)


_NUMBERS: Final[Mapping[Trait, Callable[[Fit, Terms], Iterator[Measure]]]] = {
    Trait.INITIAL: _initial,
    Trait.GROWTH: _growth,
    Trait.CAP: _cap,
    Trait.JITTER: _jitter,
    Trait.COMPOUNDING: _compounding,
}
"""The numbers that make up each trait."""


def _start_to_start(evidence: Evidence) -> Iterator[Measure]:
    """Estimate how much of an attempt's duration is added to the next gap: none, if gaps count from the start."""
    yield attempts(evidence.visits, _TWO_GAPS)
    if len(evidence.visits) < _TWO_GAPS:
        return
    (series,) = series_of(evidence)
    ends = [(visit.ended or evidence.over) - visit.accepted for visit in evidence.visits]
    known = [
        gap if end < evidence.schedule.nominal(n, evidence.terms) else math.nan  # else the next follows at once
        for n, (gap, end) in enumerate(zip(series.gaps, ends, strict=False), 1)
    ]
    if all(math.isnan(gap) for gap in known):
        raise NotApplicableError("each attempt outlasted its backoff")
    lasted = np.array([end for end, gap in zip(ends, known, strict=False) if not math.isnan(gap)])
    gaps = Gaps([replace(series, gaps=tuple(known))])
    likelihoods = np.array([gaps.likelihoods([evidence.schedule], part * lasted)[0] for part in _PARTS])
    inside = _PARTS[likelihoods >= likelihoods.max() - INTERVAL]
    wrong = bool(likelihoods.max() - likelihoods[0] > _CONVINCING)
    yield Measure(
        what="the part of an attempt's time that is in the gap behind it",
        seen=float(_PARTS[likelihoods.argmax()]) if wrong else 0.0,
        allowed=Range(0.0, 0.0),
        unit=Unit.TIMES,
        interval=Range(float(inside.min()), float(inside.max())),
        convicts=wrong,
    )
    if not wrong:
        yield from measured(accepted(evidence.visits), evidence)


def _every_gap(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, _TWO_GAPS)
    most = evidence.terms.most_starts(evidence.seconds) + 1
    yield from measured(accepted(evidence.visits[:most]), evidence)


def _dispersion(evidence: Evidence) -> Iterator[Measure]:
    """Compare the gaps after the first, which may have no jitter."""
    clients = by_client(evidence.visits)
    yield Measure(what="clients seen", seen=len(clients), allowed=Range(_TWO, _TWO), unit=Unit.CLIENTS)
    if len(clients) != _TWO:
        return
    series = [accepted(after_service(visits)) for visits in clients]
    for number, starts in enumerate(series, 1):
        yield attempts(starts, _TWO_GAPS, f"attempts of client {number} after the loss")
    first, second = ([after - start for start, after in pairwise(starts)][1:] for starts in series)
    wide = evidence.schedule.high - evidence.schedule.low
    if wide * max([0.0, *first]) < evidence.terms.tolerance or wide < _SHOWN:
        raise NotApplicableError("the gaps of one client have no jitter, or are too short to show any")
    apart = max((abs(one - other) for one, other in zip(first, second, strict=False)), default=0.0)
    yield Measure(
        what="the largest difference between their gaps",
        seen=apart,
        allowed=Range(evidence.terms.tolerance, math.inf),
    )


SERIES = (
    Clause(
        name="keeps-trying",
        rule="CB-4",
        scenario=Scenario.STEADY,
        says="After each failed attempt another one follows, however many there were.",
        measure=_keeps_trying,
    ),
    Clause(
        name="first-gap",
        rule="CB-2",
        scenario=Scenario.HANG_UP,
        says="The second attempt starts INITIAL_BACKOFF after the first one; jitter is allowed.",
        measure=_trait(Trait.INITIAL, _ONE_GAP),
    ),
    Clause(
        name="growth",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="Each gap below MAX_BACKOFF is MULTIPLIER times the one before, within the jitter.",
        measure=_trait(Trait.GROWTH),
    ),
    Clause(
        name="cap",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="Gaps stop growing at MAX_BACKOFF; jitter comes on top.",
        measure=_trait(Trait.CAP),
    ),
    Clause(
        name="jitter",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="Gaps are moved at random, by up to a fifth to either side.",
        measure=_trait(Trait.JITTER),
    ),
    Clause(
        name="jitter-does-not-compound",
        rule="CB-5",
        scenario=Scenario.HANG_UP,
        says="The jitter of one gap does not enter the next one.",
        measure=_trait(Trait.COMPOUNDING),
    ),
    Clause(
        name="start-to-start",
        rule="CB-4",
        scenario=Scenario.SLOW_FAILURE,
        says="Gaps are counted from start to start: the time that an attempt took to fail adds nothing.",
        measure=_start_to_start,
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
