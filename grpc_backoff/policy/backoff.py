"""Backoff policies: how long to wait after the n-th failure.

A policy combines a strategy, a cap and a jitter, and computes waits as a pure function of numbers. Nothing here reads a
clock, owns a random generator, or depends on what is being retried. All times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import count
from operator import index
from typing import TYPE_CHECKING, Protocol, SupportsIndex

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.exponential import Exponential, Strategy
from grpc_backoff.policy.proportional import Jitter, Window

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from grpc_backoff.policy.strategy import Decorrelated

_KEPT = 256
_LARGEST = 1e300  # seconds; even with jitter, a float can hold the result


class Random(Protocol):
    """A source of random numbers; `random.Random` is one."""

    def random(self) -> float:
        """Return a random number, uniformly distributed in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """A backoff policy: a strategy by which waits grow, a cap in seconds, and the jitter that spreads the waits.

    Jitter does not affect later waits, so it does not accumulate. The exception is `Decorrelated`, which derives each
    wait from the one drawn before it.
    """

    strategy: Strategy
    cap: float
    jitter: Jitter
    _windows: dict[int, Window] = field(init=False, repr=False, compare=False, default_factory=dict)
    """A cache of windows by the number of the failure, because computing a window costs more than drawing from it."""

    def __post_init__(self) -> None:
        """Check the values; OptionError if one is invalid. A cap below the base also limits the first wait."""
        if not callable(getattr(self.strategy, "value", None)):
            raise OptionError("BackoffPolicy.strategy", self.strategy, "a strategy such as Exponential(1.0, 2.0)")
        if not callable(getattr(self.jitter, "window", None)):
            raise OptionError("BackoffPolicy.jitter", self.jitter, "a jitter such as Proportional(0.2)")
        checks.hold(self, {"cap": checks.duration})
        if is_decorrelated(self.strategy):
            from grpc_backoff.policy.jitter import NoJitter  # noqa: PLC0415 - few policies are decorrelated

            expected = "NoJitter(), since Decorrelated has its own jitter"
            if not isinstance(self.jitter, NoJitter):
                raise OptionError("BackoffPolicy.jitter", self.jitter, expected)

    @property
    def first(self) -> float:
        """The first wait without jitter, in seconds; that of decorrelated backoff is its shortest."""
        return min(self.strategy.base, self.cap) if is_decorrelated(self.strategy) else self.nominal(1)

    def nominal(self, n: int) -> float:
        """Return the wait after the n-th failure without jitter, in seconds; `n` counts from 1.

        Decorrelated backoff has no wait without jitter, so its nominal wait is the mean of the n-th wait, capped.
        """
        check_number(n)
        return min(self.strategy.value(n), self.cap, _LARGEST)

    def delay(self, n: int, rng: Random, previous: float | None = None) -> float:
        """Return the wait after the n-th failure, in seconds, using one random number; `n` counts from 1.

        Args:
            n: the number of failures in a row so far.
            rng: the source of random numbers (CB-11).
            previous: the previous wait, in seconds. Only decorrelated backoff uses it; None stands for the largest
                possible previous wait.
        """
        return self.window(n, previous).at(rng.random())

    def delays(self, rng: Random) -> Iterator[float]:
        """Yield the waits for one series of failures, in seconds, endlessly; each is drawn on demand."""
        previous = None
        for n in count(1):
            previous = self.window(n, previous).at(rng.random())
            yield previous

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the smallest and largest values that `delay(n)` can return, in seconds."""
        window = self.window(n)
        return window.at(0.0), window.at(1.0)

    def expected(self, n: int) -> float:
        """Return the mean of the n-th wait, jitter included, in seconds."""
        if is_decorrelated(self.strategy):
            check_number(n)
            return self.strategy.mean(n, min(self.cap, _LARGEST))
        return self.window(n).mean

    def window(self, n: int, previous: float | None = None) -> Window:
        """Return the window from which the n-th wait is drawn, in seconds; `previous` is as in `delay`."""
        window = self._windows.get(n) if type(n) is int else None  # True and 1.0 are equal to 1 as dictionary keys
        if window is None:
            check_number(n)
            window = self._window(n, previous)
            if len(self._windows) < _KEPT and not is_decorrelated(self.strategy):
                self._windows[n] = window
        return window

    def _window(self, n: int, previous: float | None) -> Window:
        strategy, cap = self.strategy, min(self.cap, _LARGEST)
        if is_decorrelated(strategy):
            low = min(strategy.base, cap)
            if previous is None:
                previous = min(strategy.largest_before(n), cap)
            # A file that changes may give a policy a larger base in the middle of a series.
            return Window(low, strategy.reach * max(previous, low) - low, cap)
        return self.jitter.window(min(strategy.value(n), _LARGEST), cap)


def is_decorrelated(strategy: Strategy) -> TypeIs[Decorrelated]:
    """Return whether this is the strategy that every policy treats apart, because it draws each wait from the last."""
    if type(strategy) is Exponential:
        return False
    from grpc_backoff.policy.strategy import Decorrelated  # noqa: PLC0415 - a policy with another has loaded it

    return isinstance(strategy, Decorrelated)


def check_number(n: object) -> None:
    """Check a count of failures: TypeError if it is not a whole number, ValueError if it is less than 1."""
    if type(n) is not int and (isinstance(n, bool) or not isinstance(n, SupportsIndex)):  # a protocol check is slow
        raise TypeError(f"n={n!r}: expected a whole number: the count of failures so far")
    if index(n) < 1:
        raise ValueError(f"n={n!r}: expected at least 1, since failures are counted from 1")
