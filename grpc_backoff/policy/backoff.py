"""How long to wait after the n-th failure: strategy, cap, jitter.

Numbers in, numbers out. Nothing here knows what is being retried, reads a clock or owns a random generator.
All times are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from grpc_backoff.policy import checks

__all__ = ["BackoffPolicy", "Exponential", "Proportional", "Uniform"]


class Uniform(Protocol):
    """A source of random numbers; `random.Random` is one."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number drawn evenly from [a, b]."""
        ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """`base * multiplier**(n - 1)` seconds after the n-th failure."""

    base: float
    multiplier: float

    def __post_init__(self) -> None:
        """Refuse what would never wait; OptionError says which value."""
        checks.duration("Exponential.base", self.base)
        checks.growth("Exponential.multiplier", self.multiplier)

    def value(self, n: int) -> float:
        """Return the wait before cap and jitter; infinite where a float cannot hold it (CB-13)."""
        try:
            return self.base * self.multiplier ** (n - 1)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Proportional:
    """Plus or minus `fraction` of the capped value, drawn evenly; the result may pass the cap (CB-5)."""

    fraction: float

    def __post_init__(self) -> None:
        """Refuse what could make a wait negative; OptionError says which value."""
        checks.fraction("Proportional.fraction", self.fraction)

    def apply(self, value: float, rng: Uniform) -> float:
        """Return `value` moved by a random part of itself."""
        spread = self.fraction * value
        return value + rng.uniform(-spread, spread)

    def bounds(self, value: float) -> tuple[float, float]:
        """Return the smallest and the largest result of `apply`."""
        spread = self.fraction * value
        return value - spread, value + spread


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """A backoff as a value: what grows, where growth ends, and how it is spread.

    The cap applies before the jitter, and the jitter never feeds into the next value: it does not compound.
    """

    strategy: Exponential
    cap: float
    jitter: Proportional

    def __post_init__(self) -> None:
        """Refuse a cap that is no time; OptionError says the value. One below the base caps the first wait as well."""
        checks.duration("BackoffPolicy.cap", self.cap)

    def nominal(self, n: int) -> float:
        """Return the wait after the n-th failure without jitter, in seconds; `n` counts from 1."""
        if n < 1:
            raise ValueError(f"n is {n}; failures count from 1")
        return min(self.strategy.value(n), self.cap)

    def delay(self, n: int, rng: Uniform) -> float:
        """Return the wait after the n-th failure, in seconds; `n` counts from 1."""
        return self.jitter.apply(self.nominal(n), rng)

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the smallest and the largest value that `delay(n)` can have."""
        return self.jitter.bounds(self.nominal(n))
