"""Fits a schedule to all of a client's gaps, to find which of its parameters differ from the settings.

The simplest explanation is chosen. The settings explain the gaps of a correct client. If changing one parameter
explains the gaps much better, only that parameter is wrong. Two parameters are wrong only if no single change explains
the gaps. A wrong MULTIPLIER is therefore not also reported as a wrong cap or as compounding jitter.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from grpc_judge.conformance.schedule import INTERVAL, Gaps, Schedule, Series
from grpc_judge.conformance.terms import Range, Terms

_CONVINCING = 9.0
"""The log-likelihood that an explanation must gain for each parameter that it changes."""
_ALONE, _BESIDE = 8.0, 3.0
"""The log-likelihood that compounding jitter must gain: as the only difference, and on top of other differences."""
_UNEXPLAINED = -3.0
"""A log-likelihood below which a gap counts as unexplained. A gap in the middle of its jitter range has 0.9."""
_IMPOSSIBLE = -12.0
"""A log-likelihood below which not even noise explains a gap."""
_TIMER = 6.0
"""The log-likelihood that a late timer must gain, which is allowed and blames nothing."""
_ROUNDS = 3
_LONGEST_PERIOD = 13
"""How many gaps a series may have before it restarts, for a restart to be looked for; one less than this."""
_DISTINCT = 3.0
"""The lead in log-likelihood that an explanation must have over any that blames other traits."""
_HOPELESS = 20.0
"""How far an explanation may lie below the best one for the gaps to leave room for it."""
_LIKELY = 4.0
"""How far a schedule's log-likelihood may lie below that of the likeliest schedule."""
_UNEVEN = 2.2
"""Kolmogorov's statistic above which gaps were not drawn from one range: by chance, one time in 8,000."""
_UNSURE = 0.25
"""The fraction by which a gap may miss a schedule that differs from the settings."""


class Trait(enum.Enum):
    """A property of a schedule that can be wrong independently of the others."""

    INITIAL = "INITIAL_BACKOFF"
    GROWTH = "MULTIPLIER"
    CAP = "MAX_BACKOFF"
    JITTER = "JITTER"
    COMPOUNDING = "jitter in the next gap"


