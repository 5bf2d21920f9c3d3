"""Timers that share one of the clock's: hedged calls arm one each, and most cancel it long before it is due (HG-1)."""

from __future__ import annotations

from collections.abc import Callable

from grpc_backoff.connection.clock import Clock, TimerHandle


class OrderedTimers:
    """Timers that are due in the order in which they are armed, as those of calls with the same hedging delay are."""

    __slots__ = ("_armed", "_clock", "_handle", "_timers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[_OrderedTimer, float] = {}  # in order, with the times at which they are due
        self._armed = False
        self._handle: TimerHandle | None = None

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once when the clock reaches `when`, in seconds; `when` never decreases."""
        timer = _OrderedTimer(self._timers, callback)
        self._timers[timer] = when
        try:
            if not self._armed:
                self._arm(when)
        except BaseException:
            timer.cancel()
            raise
        return timer

    def _arm(self, when: float) -> None:
        self._armed = True  # first, because a program's clock may call back at once
        try:
            self._handle = self._clock.call_at(when, self._fired)
        except BaseException:  # from that clock
            self._armed = False
            raise

    def _fired(self) -> None:
        self._armed = False
        now = self._clock.now()
        try:
            while self._timers:
                timer, when = next(iter(self._timers.items()))
                if now < when:
                    break
                timer.cancel()
                timer.callback()
        finally:
            if self._timers and not self._armed:
                self._arm(next(iter(self._timers.values())))

    def close(self) -> None:
        """Cancel all timers, and the clock's (CB-10)."""
        self._timers.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._armed, self._handle = False, None


class _OrderedTimer:
    __slots__ = ("_timers", "callback")

    def __init__(self, timers: dict[_OrderedTimer, float], callback: Callable[[], None]) -> None:
        self._timers = timers
        self.callback = callback

    def cancel(self) -> None:
        self._timers.pop(self, None)
