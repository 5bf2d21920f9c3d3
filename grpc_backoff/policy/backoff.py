"""How long to wait after the n-th failure: strategy, cap, jitter.

Numbers in, numbers out. Nothing here knows what is being retried, reads a clock or owns a random generator.
All times are seconds.
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
_LARGEST = 1e300  # seconds; no jitter makes more of it than a float can hold


class Random(Protocol):
    """A source of random numbers; `random.Random` is one."""

    def random(self) -> float:
        """Return a number drawn evenly from [0, 1)."""
        ...


@value(frozen=True, slots=True)
class BackoffPolicy:
    """A backoff as a value: what grows, where growth ends, and how it is spread.

    No jitter ever feeds into the next value, so none compounds; `Decorrelated` is the one growth that goes on from what
    was drawn before, by design.
    """

    strategy: Strategy
    cap: float
    jitter: Jitter
    _windows: dict[int, Window] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The windows that were drawn from before, by failure: making one costs more than drawing from it."""

    def __post_init__(self) -> None:
        """Refuse a cap that is no time; OptionError says the value. One below the base caps the first wait as well."""
        if not callable(getattr(self.strategy, "value", None)):
            raise OptionError("BackoffPolicy.strategy", self.strategy, "a strategy such as Exponential(1.0, 2.0)")
        if not callable(getattr(self.jitter, "window", None)):
            raise OptionError("BackoffPolicy.jitter", self.jitter, "a jitter such as Proportional(0.2)")
        checks.hold(self, cap="max_delay")
        if isinstance(self.strategy, Decorrelated) and not isinstance(self.jitter, NoJitter):
            raise OptionError("BackoffPolicy.jitter", self.jitter, "NoJitter(), since Decorrelated has its own jitter")

    def nominal(self, n: int) -> float:
        """Return the wait after the n-th failure without jitter, in seconds; `n` counts from 1.

        A decorrelated backoff has no such wait: this is the mean of what it draws, capped.
        """
        check_number(n)
        return min(self.strategy.value(n), self.cap, _LARGEST)

    def delay(self, n: int, rng: Random, previous: float | None = None) -> float:
        """Return the wait after the n-th failure, in seconds; `n` counts from 1. Draws one number.

        Args:
            n: which failure in a row this is.
            rng: where chance comes from (CB-11).
            previous: the wait before this one, in seconds. Only a decorrelated backoff looks at it; without it, it is
                taken for the largest that it may have been.
        """
        return self.window(n, previous).at(rng.random())

    def delays(self, rng: Random) -> Iterator[float]:
        """Return the waits of one series of failures, without end, each drawn when it is asked for."""
        previous = None
        for n in count(1):
            previous = self.window(n, previous).at(rng.random())
            yield previous

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the smallest and the largest value that `delay(n)` can have."""
        window = self.window(n)
        return window.at(0.0), window.at(1.0)

    def window(self, n: int, previous: float | None = None) -> Window:
        """Return what the n-th wait is drawn from, in seconds; `previous` as for `delay`."""
        window = self._windows.get(n) if type(n) is int else None  # True and 1.0 are found there too
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
    """Refuse what does not count failures: TypeError for what is no whole number, ValueError for less than 1."""
    if type(n) is not int and (isinstance(n, bool) or not isinstance(n, SupportsIndex)):  # the protocol's check is slow
        raise TypeError(f"n={n!r}: expected a whole number, since failures are counted")
    if index(n) < 1:
        raise ValueError(f"n={n!r}: expected at least 1, since failures are counted from 1")
