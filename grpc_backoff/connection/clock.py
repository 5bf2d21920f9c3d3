"""Time as the connection layer sees it: a monotonic clock that can also call back (CB-12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "TimerHandle"]


class TimerHandle(Protocol):
    """A callback that was asked for and can be taken back."""

    def cancel(self) -> None:
        """Take it back; harmless when it has run."""
        ...


class Clock(Protocol):
    """A monotonic clock. The wall clock is never asked."""

    def now(self) -> float:
        """Return the time in seconds; only differences mean something."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back once at `when` or soon after, on the event loop; at once if it has passed."""
        ...
