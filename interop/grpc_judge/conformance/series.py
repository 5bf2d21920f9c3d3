"""Clauses about a series of attempts that all fail: how far apart they start.

Most clauses check one parameter of the schedule that was fitted to all gaps (`fit.py`). The others compare gaps with
that fitted schedule and not with the settings, so one wrong parameter fails only one clause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from grpc_judge.conformance.clause import NotApplicableError, TooLateError, clause
from grpc_judge.conformance.evidence import Evidence
from grpc_judge.conformance.fit import LATEST, Fit, Trait
from grpc_judge.conformance.gaps import (
    NO_SCHEDULE,
    accepted,
    after_service,
    attempts,
    bounds,
    by_client,
    measured,
    series_of,
)
from grpc_judge.conformance.scenario import Scenario
from grpc_judge.conformance.schedule import INTERVAL, Gaps, Schedule, Series
from grpc_judge.conformance.terms import Range, Terms
from grpc_judge.conformance.verdict import Measure, Unit

_ONE_GAP, _TWO_GAPS = 2, 3
"""How many attempts it takes to see one gap, and two gaps."""
_TWO = 2
"""How many clients a herd has."""
_CONVINCING = 8.0
"""The gain in log-likelihood required to conclude that gaps include the duration of attempts."""
_NEARLY = 0.999
_PARTS = np.linspace(0.0, 1.5, 61)
_SHOWN = 0.1
"""The narrowest range of jitter that can tell clients apart, as a fraction of a gap."""


def _trait(
    evidence: Evidence, trait: Trait, numbers: Callable[[Fit, Terms], Iterable[Measure]], fewest: int = _TWO_GAPS
) -> Iterator[Measure]:
    """Measure the numbers that make up one trait of the schedule."""
    yield attempts(evidence.visits, fewest)
    if evidence.own is not None and len(evidence.visits) >= fewest:
        _refuse_late(evidence.own, fewest - 1)
        if not evidence.scheduled and trait not in {Trait.GROWTH, *(evidence.own.wrong & {Trait.INITIAL})}:
            raise NotApplicableError(NO_SCHEDULE)
        if trait not in evidence.own.wrong:
            _refuse_unseen(trait, evidence.own, evidence)
        yield from numbers(evidence.own, evidence.terms)


def _refuse_late(own: Fit, fewest: int) -> None:
    """Check that the judge recorded enough gaps on time.

    Raises:
        TooLateError: fewer than `fewest` gaps are left.
    """
    known = sum(len(each.known) for each in own.series)
    if known < fewest:
        raise TooLateError(f"the judge recorded all but {known} gaps late")


def _refuse_unseen(trait: Trait, own: Fit, evidence: Evidence) -> None:
    """Check that these gaps are able to show the trait.

    Raises:
        NotApplicableError: the gaps cannot show it.
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
    """A parameter of the schedule to estimate: its name, its description and its unit."""

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
_ADDED = _Number("added", "the amount added to each gap, in units of INITIAL_BACKOFF")
_CAP = _Number("cap", "MAX_BACKOFF", Unit.SECONDS, lambda terms: terms.cap)
_JITTER = (_Number("low", "the lowest jitter"), _Number("high", "the highest jitter"))


def _initial(own: Fit, terms: Terms) -> Iterator[Measure]:
    if own.schedule.late > LATEST:
        yield Measure(what="each gap is longer by", seen=own.schedule.late, allowed=Range(0.0, LATEST))
        return
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
    if own.schedule.fibonacci:
        yield Measure(what="clients whose gaps are Fibonacci numbers", seen=1, allowed=Range(0, 0), unit=Unit.CLIENTS)
        return
    if own.scheduled:
        number = _ADDED if own.schedule.added else _MULTIPLIER
        yield number.measure(own, terms, wrong=Trait.GROWTH in own.wrong)
    why = "which does not fit the others" if own.explained else "and no schedule explains the gaps"
    for n, gap, band in own.unexplained():
        yield Measure(what=f"gap {n}, {why}", seen=gap, allowed=band)
    yield from (_bound(each, own) for each in own.series if each.known)


