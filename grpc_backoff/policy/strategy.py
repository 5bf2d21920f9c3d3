"""How a wait grows with the number of failures, before any cap or jitter.

Each strategy is a value. `value(n)` is the wait after the n-th failure in seconds, with `n` counted from 1; its cost
does not depend on `n`, and it is infinite if a float cannot hold it (CB-13).
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

from grpc_backoff.policy import checks
from grpc_backoff.record import value

__all__ = ["STRATEGIES", "Decorrelated", "Exponential", "Fixed", "Linear", "Steps", "Strategy"]


class Strategy(Protocol):
    """A rule by which waits grow.

    Attributes:
        name: the name of the strategy in policies written as text.
    """

    name: ClassVar[str]

    def value(self, n: int) -> float:
        """Return the wait after the n-th failure, before cap and jitter, in seconds."""
        ...


@value(frozen=True, slots=True)
class Fixed:
    """`base` seconds, always. The only strategy whose wait may be 0."""

    name: ClassVar[str] = "fixed"
    base: float

    def __post_init__(self) -> None:
        """Check the base and convert it to a float; OptionError names the wrong value."""
        checks.hold(self, base="no_delay")

    def value(self, _n: int) -> float:
        """Return the base, in seconds."""
        return self.base


@value(frozen=True, slots=True)
class Linear:
    """`n * base` seconds after the n-th failure."""

    name: ClassVar[str] = "linear"
    base: float

    def __post_init__(self) -> None:
        """Check that the wait is above 0 and convert to floats; OptionError names the wrong value."""
        checks.hold(self, base="delay")

    def value(self, n: int) -> float:
        """Return n times the base, in seconds."""
        try:
            return n * self.base
        except OverflowError:
            return math.inf


@value(frozen=True, slots=True)
class Exponential:
    """`base * multiplier**(n - 1)` seconds after the n-th failure; the exponent stops at `max_exponent`, if given."""

    name: ClassVar[str] = "exponential"
    base: float
    multiplier: float
    max_exponent: int | None = None

    def __post_init__(self) -> None:
        """Check that the wait is above 0 and convert to floats; OptionError names the wrong value."""
        checks.hold(self, "multiplier", "max_exponent", base="delay")

    def value(self, n: int) -> float:
        """Return the base multiplied n - 1 times, in seconds."""
        exponent = n - 1
        if self.max_exponent is not None and exponent > self.max_exponent:
            exponent = self.max_exponent
        return _grown(self.base, self.multiplier, exponent)


@value(frozen=True, slots=True)
class Steps:
    """The waits of a list, one after the other; after its end, the last one, multiplied each time (by 1: unchanged)."""

    name: ClassVar[str] = "steps"
    waits: tuple[float, ...]
    multiplier: float

    def __post_init__(self) -> None:
        """Check that the list is not empty and convert it to floats; OptionError names the wrong value."""
        checks.hold(self, "multiplier", waits="steps")

    def value(self, n: int) -> float:
        """Return the n-th wait of the list, or the wait grown from the last one, in seconds."""
        beyond = n - len(self.waits)
        return self.waits[n - 1] if beyond <= 0 else _grown(self.waits[-1], self.multiplier, beyond)


@value(frozen=True, slots=True)
class Decorrelated:
    """Drawn uniformly from `base` to three times the previous wait; the first from `base` to three times `base`.

    This strategy combines growth and jitter, so no other jitter can be added. The result depends on the previous draw,
    which the caller passes in: a policy holds no state.
    """

    name: ClassVar[str] = "decorrelated"
    reach: ClassVar[float] = 3.0
    """The largest ratio of a wait to the previous one."""
    base: float

    def __post_init__(self) -> None:
        """Check that the wait is above 0 and convert to floats; OptionError names the wrong value."""
        checks.hold(self, base="delay")

    def value(self, n: int) -> float:
        """Return the mean of the n-th wait without a cap, in seconds.

        A uniform draw from b to 3m has the mean (b + 3m) / 2; starting from m = b, this comes to
        2b * 1.5**n - b.
        """
        return _grown(2 * self.base, self.reach / 2, n) - self.base

    def largest_before(self, n: int) -> float:
        """Return the largest possible wait before the n-th, without a cap, in seconds."""
        return _grown(self.base, self.reach, n - 1)


STRATEGIES: tuple[type[Fixed | Linear | Exponential | Steps | Decorrelated], ...] = (
    Fixed,
    Linear,
    Exponential,
    Steps,
    Decorrelated,
)
"""All strategies, by the name used for them in text."""


def _grown(base: float, multiplier: float, times: int) -> float:
    try:
        return base * multiplier**times
    except OverflowError:
        return math.inf
