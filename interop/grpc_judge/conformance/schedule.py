"""A client's schedule of attempts: the parameters, the gaps they predict, and the likelihood of observed gaps."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grpc_judge.conformance.terms import Range, Terms

INTERVAL = 1.92
"""How much lower the log-likelihood is at the ends of a 95 % interval than at its maximum."""

_PRECISE, _USUAL, _LATE = 0.2, 0.5, 0.02
"""The noise in recorded times: its standard deviation in units of the tolerance, the standard deviation of late times,
and the share of late times."""
_HARDLY = 1e-9
"""The density of a gap that the schedule rules out."""
_NARROWEST = 2e-3
"""The width assumed for a gap without jitter, as a fraction of the gap. Event loop timers are about that precise."""
_FAR_WIDER, _MOSTLY = 5, 0.5
_MOST = 10_000
"""More attempts than occur in any scenario."""

_Array = NDArray[np.float64]

_DEVIATIONS = np.linspace(-8.0, 8.0, 6401)
_BELOW = np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in _DEVIATIONS])
"""The normal distribution function; between these points, interpolation is off by less than 1e-6."""


def _normal(deviations: _Array) -> _Array:
    found: _Array = np.interp(deviations, _DEVIATIONS, _BELOW)
    return found


@dataclass(frozen=True, slots=True)
class Series:
    """The gaps in one series of attempts, all of which failed at once.

    Attributes:
        gaps: the gaps in seconds, in order; NaN for a gap that the judge may have recorded late.
        terms: the client's settings.
    """

    gaps: tuple[float, ...]
    terms: Terms

    @property
    def known(self) -> tuple[float, ...]:
        """The gaps that were recorded on time."""
        return tuple(gap for gap in self.gaps if not math.isnan(gap))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How far apart a client starts its attempts, relative to its settings. The defaults are the protocol's.

    Attributes:
        initial: INITIAL_BACKOFF, in units of its setting.
        first: the first gap, in units of INITIAL_BACKOFF.
        multiplier: MULTIPLIER.
        added: how much each gap adds to the previous one, in units of INITIAL_BACKOFF.
        period: the number of gaps after which the series restarts; 0 for never.
        cap: MAX_BACKOFF, in units of its setting.
        low: the lowest jitter, as a fraction of the gap.
        high: the highest jitter, as a fraction of the gap.
        compounds: whether a gap grows from the jittered length of the previous one.
        fibonacci: where in the Fibonacci numbers 1, 1, 2, 3 ... the gaps begin, counted from 1; 0 if they are others.
        late: how much later than it should every attempt starts, in seconds.
        tick: how far apart the times are at which the client's timer can go off, in seconds; 0 for any time.
    """

    initial: float = 1.0
    first: float = 1.0
    multiplier: float = 1.6
    added: float = 0.0
    period: int = 0
    cap: float = 1.0
    low: float = -0.2
    high: float = 0.2
    compounds: bool = False
    fibonacci: int = 0
    late: float = 0.0
    tick: float = 0.0

    @classmethod
    def told(cls, terms: Terms) -> Schedule:
        """Return the schedule for a client that follows its settings."""
        return cls(multiplier=terms.multiplier, low=-terms.jitter, high=terms.jitter)

    def nominal(self, n: int, terms: Terms) -> float:
        """Return the n-th gap in a series, without jitter and in seconds; `n` counts from 1."""
        place = (n - 1) % self.period if self.period else n - 1
        most = self.cap * terms.cap
        if place * np.log(self.multiplier) > _LARGE:
            return most
        if self.fibonacci:
            grown = float(_FIBONACCI[min(place + self.fibonacci, len(_FIBONACCI)) - 1])
        else:
            grown = self.multiplier**place + self.added * place
        length = min(most, terms.initial * self.initial * grown)
        return length * self.first if place == 0 else length

    def after(self, n: int, before: float | None, terms: Terms) -> float:
        """Return the n-th gap before its own jitter is applied; `before` is the length of the previous gap."""
        if not self.compounds or before is None:
            return self.nominal(n, terms)
        return min(self.multiplier * before, self.cap * terms.cap)

    def band(self, length: float, terms: Terms, slack: float = 0.0) -> Range:
        """Return the range of a gap that has this length before jitter. `slack`, a fraction, widens the jitter."""
        low, high = length * (1 + self.low - slack), length * (1 + self.high + slack)
        return Range(
            max(0.0, low + min(0.0, self.late) - terms.tolerance), high + self.late + self.tick + terms.tolerance
        )

    def gap(self, n: int, before: float | None, terms: Terms, slack: float = 0.0) -> Range:
        """Return the range of the n-th gap; `before` is the length of the previous gap, None if it is not known."""
        if not self.compounds or before is not None:
            return self.band(self.after(n, before, terms), terms, slack)
        shortest, longest = (self.nominal(n, terms) * (1 + jitter) ** (n - 1) for jitter in (self.low, self.high))
        most = self.cap * terms.cap
        return Range(self.band(min(shortest, most), terms, slack).low, self.band(min(longest, most), terms, slack).high)

    def fewest_starts(self, seconds: float, terms: Terms, slack: float = 0.0) -> int:
        """Return the fewest attempts that the client starts in this time, if each fails immediately."""
        starts, elapsed, before = 1, 0.0, None
        while starts < _MOST:
            before = self.band(self.after(starts, before, terms), terms, slack).high
            elapsed += before
            if elapsed > seconds:
                break
            starts += 1
        return starts

    def changed(self, **numbers: float | bool) -> Schedule:
        """Return a copy with these parameters replaced."""
        return replace(self, **numbers)  # type: ignore[arg-type]


