"""Strategies: how waits grow with the number of failures, before cap and jitter.

Each strategy is a frozen value. `value(n)` is the wait after the n-th failure in seconds, with `n` counted from 1.
Computing it takes no longer for a large `n`, and the result is infinite if a float cannot hold it (CB-13).
"""

from __future__ import annotations

import math
from typing import ClassVar

from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.exponential import Decorrelated, Exponential, grown


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always waits `base` seconds. Only this strategy allows a wait of 0."""

    name: ClassVar[str] = "fixed"
    base: float

    def __post_init__(self) -> None:
        """Check the base and convert it to a float; OptionError if it is invalid."""
        checks.hold(self, {"base": checks.pause})

    def value(self, _n: int) -> float:
        """Return the base, in seconds."""
        return self.base


@dataclass(frozen=True, slots=True)
class Linear:
    """Waits `n * base` seconds after the n-th failure."""

    name: ClassVar[str] = "linear"
    base: float

    def __post_init__(self) -> None:
        """Check that the base is above 0 and convert it to a float; OptionError if it is invalid."""
        checks.hold(self, {"base": checks.duration})

    def value(self, n: int) -> float:
        """Return n times the base, in seconds."""
        try:
            return n * self.base
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Steps:
    """Takes the waits from a list; past the end of the list, multiplies the last wait by `multiplier` each time."""

    name: ClassVar[str] = "steps"
    waits: tuple[float, ...]
    multiplier: float

    def __post_init__(self) -> None:
        """Check that the list is not empty and convert it to floats; OptionError if a field is invalid."""
        checks.hold(self, {"multiplier": checks.growth, "waits": checks.steps})

    def value(self, n: int) -> float:
        """Return the n-th wait in the list; past its end, the last wait multiplied once for each further failure."""
        beyond = n - len(self.waits)
        return self.waits[n - 1] if beyond <= 0 else grown(self.waits[-1], self.multiplier, beyond)


STRATEGIES: tuple[type[Fixed | Linear | Exponential | Steps | Decorrelated], ...] = (
    Fixed,
    Linear,
    Exponential,
    Steps,
    Decorrelated,
)
"""All strategies. Policies written as text refer to them by `name`."""
