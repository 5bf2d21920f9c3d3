"""The strategy of a channel without options: exponential; and what each strategy is.

The others are in `strategy.py`, which says more.
"""

from __future__ import annotations

import math
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


def grown(base: float, multiplier: float, times: int) -> float:
    """Return `base * multiplier**times`, which is infinite if a float cannot hold it."""
    try:
        return base * multiplier**times
    except OverflowError:
        return math.inf
