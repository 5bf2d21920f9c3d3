"""Time as the connection layer sees it: a monotonic clock that can also call back (CB-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

__all__ = ["Clock", "LoopClock", "TimerHandle"]


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


class LoopClock:
    """The clock of an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the loop's own time and timers."""
        self._loop = loop
        self.now = loop.time

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back once at `when` or soon after."""
        # In a context of its own: the timer outlives the call that happened to arm it.
        return self._loop.call_at(when, callback, context=Context())