def _cost(wrong: frozenset[Trait]) -> float:
    """Return the log-likelihood that an explanation with these wrong traits must gain.

    Compounding does not have a parameter that could be fitted, so it needs less evidence by itself. Combined with
    another trait it needs more, so that it is considered last.
    """
    if wrong == {Trait.COMPOUNDING}:
        return _ALONE
    return _CONVINCING * len(wrong) + (_BESIDE if Trait.COMPOUNDING in wrong else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One parameter of a schedule, estimated from the gaps.

    Attributes:
        value: the most likely value.
        interval: the 95 % confidence interval, given the other parameters as estimated.
    """

    value: float
    interval: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The schedule that was fitted to a client's gaps.

    Attributes:
        schedule: the schedule that explains the gaps.
        wrong: the traits that differ from the client's settings.
        likely: other schedules that explain the gaps almost as well, each different in one trait.
        series: the gaps.
        explained: whether any schedule explains the gaps. If none does, `schedule` is the one that the settings give.
        scheduled: whether the client has a schedule at all: it does not flood, and its gaps are explained.
    """

    schedule: Schedule
    explained: bool = True
    wrong: frozenset[Trait] = frozenset()
    likely: tuple[Schedule, ...] = ()
    series: tuple[Series, ...] = ()
    scheduled: bool = True

    @property
    def slack(self) -> float:
        """The fraction by which a gap may miss the schedule, because the fit is uncertain."""
        return _UNSURE if self.wrong else 0.0

    def unexplained(self) -> Iterator[tuple[int, float, Range]]:
        """Yield the gaps that do not fit: for each, its number, its length and its expected range.

        One schedule has to explain all gaps of a series. These are the gaps that are left by the schedule that explains
        the most of them. Each gap may have a late timer of its own.
        """
        schedules = [self.schedule, *self.likely]
        late = [each.changed(late=max(each.late, LATEST)) for each in schedules]
        for each in self.series:
            known = [(n, gap) for n, gap in enumerate(each.gaps, 1) if not math.isnan(gap)]
            if not known:
                continue
            gaps = Gaps([each])
            impossible = np.maximum(gaps.each(schedules), gaps.each(late)) < _IMPOSSIBLE
            best = int(impossible.sum(axis=1).argmin())
            for (n, gap), wrong in zip(known, impossible[best], strict=True):
                if wrong:
                    before = each.gaps[n - 2] if n > 1 else None
                    length = schedules[best].after(n, before, each.terms)
                    low = schedules[best].band(length, each.terms, self.slack).low
                    yield n, gap, Range(low, late[best].band(length, each.terms, self.slack).high)

    def most_starts(self, series: Series) -> int:
        """Return the most attempts that the schedule has in the time of this series, but no more than one too many."""
        schedules, known = [self.schedule, *self.likely], series.known
        shortest = sorted(
            min(each.gap(n, None, series.terms, self.slack).low for each in schedules) for n in range(1, len(known) + 1)
        )
        return 1 + sum(total <= sum(known) for total in itertools.accumulate(shortest))

    def estimate(self, name: str) -> Estimate:
        """Return the estimate of one parameter of the schedule."""
        found = getattr(self.schedule, name)
        values = np.unique(np.append(_near(name, found), found))
        likelihoods = Gaps(self.series).likelihoods([self.schedule.changed(**{name: float(each)}) for each in values])
        inside = values[likelihoods >= likelihoods.max() - INTERVAL]
        return Estimate(
            value=float(values[likelihoods.argmax()]), interval=Range(float(inside.min()), float(inside.max()))
        )


@functools.cache
def fit(series: tuple[Series, ...], terms: Terms) -> Fit:
    """Return the simplest schedule that explains all of a client's series of gaps."""
    found = _simplest(series, terms)
    lost = not found.explained and any(True for _ in found.unexplained())
    return replace(found, series=series, scheduled=not (lost or _floods(series)))


def _floods(series: Iterable[Series]) -> bool:
    """Return whether a client makes more attempts than any schedule does, and has no backoff to speak of.

    Half of its later gaps or more are shorter than even the first one may be, which no schedule's are, however wrong.
    """
    later = [gap < each.terms.band(1).low for each in series for gap in each.known[len(each.known) // 2 :]]
    most = sum(each.terms.most_starts(sum(each.known)) for each in series)
    return sum(len(each.known) + 1 for each in series) > most and 2 * sum(later) >= len(later)


def _simplest(series: tuple[Series, ...], terms: Terms) -> Fit:
    gaps, told = Gaps(series), Schedule.told(terms)
    if not len(gaps):
        return Fit(schedule=told)
    singles = _explanations(_SINGLE, told, gaps)
    best = max(singles, key=_worth)
    if best.wrong:
        singles += _with_late_timers(told, gaps)
        best = max(singles, key=_worth)
    found = singles
    if Trait.JITTER in best.wrong or gaps.each([best.schedule]).min() < _UNEXPLAINED:
        found = [*singles, *_explanations(itertools.combinations(Trait, 2), told, gaps)]
        best = max(found, key=_worth)
    # Blame only the traits that all explanations close to the best one blame.
    close = [each.wrong for each in found if each.worth > best.worth - _DISTINCT]
    common = frozenset.intersection(*close)
    chosen = max((each for each in found if each.wrong == common), key=_worth)
    drawn = not best.wrong.isdisjoint({Trait.JITTER, Trait.COMPOUNDING})
    if drawn and gaps.each([told]).min() < _IMPOSSIBLE and gaps.unevenness(best.schedule) > _UNEVEN:
        return Fit(schedule=told, explained=False, series=series)
    if common or chosen.worth > best.worth - _HOPELESS:
        best = chosen
    most = max(each.likelihood for each in singles)
    likely = tuple(each.schedule for each in singles if each.likelihood > most - _LIKELY)
    return Fit(schedule=best.schedule, wrong=best.wrong, likely=likely, series=series)


@dataclass(frozen=True, slots=True)
class _Explanation:
    """A schedule, its differences from the settings, and its likelihood with and without the differences' cost."""

    schedule: Schedule
    wrong: frozenset[Trait]
    likelihood: float
    worth: float


def _worth(explanation: _Explanation) -> float:
    return explanation.worth


def _explanations(choices: Iterable[Sequence[Trait]], told: Schedule, gaps: Gaps) -> list[_Explanation]:
    """Return the best explanation for each of these combinations of wrong traits."""
    found = [(_explain(told, traits, gaps), frozenset(traits)) for traits in choices]
    likelihoods = gaps.likelihoods([schedule for schedule, _ in found])
    return [
        _Explanation(schedule, wrong, float(likelihood), float(likelihood) - _cost(wrong))
        for (schedule, wrong), likelihood in zip(found, likelihoods, strict=True)
    ]


def _with_late_timers(told: Schedule, gaps: Gaps) -> list[_Explanation]:
    """Return the best explanations for a client that does what its settings say, or all but one, but is late."""
    timer = _likeliest([told.changed(**timer) for timer in _TIMERS], gaps)
    return [replace(each, worth=each.worth - _TIMER) for each in _explanations(_SINGLE, timer, gaps)]


def _likeliest(schedules: Sequence[Schedule], gaps: Gaps) -> Schedule:
    return schedules[int(gaps.likelihoods(schedules).argmax())]


def _explain(told: Schedule, traits: Sequence[Trait], gaps: Gaps) -> Schedule:
    """Return the likeliest schedule that differs from the settings only in these traits.

    If there are two traits, both orders of fitting them are tried.
    """
    return _likeliest([_climb(told, order, gaps) for order in itertools.permutations(traits)], gaps)


def _climb(told: Schedule, traits: Sequence[Trait], gaps: Gaps) -> Schedule:
    best = told
    for _ in range(_ROUNDS if len(traits) > 1 else 1):
        before = best
        for trait in traits:
            best = _likeliest([best, *(way(best, told, gaps) for way in _WAYS[trait])], gaps)
        if best == before:
            break
    return best


_SINGLE: Final[Sequence[Sequence[Trait]]] = ([], *([trait] for trait in Trait))
"""No trait, and each trait alone."""

_Way = Callable[[Schedule, Schedule, Gaps], Schedule]
"""Takes the best schedule so far, the settings and the gaps; returns the best schedule that differs in one respect."""


def _searched(name: str, **others: float) -> _Way:
    """Return a function that searches for one parameter, first coarsely and then finely."""

    def way(best: Schedule, _told: Schedule, gaps: Gaps) -> Schedule:
        rough = _likeliest([best.changed(**others, **{name: float(each)}) for each in _FAR[name]], gaps)
        values = _near(name, getattr(rough, name))
        return _likeliest([rough, *(rough.changed(**{name: float(each)}) for each in values)], gaps)

    return way


def _begins_anew(best: Schedule, told: Schedule, gaps: Gaps) -> Schedule:
    plain = best.changed(added=0.0, multiplier=told.multiplier)
    return _likeliest([plain.changed(period=period) for period in range(2, _LONGEST_PERIOD)], gaps)


def _fibonacci(best: Schedule, told: Schedule, gaps: Gaps) -> Schedule:
    plain = best.changed(added=0.0, multiplier=told.multiplier, period=0)
    return _likeliest([plain.changed(fibonacci=begins) for begins in (1, 2)], gaps)


def _late(best: Schedule, _told: Schedule, gaps: Gaps) -> Schedule:
    plain = best.changed(initial=1.0, first=1.0, tick=0.0)
    return _likeliest([plain.changed(late=float(late)) for late in np.arange(LATEST, 1.0, 0.02)], gaps)


def _jittered(best: Schedule, _told: Schedule, gaps: Gaps) -> Schedule:
    """Search for the width of the jitter on each side."""
    sides = [best.changed(low=-float(low), high=float(high)) for low in _WIDTHS for high in _WIDTHS]
    return _likeliest(sides, gaps)


def _compounding(best: Schedule, _told: Schedule, _gaps: Gaps) -> Schedule:
    return best.changed(compounds=True)


_WAYS: Final[Mapping[Trait, Sequence[_Way]]] = {
    Trait.INITIAL: (_searched("initial", first=1.0), _searched("first", initial=1.0), _late),
    Trait.GROWTH: (
        _searched("multiplier", added=0.0, period=0),
        _searched("added", multiplier=1.0, period=0),
        _begins_anew,
        _fibonacci,
    ),
    Trait.CAP: (_searched("cap"),),
    Trait.JITTER: (_jittered,),
    Trait.COMPOUNDING: (_compounding,),
}
"""The respects in which each trait can differ."""

LATEST: Final = 0.1
"""How late a timer may be, in seconds: every time, or at random because it ticks."""
_TIMERS = [
    *({"late": float(each)} for each in np.linspace(0.01, LATEST, 10)),
    *({"tick": float(each)} for each in np.linspace(0.02, LATEST, 5)),
    *({"tick": float(each), "late": float(-each / 2)} for each in np.linspace(0.04, LATEST, 4)),  # noise
]

_FACTORS = np.geomspace(0.1, 10, 93)
_WIDTHS: Final = np.unique(np.concatenate([[0.0, 0.01, 0.03, 0.06], np.arange(0.1, 0.6, 0.05), [0.7, 1.0]]))
_FAR: Final = {
    "initial": np.concatenate([np.geomspace(0.001, 0.1, 40), _FACTORS]),
    "first": np.concatenate([[0.0], np.geomspace(0.005, 0.1, 10), _FACTORS]),
    "multiplier": np.linspace(1.0, 3.0, 101),
    "added": np.linspace(0.05, 3.0, 60),
    "cap": np.append(_FACTORS, 1e6),
}


def _near(name: str, value: float) -> np.ndarray:
    """Return closely spaced values around `value`."""
    if name in {"low", "high"}:
        return np.linspace(max(-1.0, value - 0.25), value + 0.25, 201)
    return value * np.unique(np.concatenate([np.linspace(0.88, 1.12, 97), np.linspace(0.995, 1.005, 101)]))
