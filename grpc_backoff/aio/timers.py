"""The timers for one channel's calls, which share a single timer on the clock.

A thousand pending calls have a thousand deadlines, but few calls ever reach theirs. Arming and cancelling one of the
event loop's timers takes several microseconds; one of these takes less than one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from grpc_backoff.connection.clock import Clock, TimerHandle

_FEW = 64
"""How many cancelled timers may accumulate before they are removed."""


class CallTimer:
    """A callback that is scheduled for a certain time."""

    __slots__ = ("_timers", "callback")

    def __init__(self, timers: CallTimers, callback: Callable[[], None]) -> None:
        """Store the arguments."""
        self._timers = timers
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback; harmless if it has run."""
        if self.callback is not None:
            self.callback = None
            self._timers.note_end()


class CallTimers:
    """The timers for one channel's calls, on the channel's event loop."""

    def __init__(self, clock: Clock) -> None:
        """Start without timers."""
        self._clock = clock
        self._queue: list[tuple[float, int, CallTimer]] = []
        self._numbers = itertools.count()
        self._live = 0
        self._shared: TimerHandle | None = None
        self._due = math.inf

    def call_at(self, when: float, callback: Callable[[], None]) -> CallTimer:
        """Call `callback` once when the clock reaches `when`, in seconds, or soon after."""
        timer = CallTimer(self, callback)
        heapq.heappush(self._queue, (when, next(self._numbers), timer))
        self._live += 1
        if when < self._due:
            self._arm(when)
        return timer

    def note_end(self) -> None:
        """Count a timer that has been cancelled, and release timers that are no longer needed (CB-10)."""
        self._live -= 1
        if not self._live:
            self._queue.clear()
            self._arm(math.inf)
        elif len(self._queue) > _FEW and self._live < len(self._queue) // 2:
            self._queue = [entry for entry in self._queue if entry[2].callback is not None]
            heapq.heapify(self._queue)

    def _arm(self, when: float) -> None:
        if self._shared is not None:
            self._shared.cancel()
            self._shared = None
        self._due = when
        if when < math.inf:
            self._shared = self._clock.call_at(when, self._fire)

    def _fire(self) -> None:
        self._shared, self._due = None, math.inf
        now = self._clock.now()
        try:
            while self._queue and self._queue[0][0] <= now:
                timer = heapq.heappop(self._queue)[2]
                callback, timer.callback = timer.callback, None
                if callback is not None:
                    self._live -= 1
                    callback()
        finally:  # also after a callback that raises
            if self._queue and self._queue[0][0] < self._due:
                self._arm(self._queue[0][0])
