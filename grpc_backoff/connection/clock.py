"""Time in the connection layer: a monotonic clock with timers (CB-12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "TimerHandle"]


class TimerHandle(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback; harmless if it has already run."""
        ...


class Clock(Protocol):
    """A monotonic clock. The wall clock is never used."""

    def now(self) -> float:
        """Return the time in seconds; only differences are meaningful."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back once, at `when` or soon after, on the event loop; at once if that time has passed."""
        ...
