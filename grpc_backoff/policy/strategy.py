"""Strategies: how waits grow with the number of failures, before cap and jitter.

Each strategy is a frozen value. `value(n)` is the wait after the n-th failure in seconds, with `n` counted from 1.
Computing it takes no longer for a large `n`, and the result is infinite if a float cannot hold it (CB-13).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import ClassVar

from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.exponential import Exponential, grown


@dataclass(frozen=True, slots=True)
@checks.checked({"base": checks.pause})
class Fixed:
    """Always waits `base` seconds. Only this strategy allows a wait of 0."""

    name: ClassVar[str] = "fixed"
    base: float

    def value(self, _n: int) -> float:
        """Return the base, in seconds."""
        return self.base


@dataclass(frozen=True, slots=True)
@checks.checked({"base": checks.duration})
class Linear:
    """Waits `n * base` seconds after the n-th failure; the base is above 0."""

    name: ClassVar[str] = "linear"
    base: float

    def value(self, n: int) -> float:
        """Return n times the base, in seconds."""
        try:
            return n * self.base
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
@checks.checked({"waits": checks.steps, "multiplier": checks.growth})
class Steps:
    """Takes the waits from a list; past the end of the list, multiplies the last wait by `multiplier` each time.

    The list is not empty, each wait is above 0, and the multiplier is at least 1.
    """

    name: ClassVar[str] = "steps"
    waits: tuple[float, ...]
    multiplier: float

    def value(self, n: int) -> float:
        """Return the n-th wait in the list; past its end, the last wait multiplied once for each further failure."""
        beyond = n - len(self.waits)
        return self.waits[n - 1] if beyond <= 0 else grown(self.waits[-1], self.multiplier, beyond)


@dataclass(frozen=True, slots=True)
@checks.checked({"base": checks.duration})
class Decorrelated:
    """Draws each wait uniformly between `base`, which is above 0, and three times the previous wait.

    For the first wait, the previous one counts as `base`.

    This strategy combines growth and jitter, so no other jitter can be added. The result depends on the previous draw,
    which the caller passes in because a policy holds no state; one below `base` counts as `base`, too.
    """

    name: ClassVar[str] = "decorrelated"
    reach: ClassVar[float] = 3.0
    """The largest ratio of a wait to the previous one."""
    base: float

    def value(self, n: int) -> float:
        """Return the mean of the n-th wait before any cap, in seconds.

        With base b and previous mean m, the next mean is (b + 3m) / 2. Starting from m = b, the n-th mean is
        `2b * 1.5**n - b`.
        """
        return grown(2 * self.base, self.reach / 2, n) - self.base

    def mean(self, n: int, cap: float) -> float:
        """Return the mean of the n-th wait if each is capped before the next is drawn from it, in seconds."""
        return math.fsum(_likely_waits(self.base, cap, min(n, _SETTLED))) / _LIKELY

    def largest_before(self, n: int) -> float:
        """Return the largest possible wait before the n-th, without any cap, in seconds."""
        return grown(self.base, self.reach, n - 1)


_LIKELY = 64
"""How many equally likely values stand for a random wait."""
_SETTLED = 256
"""From this wait on, the waits are no longer on their way to the cap."""


@lru_cache(maxsize=_SETTLED)
def _likely_waits(base: float, cap: float, n: int) -> list[float]:
    """Return equally likely values of the n-th decorrelated wait, sorted, in seconds.

    There is no closed form, because the cap cuts off each draw before the next one depends on it.
    """
    before = _likely_waits(base, cap, n - 1) if n > 1 else [min(base, cap)] * _LIKELY
    fractions = [(i + 0.5) / _LIKELY for i in range(_LIKELY)]
    drawn = sorted(min(cap, base + (Decorrelated.reach * wait - base) * part) for wait in before for part in fractions)
    return [math.fsum(drawn[i : i + _LIKELY]) / _LIKELY for i in range(0, len(drawn), _LIKELY)]


STRATEGIES: tuple[type[Fixed | Linear | Exponential | Steps | Decorrelated], ...] = (
    Fixed,
    Linear,
    Exponential,
    Steps,
    Decorrelated,
)
"""All strategies. Policies written as text refer to them by `name`."""

_PARTS = {"base": "delay", "waits": "steps"}

PARTS_OF_STRATEGIES: Mapping[str, tuple[str, ...]] = {
    kind.name: tuple(_PARTS.get(part.name, part.name) for part in fields(kind)) for kind in STRATEGIES
}
"""What presets, files and options call each strategy's fields, in their order; the first is required."""

PARTS_OF_ANY_STRATEGY = frozenset(part for parts in PARTS_OF_STRATEGIES.values() for part in parts)
