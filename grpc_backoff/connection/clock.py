"""The interface (a typing protocol) for a monotonic clock with timers (CB-12)."""

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
    """A monotonic clock with timers; the wall clock is never used (CB-12)."""

    def now(self) -> float:
        """Return the current time in seconds; only differences between times are meaningful."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once when the clock reaches `when`, in seconds, or soon after; at once if `when` has passed.

        The clock of an asyncio channel calls back on the channel's event loop.
        """
        ...
