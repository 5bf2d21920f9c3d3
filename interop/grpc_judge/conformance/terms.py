"""The settings that a client is configured with, and the allowed ranges that follow from them.

`evidence.py` contains what was observed of the client.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

CLOSE_WITHIN: Final = 0.25
"""How soon after its limit the socket of an attempt must be closed, in seconds (CB-3)."""

_NEARLY = 1e-9
"""How far two sums of the same gaps may differ because of floating-point rounding."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of allowed values, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        """Return whether `value` is allowed."""
        return self.low - _NEARLY <= value <= self.high + _NEARLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The backoff that a client is configured with, and the tolerance for judging it. Times are in seconds.

    Attributes:
        initial: INITIAL_BACKOFF.
        multiplier: MULTIPLIER.
        cap: MAX_BACKOFF.
        jitter: JITTER.
        min_connect_timeout: MIN_CONNECT_TIMEOUT.
        tolerance: how far a gap may miss its range. The official test allows 100 ms for network delay (IO-2).
    """

    initial: float
    multiplier: float
    cap: float
    jitter: float
    min_connect_timeout: float
    tolerance: float

    def __post_init__(self) -> None:
        """Reject a backoff that does not grow, and a tolerance so large that it would hide the first gap."""
        if self.multiplier <= 1:
            raise ValueError(f"Terms.multiplier={self.multiplier:g}: expected a number above 1")
        shortest = (1 - self.jitter) * min(self.initial, self.cap)
        if self.tolerance >= shortest:
            raise ValueError(
                f"Terms.tolerance={self.tolerance:g}: expected less than {shortest:g}, the shortest gap in seconds"
            )

    def nominal(self, n: int) -> float:
        """Return the gap after the n-th start of a series, without jitter; `n` counts from 1."""
        if math.log(self.cap / self.initial) <= (n - 1) * math.log(self.multiplier):
            return self.cap
        return min(self.cap, self.initial * self.multiplier ** (n - 1))

    @property
    def first_capped(self) -> int:
        """The number of the first gap that reaches MAX_BACKOFF."""
        return next(n for n in itertools.count(1) if self.nominal(n) >= self.cap)

    def band(self, n: int) -> Range:
        """Return the allowed range of the n-th gap: the official [0.8 E - tolerance, 1.2 E + tolerance] (IO-2).

        The range also applies to the first gap. The protocol's text does not jitter that gap, but allows algorithms
        that are no more aggressive than its own; C-core and Java do jitter it (CB-2).
        """
        gap = self.nominal(n)
        spread = self.jitter * gap + self.tolerance
        return Range(max(0.0, gap - spread), gap + spread)

    def outlasting(self, n: int) -> float:
        """Return how long the n-th attempt in a series may last (CB-3), without tolerance."""
        return max(self.min_connect_timeout, (1 + self.jitter) * self.nominal(n))

    def fewest_starts(self, seconds: float) -> int:
        """Return the number of attempts that the slowest conforming client starts in this time."""
        starts, elapsed = 1, 0.0
        while (elapsed := elapsed + self.band(starts).high) <= seconds:
            starts += 1
        return starts

    def most_starts(self, seconds: float) -> int:
        """Return the number of attempts that the fastest conforming client starts in this time."""
        starts, elapsed = 1, 0.0
        while (elapsed := elapsed + self.band(starts).low) <= seconds:
            starts += 1
        return starts

    def longest_gap_after(self, seconds: float) -> Range:
        """Return the range of the longest gap that may be in progress when a series is this many seconds old."""
        n, earliest = 1, 0.0
        while self.nominal(n) < self.cap:
            earliest += self.band(n).low
            if earliest > seconds:
                break
            n += 1
        return self.band(n)


PROTOCOL: Final = Terms(initial=1.0, multiplier=1.6, cap=120.0, jitter=0.2, min_connect_timeout=20.0, tolerance=0.1)
"""The protocol's defaults with the tolerance of the official test, for clients that were not configured.

They repeat the library's constants on purpose, because they judge the library.
"""
