"""Fits a schedule to all gaps of a client: which of its numbers differ from its settings, and what they are instead.

The simplest explanation counts. The settings explain the gaps of a correct client. If another value of one number
explains them far better, that number alone is wrong; two are wrong only if no single one explains the gaps. So a wrong
MULTIPLIER is not also reported as a wrong cap or as jitter that compounds.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from interop.conformance.schedule import INTERVAL, Gaps, Schedule, Series
from interop.conformance.terms import Range, Terms

__all__ = ["Estimate", "Fit", "Trait", "fit"]

_CONVINCING = 9.0
"""How much more likely an explanation must be, as a logarithm, for each number that it changes."""
_ALONE, _BESIDE = 8.0, 3.0
"""The same for compounding jitter: as the only difference, and in addition to another one."""
_UNEXPLAINED = -3.0
"""A gap with no higher log-likelihood than this is not explained; a gap in the middle of its jitter has 0.9."""
_IMPOSSIBLE = -12.0
"""The same, for a gap that no noise explains."""
_ROUNDS = 3
_UNSURE = 0.15
"""The fraction by which a gap may miss a schedule that differs from the settings."""


class Trait(enum.Enum):
    """A property of a schedule that can be right or wrong independently of the others."""

    INITIAL = "INITIAL_BACKOFF"
    GROWTH = "MULTIPLIER"
    CAP = "MAX_BACKOFF"
    JITTER = "JITTER"
    COMPOUNDING = "jitter in the next gap"


def _cost(wrong: frozenset[Trait]) -> float:
    """Return how much more likely an explanation must be.

    Compounding has no number that could be fitted to the gaps, so it needs less; beside another trait it is considered
    last.
    """
    if wrong == {Trait.COMPOUNDING}:
        return _ALONE
    return _CONVINCING * len(wrong) + (_BESIDE if Trait.COMPOUNDING in wrong else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One number of a schedule, as the gaps show it.

    Attributes:
        value: the most likely value.
        interval: the values it may have, with a probability of 95 %, if all other numbers are as found.
    """

    value: float
    interval: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a client's gaps say about its schedule.

    Attributes:
        schedule: the schedule that explains them.
        wrong: the traits that differ from the client's settings.
        series: the gaps.
    """

    schedule: Schedule
    wrong: frozenset[Trait] = frozenset()
    series: tuple[Series, ...] = ()

    @property
    def slack(self) -> float:
        """The fraction by which a gap may miss the schedule because of the uncertainty of the fit."""
        return _UNSURE if self.wrong else 0.0

    def unexplained(self) -> Iterator[tuple[int, float, Range]]:
        """Yield the gaps that no simple schedule explains: the number of each, its length, and its expected range."""
        for each in self.series:
            known = [(n, gap) for n, gap in enumerate(each.gaps, 1) if not math.isnan(gap)]
            if not known:
                continue
            likelihoods = Gaps([each]).each([self.schedule])[0]
            for (n, gap), likelihood in zip(known, likelihoods, strict=True):
                if likelihood < _IMPOSSIBLE:
                    before = each.gaps[n - 2] if n > 1 else None
                    length = self.schedule.after(n, before, each.terms)
                    yield n, gap, self.schedule.band(length, each.terms, self.slack)

    def estimate(self, name: str) -> Estimate:
        """Return what the gaps say about one number of the schedule."""
        found = getattr(self.schedule, name)
        values = np.unique(np.append(_near(name, found), found))
        likelihoods = Gaps(self.series).likelihoods([self.schedule.changed(**{name: float(each)}) for each in values])
        inside = values[likelihoods >= likelihoods.max() - INTERVAL]
        return Estimate(
            value=float(values[likelihoods.argmax()]), interval=Range(float(inside.min()), float(inside.max()))
        )


@functools.lru_cache(maxsize=64)
def fit(series: tuple[Series, ...], terms: Terms) -> Fit:
    """Return the simplest schedule that explains several series of gaps of one client."""
    gaps, told = Gaps(series), Schedule.told(terms)
    if not len(gaps):
        return Fit(schedule=told)
    best = _simplest(([], *([trait] for trait in Trait)), told, gaps)
    if Trait.JITTER in best.wrong or gaps.each([best.schedule]).min() < _UNEXPLAINED:
        pairs = _simplest(itertools.combinations(Trait, 2), told, gaps)
        best = max(best, pairs, key=lambda each: each.worth)
    return Fit(schedule=best.schedule, wrong=best.wrong, series=series)


@dataclass(frozen=True, slots=True)
class _Explanation:
    """A schedule, how it differs from the settings, and its likelihood, less the cost of each difference."""

    schedule: Schedule
    wrong: frozenset[Trait]
    worth: float


def _simplest(choices: Iterable[Sequence[Trait]], told: Schedule, gaps: Gaps) -> _Explanation:
    """Return the best explanation that differs from the settings in one of these choices of traits."""
    found = [(_explain(told, traits, gaps), frozenset(traits)) for traits in choices]
    likelihoods = gaps.likelihoods([schedule for schedule, _ in found])
    return max(
        (
            _Explanation(schedule, wrong, float(likelihood) - _cost(wrong))
            for (schedule, wrong), likelihood in zip(found, likelihoods, strict=True)
        ),
        key=lambda each: each.worth,
    )


def _likeliest(schedules: Sequence[Schedule], gaps: Gaps) -> Schedule:
    return schedules[int(gaps.likelihoods(schedules).argmax())]


def _explain(told: Schedule, traits: Sequence[Trait], gaps: Gaps) -> Schedule:
    """Return the likeliest schedule that differs from the settings only in these traits.

    With two traits, tries both orders of fitting.
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


