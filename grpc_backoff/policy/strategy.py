"""How a wait grows with the number of failures, before any cap or jitter.

Each strategy is a value. `value(n)` is the wait after the n-th failure in seconds, `n` from 1; it costs the same for
every `n`, and is infinite where no float can hold it (CB-13).
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

from grpc_backoff.policy import checks
from grpc_backoff.record import value

__all__ = ["STRATEGIES", "Decorrelated", "Exponential", "Fixed", "Linear", "Steps", "Strategy"]


class Strategy(Protocol):
    """A growth.

    Attributes:
        name: what it is called where policies are written as text.
    """

    name: ClassVar[str]

    def value(self, n: int) -> float:
        """Return the wait after the n-th failure, before cap and jitter."""
        ...


@value(frozen=True, slots=True)
class Fixed:
    """`base` seconds, always. The only strategy that may not wait at all."""

    name: ClassVar[str] = "fixed"
    base: float

    def __post_init__(self) -> None:
        """Refuse what is no time, and keep a float; OptionError says which value."""
        checks.hold(self, base="no_delay")

    def value(self, _n: int) -> float:
        """Return the base."""
        return self.base


@value(frozen=True, slots=True)
class Linear:
    """`n * base` seconds after the n-th failure."""

    name: ClassVar[str] = "linear"
    base: float

    def __post_init__(self) -> None:
        """Refuse what would never wait, and keep floats; OptionError says which value."""
        checks.hold(self, base="delay")

    def value(self, n: int) -> float:
        """Return n times the base."""
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
        """Refuse what would never wait, and keep floats; OptionError says which value."""
        checks.hold(self, "multiplier", "max_exponent", base="delay")

    def value(self, n: int) -> float:
        """Return the base, multiplied n - 1 times."""
        exponent = n - 1
        if self.max_exponent is not None and exponent > self.max_exponent:
            exponent = self.max_exponent
        return _grown(self.base, self.multiplier, exponent)


@value(frozen=True, slots=True)
class Steps:
    """The waits of a list, one after the other; then its last one, multiplied each time (by 1: unchanged)."""

    name: ClassVar[str] = "steps"
    waits: tuple[float, ...]
    multiplier: float

    def __post_init__(self) -> None:
        """Refuse an empty list and what is no time, and keep floats; OptionError says which value."""
        checks.hold(self, "multiplier", waits="steps")

    def value(self, n: int) -> float:
        """Return the n-th wait of the list, or what grew from its last."""
        beyond = n - len(self.waits)
        return self.waits[n - 1] if beyond <= 0 else _grown(self.waits[-1], self.multiplier, beyond)


@value(frozen=True, slots=True)
class Decorrelated:
    """Drawn evenly from `base` to three times the wait before; the first from `base` to three times `base`.

    Growth and jitter in one, so no other jitter goes with it. What it draws depends on what was drawn before, which the
    caller hands in: a policy holds no state.
    """

    name: ClassVar[str] = "decorrelated"
    reach: ClassVar[float] = 3.0
    """How many times the wait before the next may be."""
    base: float

    def __post_init__(self) -> None:
        """Refuse what would never wait, and keep floats; OptionError says which value."""
        checks.hold(self, base="delay")

    def value(self, n: int) -> float:
        """Return the mean of all n-th waits, were there no cap.

        The mean of an even draw from b to 3m is (b + 3m) / 2; from m = b before the first this comes to
        2b * 1.5**n - b.
        """
        return _grown(2 * self.base, self.reach / 2, n) - self.base

    def largest_before(self, n: int) -> float:
        """Return the largest wait that may have been before the n-th, were there no cap."""
        return _grown(self.base, self.reach, n - 1)


STRATEGIES: tuple[type[Fixed | Linear | Exponential | Steps | Decorrelated], ...] = (
    Fixed,
    Linear,
    Exponential,
    Steps,
    Decorrelated,
)
"""All strategies, each with the name by which text asks for it."""


def _grown(base: float, multiplier: float, times: int) -> float:
    try:
        return base * multiplier**times
    except OverflowError:
        return math.inf