def _bound(series: Series, own: Fit) -> Measure:
    """Compare the number of gaps with the most that any conforming schedule has in the same time, or a wrong one."""
    lasted = sum(series.known)
    most = series.terms.most_starts(lasted)
    if own.scheduled and own.wrong:
        most = max(most, own.most_starts(series))
    return _count(len(series.known) + 1, lasted, most)


def _count(seen: int, lasted: float, most: int) -> Measure:
    return Measure(what=f"attempts in {lasted:.1f} s", seen=seen, allowed=Range(0, most), unit=Unit.ATTEMPTS)


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
            if math.isnan(gap):
                continue
            band = alone.band(alone.nominal(n, each.terms), each.terms)
            yield Measure(what=f"gap {n}", seen=gap, allowed=band)
    yield Measure(
        what="clients whose jitter carries over into the next gap", seen=1, allowed=Range(0, 0), unit=Unit.CLIENTS
    )


def _every_gap(evidence: Evidence) -> Iterator[Measure]:
    yield attempts(evidence.visits, _TWO_GAPS)
    visits = evidence.visits[: evidence.terms.most_starts(evidence.seconds) + 1]
    for visit, gap in zip(visits, measured(accepted(visits), evidence), strict=False):
        lasted = (evidence.over if visit.ended is None else visit.ended) - visit.accepted
        # An attempt that outlasts its backoff is followed by the next at once. A slow client's TLS handshake may take
        # that long.
        yield replace(gap, allowed=Range(gap.allowed.low, max(gap.allowed.high, lasted + evidence.terms.tolerance)))


@clause("CB-4", Scenario.STEADY)
def keeps_trying(evidence: Evidence) -> Iterator[Measure]:
    """Every failed attempt is followed by another, however many have failed."""
    own = evidence.schedule.fewest_starts(evidence.seconds, evidence.terms, evidence.slack)
    yield attempts(evidence.visits, min(own, evidence.terms.fewest_starts(evidence.seconds)))


@clause("CB-2", Scenario.HANG_UP)
def first_gap(evidence: Evidence) -> Iterable[Measure]:
    """The second attempt starts INITIAL_BACKOFF after the first, plus or minus jitter."""
    return _trait(evidence, Trait.INITIAL, _initial, _ONE_GAP)


@clause("CB-5", Scenario.HANG_UP)
def growth(evidence: Evidence) -> Iterator[Measure]:
    """Each gap below MAX_BACKOFF is MULTIPLIER times the previous one, apart from jitter.

    Of a client without a schedule, count the attempts.
    """
    if not evidence.scheduled:
        for visits in by_client(evidence.visits):
            lasted = visits[-1].accepted - visits[0].accepted
            yield _count(len(visits), lasted, evidence.terms.most_starts(lasted))
    yield from _trait(evidence, Trait.GROWTH, _growth)


@clause("CB-5", Scenario.HANG_UP)
def cap(evidence: Evidence) -> Iterable[Measure]:
    """Gaps stop growing at MAX_BACKOFF, apart from jitter."""
    return _trait(evidence, Trait.CAP, _cap)


@clause("CB-5", Scenario.HANG_UP)
def jitter(evidence: Evidence) -> Iterable[Measure]:
    """Gaps vary at random by up to a fifth in either direction."""
    return _trait(evidence, Trait.JITTER, _jitter)


@clause("CB-5", Scenario.HANG_UP)
def jitter_does_not_compound(evidence: Evidence) -> Iterable[Measure]:
    """The jitter of one gap does not carry over into the next."""
    return _trait(evidence, Trait.COMPOUNDING, _compounding)


