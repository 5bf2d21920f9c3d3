"""The strategy of a channel without options: exponential; and decorrelated, which every policy treats apart.

The others are in `strategy.py`, which says more.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, Protocol

from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks


class Strategy(Protocol):
    """A rule by which waits grow.

    Attributes:
        name: the name of the strategy in policies written as text.
    """

    name: ClassVar[str]

    def value(self, n: int) -> float:
        """Return the wait after the n-th failure, before cap and jitter, in seconds."""
        ...


@dataclass(frozen=True, slots=True)
@checks.checked({"base": checks.duration, "multiplier": checks.growth, "max_exponent": checks.max_exponent})
class Exponential:
    """Waits `base * multiplier**(n - 1)` seconds after the n-th failure; `max_exponent` limits the exponent.

    The base is above 0, and the multiplier at least 1.
    """

    name: ClassVar[str] = "exponential"
    base: float
    multiplier: float
    max_exponent: int | None = None

    def value(self, n: int) -> float:
        """Return `base * multiplier**(n - 1)`, in seconds, with the exponent limited to `max_exponent`."""
        exponent = n - 1
        if self.max_exponent is not None and exponent > self.max_exponent:
            exponent = self.max_exponent
        return grown(self.base, self.multiplier, exponent)


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


def grown(base: float, multiplier: float, times: int) -> float:
    """Return `base * multiplier**times`, which is infinite if a float cannot hold it."""
    try:
        return base * multiplier**times
    except OverflowError:
        return math.inf


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