_LARGE = 60.0
"""The logarithm of a factor larger than any backoff reaches."""


_FIBONACCI = np.array(
    functools.reduce(lambda found, _: [*found, found[-2] + found[-1]], range(50), [1.0, 1.0]), dtype=float
)


class Gaps:
    """Several series of gaps. Computes how likely they are under given schedules."""

    def __init__(self, series: Iterable[Series]) -> None:
        """Collect the gaps, leaving out unknown ones (NaN)."""
        rows = [
            (gap, n, each.gaps[n - 1] if n else np.nan, each.terms.initial, each.terms.cap, each.terms.tolerance)
            for each in series
            for n, gap in enumerate(each.gaps)
            if not np.isnan(gap)
        ]
        table = np.array(rows, dtype=float).reshape(-1, 6)
        self._gap, self._place, self._before, self._initial, self._cap, self._tolerance = table.T

    def __len__(self) -> int:
        """Return the number of gaps."""
        return len(self._gap)

    def likelihoods(self, schedules: Sequence[Schedule], shift: _Array | float = 0.0) -> _Array:
        """Return the log-likelihood of all gaps together for each schedule; see `each`."""
        found: _Array = self.each(schedules, shift).sum(axis=1)
        return found

    def each(self, schedules: Sequence[Schedule], shift: _Array | float = 0.0) -> _Array:
        """Return the log-likelihood of each gap for each schedule, given jitter and the noise of recorded times.

        Args:
            schedules: the schedules to compare.
            shift: the part of each gap that has other causes, in seconds.
        """
        lengths = self._lengths(schedules)
        low, high = (_column(schedules, name) for name in ("low", "high"))
        width = np.maximum(lengths * (high - low), _NARROWEST * lengths + 1e-6)
        late, tick = (_column(schedules, name) for name in ("late", "tick"))
        away = self._gap - shift - late - tick / 2 - lengths * (1 + (low + high) / 2)
        density = np.full_like(width, _HARDLY)
        for share, noise in ((1 - _LATE, _PRECISE), (_LATE, _USUAL)):
            deviation = np.hypot(noise * self._tolerance, tick / math.sqrt(12))
            inside = _normal((away + width / 2) / deviation) - _normal((away - width / 2) / deviation)
            density += share * inside / width * np.maximum(self._gap, self._tolerance)
        found: _Array = np.log(density)
        return found

    def unevenness(self, schedule: Schedule) -> float:
        """Return Kolmogorov's statistic of the jitter, which a schedule draws evenly from its range.

        It is infinite if most gaps are too short to show their jitter. By chance, it hardly ever exceeds 2.
        """
        (lengths,) = self._lengths([schedule])
        wide = schedule.high - schedule.low
        shown = wide * lengths > np.maximum(self._tolerance, _FAR_WIDER * schedule.tick)
        if shown.mean() < _MOSTLY:
            return math.inf
        jitter = (self._gap - schedule.late - schedule.tick / 2)[shown] / lengths[shown] - 1
        drawn = np.sort(np.clip((jitter - schedule.low) / wide, 0.0, 1.0))
        even = np.arange(len(drawn) + 1) / len(drawn)
        apart = np.maximum(np.abs(drawn - even[:-1]), np.abs(drawn - even[1:]))
        return float(apart.max() * math.sqrt(len(drawn)))

    def _lengths(self, schedules: Sequence[Schedule]) -> _Array:
        period, multiplier, most = (_column(schedules, name) for name in ("period", "multiplier", "cap"))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            place = np.where(period > 0, self._place % np.maximum(period, 1), self._place)
            grown = multiplier**place + _column(schedules, "added") * place
            begins = _column(schedules, "fibonacci").astype(int)
            numbers = _FIBONACCI[np.minimum(place.astype(int) + begins, len(_FIBONACCI)) - 1]
            grown = np.where(begins > 0, numbers, grown)
            lengths = np.minimum(self._initial * _column(schedules, "initial") * grown, most * self._cap)
            compounded = np.minimum(multiplier * self._before, most * self._cap)
        lengths = np.where(place == 0, _column(schedules, "first") * lengths, lengths)
        kept_in = (_column(schedules, "compounds") > 0) & (self._place > 0) & ~np.isnan(self._before)
        found: _Array = np.where(kept_in, compounded, lengths)
        return found


def _column(schedules: Sequence[Schedule], name: str) -> _Array:
    return np.array([[float(getattr(each, name))] for each in schedules])
