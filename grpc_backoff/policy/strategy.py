"""Strategies: how waits grow with the number of failures, before cap and jitter.

Each strategy is a frozen value. `value(n)` is the wait after the n-th failure in seconds, with `n` counted from 1.
Computing it takes no longer for a large `n`, and the result is infinite if a float cannot hold it (CB-13).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import ClassVar

from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.exponential import Decorrelated, Exponential, grown


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