_Way = Callable[[Schedule, Schedule, Gaps], Schedule]
"""Takes the best schedule so far, the settings and the gaps; returns the best schedule that differs in one way."""


def _searched(name: str, **others: float) -> _Way:
    """Return a function that searches one number, first coarsely and then finely."""

    def way(best: Schedule, _told: Schedule, gaps: Gaps) -> Schedule:
        rough = _likeliest([best.changed(**others, **{name: float(each)}) for each in _FAR[name]], gaps)
        values = _near(name, getattr(rough, name))
        return _likeliest([rough, *(rough.changed(**{name: float(each)}) for each in values)], gaps)

    return way


def _begins_anew(best: Schedule, told: Schedule, gaps: Gaps) -> Schedule:
    plain = best.changed(added=0.0, multiplier=told.multiplier)
    return _likeliest([plain.changed(period=period) for period in range(2, 8)], gaps)


def _jittered(best: Schedule, _told: Schedule, gaps: Gaps) -> Schedule:
    """Search for another width of jitter on each side."""
    sides = [best.changed(low=-float(low), high=float(high)) for low in _WIDTHS for high in _WIDTHS]
    return _likeliest(sides, gaps)


def _compounding(best: Schedule, _told: Schedule, _gaps: Gaps) -> Schedule:
    return best.changed(compounds=True)


_WAYS: Final[Mapping[Trait, Sequence[_Way]]] = {
    Trait.INITIAL: (_searched("initial", first=1.0), _searched("first", initial=1.0)),
    Trait.GROWTH: (
        _searched("multiplier", added=0.0, period=0),
        _searched("added", multiplier=1.0, period=0),
        _begins_anew,
    ),
    Trait.CAP: (_searched("cap"),),
    Trait.JITTER: (_jittered,),
    Trait.COMPOUNDING: (_compounding,),
}
"""The ways in which each trait can be wrong."""

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
    """Return closely spaced numbers around one."""
    if name in {"low", "high"}:
        return np.linspace(max(-1.0, value - 0.25), value + 0.25, 201)
    return value * np.unique(np.concatenate([np.linspace(0.88, 1.12, 97), np.linspace(0.995, 1.005, 101)]))
