"""How long to wait after the n-th failure: strategy, cap, jitter.

A pure function of numbers: nothing here knows what is being retried, reads a clock or owns a random generator.
All times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from operator import index
from typing import Protocol, SupportsIndex

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.jitter import Jitter, NoJitter, Window
from grpc_backoff.policy.strategy import Decorrelated, Strategy
from grpc_backoff.record import field, value

__all__ = ["BackoffPolicy", "Random", "check_number"]

_KEPT = 256
_LARGEST = 1e300  # seconds; even with jitter, a float can hold the result


class Random(Protocol):
    """A source of random numbers; `random.Random` is one."""

    def random(self) -> float:
        """Return a number drawn evenly from [0, 1)."""
        ...


@value(frozen=True, slots=True)
class BackoffPolicy:
    """A backoff as a value: how the wait grows, where growth ends, and how the wait is spread.

    Jitter never feeds into the next wait, so it does not compound. `Decorrelated` is the exception: it grows from the
    previous drawn wait, by design.
    """

    strategy: Strategy
    cap: float
    jitter: Jitter
    _windows: dict[int, Window] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The windows already computed, by failure: computing one costs more than drawing from it."""

    def __post_init__(self) -> None:
        """Check the values; OptionError names the wrong one. A cap below the base also caps the first wait."""
        if not callable(getattr(self.strategy, "value", None)):
            raise OptionError("BackoffPolicy.strategy", self.strategy, "a strategy such as Exponential(1.0, 2.0)")
        if not callable(getattr(self.jitter, "window", None)):
            raise OptionError("BackoffPolicy.jitter", self.jitter, "a jitter such as Proportional(0.2)")
        checks.hold(self, cap="max_delay")
        if isinstance(self.strategy, Decorrelated) and not isinstance(self.jitter, NoJitter):
            raise OptionError("BackoffPolicy.jitter", self.jitter, "NoJitter(), since Decorrelated has its own jitter")

    def nominal(self, n: int) -> float:
        """Return the wait after the n-th failure without jitter, in seconds; `n` counts from 1.

        Decorrelated backoff has no such wait: this returns the mean of what it draws, capped.
        """
        check_number(n)
        return min(self.strategy.value(n), self.cap, _LARGEST)

    def delay(self, n: int, rng: Random, previous: float | None = None) -> float:
        """Return the wait after the n-th failure, in seconds; `n` counts from 1. Draws one number.

        Args:
            n: which failure in a row this is.
            rng: the source of random numbers (CB-11).
            previous: the previous wait, in seconds. Only decorrelated backoff uses it; without it, the largest
                possible previous wait is assumed.
        """
        return self.window(n, previous).at(rng.random())

    def delays(self, rng: Random) -> Iterator[float]:
        """Yield the waits of one series of failures, in seconds, without end; each is drawn when requested."""
        previous = None
        for n in count(1):
            previous = self.window(n, previous).at(rng.random())
            yield previous

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the smallest and the largest value that `delay(n)` can return, in seconds."""
        window = self.window(n)
        return window.at(0.0), window.at(1.0)

    def window(self, n: int, previous: float | None = None) -> Window:
        """Return the window from which the n-th wait is drawn, in seconds; `previous` as for `delay`."""
        window = self._windows.get(n) if type(n) is int else None  # True and 1.0 are equal to 1 as dictionary keys
        if window is None:
            check_number(n)
            window = self._window(n, previous)
            if len(self._windows) < _KEPT and not isinstance(self.strategy, Decorrelated):
                self._windows[n] = window
        return window

    def _window(self, n: int, previous: float | None) -> Window:
        strategy, cap = self.strategy, min(self.cap, _LARGEST)
        if isinstance(strategy, Decorrelated):
            low = min(strategy.base, cap)
            if previous is None:
                previous = min(strategy.largest_before(n), cap)
            return Window(low, strategy.reach * previous - low, cap)
        return self.jitter.window(min(strategy.value(n), _LARGEST), cap)


def check_number(n: object) -> None:
    """Check a count of failures: TypeError if it is not a whole number, ValueError if it is less than 1."""
    if type(n) is not int and (isinstance(n, bool) or not isinstance(n, SupportsIndex)):  # the protocol's check is slow
        raise TypeError(f"n={n!r}: expected a whole number: the count of failures so far")
    if index(n) < 1:
        raise ValueError(f"n={n!r}: expected at least 1, since failures are counted from 1")