@clause("CB-4", Scenario.SLOW_FAILURE)
def start_to_start(evidence: Evidence) -> Iterator[Measure]:
    """Gaps are measured from start to start, so the time that an attempt takes to fail does not lengthen them.

    Estimate how much of an attempt's duration is added to the next gap: none if gaps count from its start.
    """
    yield attempts(evidence.visits, _TWO_GAPS)
    if len(evidence.visits) < _TWO_GAPS:
        return
    if not evidence.scheduled:
        raise NotApplicableError(NO_SCHEDULE)
    (series,) = series_of(evidence)
    ends = [(visit.ended or evidence.over) - visit.accepted for visit in evidence.visits]
    known = [
        gap if end < evidence.schedule.nominal(n, evidence.terms) else math.nan  # otherwise the next follows at once
        for n, (gap, end) in enumerate(zip(series.gaps, ends, strict=False), 1)
    ]
    if all(math.isnan(gap) for gap in known):
        raise NotApplicableError("each attempt outlasted its backoff")
    lasted = np.array([end for end, gap in zip(ends, known, strict=False) if not math.isnan(gap)])
    gaps = Gaps([replace(series, gaps=tuple(known))])
    likelihoods = np.array([gaps.likelihoods(evidence.schedules, part * lasted).max() for part in _PARTS])
    inside = _PARTS[likelihoods >= likelihoods.max() - INTERVAL]
    wrong = bool(likelihoods.max() - likelihoods[0] > _CONVINCING)
    yield Measure(
        what="an attempt's effect on the next gap, as a multiple of its duration",
        seen=float(_PARTS[likelihoods.argmax()]) if wrong else 0.0,
        allowed=Range(0.0, 0.0),
        unit=Unit.TIMES,
        interval=Range(float(inside.min()), float(inside.max())),
        convicts=wrong,
    )
    if not wrong:
        yield from measured(accepted(evidence.visits), evidence)


@clause("CB-6", Scenario.HANDSHAKE)
def accept_does_not_reset(evidence: Evidence) -> Iterable[Measure]:
    """Neither an accepted connection nor a completed TLS handshake resets the backoff."""
    return _every_gap(evidence)


@clause("CB-4", Scenario.TLS_FAILURE)
def tls_failure_backs_off(evidence: Evidence) -> Iterable[Measure]:
    """A TLS handshake that fails, for whatever reason, counts as a failed attempt, so the backoff grows."""
    return _every_gap(evidence)


@clause("CB-11", Scenario.HERD)
def clients_disperse(evidence: Evidence) -> Iterator[Measure]:
    """Two clients that lose the same server at the same moment do not dial in step.

    Compare the clients' gaps, except the first, which may have no jitter.
    """
    clients = by_client(evidence.visits)
    yield Measure(what="clients seen", seen=len(clients), allowed=Range(_TWO, _TWO), unit=Unit.CLIENTS)
    if len(clients) != _TWO:
        return
    series = [accepted(after_service(visits)) for visits in clients]
    for number, starts in enumerate(series, 1):
        yield attempts(starts, _TWO_GAPS, f"attempts of client {number} after the loss")
    yield from bounds(evidence)
    first, second = ([after - start for start, after in pairwise(starts)][1:] for starts in series)
    wide = evidence.schedule.high - evidence.schedule.low
    if wide * max([0.0, *first]) < evidence.terms.tolerance or wide < _SHOWN:
        raise NotApplicableError("the gaps of one client have no jitter, or are too short to show any")
    apart = max((abs(one - other) for one, other in zip(first, second, strict=False)), default=0.0)
    yield Measure(
        what="the largest difference between the clients' gaps, as a multiple of the tolerance",
        seen=apart / evidence.terms.tolerance,  # not a time: lateness of the judge does not make gaps more alike
        allowed=Range(1.0, math.inf),
        unit=Unit.TIMES,
        asked=evidence.scheduled or apart >= evidence.terms.tolerance,
    )
