"""A clock under the test's control."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

_TURNS = 20
"""The number of event loop turns in which tasks can react to a callback before the clock moves on."""


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A `Clock` that only the test advances. Callbacks run in order, each at its own time.

    Use it with a `ScriptedConnector`: on a clock that jumps, grpc itself would time out for no reason.
    """

    def __init__(self, start: float = 1000.0) -> None:
        """Start the clock at `start` seconds."""
        self._now = start
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Return the clock's time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        """Call `callback` once the clock has reached `when`, in seconds."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def armed(self) -> list[float]:
        """Return the times at which callbacks are due, in seconds, in order."""
        return sorted(when for when, _, timer in self._timers if timer.callback is not None)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced by `seconds`."""
        done = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        timer = self.call_at(self._now + seconds, wake)
        try:
            await done
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`, stopping at each time at which a callback is due."""
        end = self._now + seconds
        await _let_tasks_run()
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                self._now = max(self._now, when)
                timer.callback()
                await _let_tasks_run()
        self._now = end

    async def jump(self, seconds: float) -> None:
        """Advance by `seconds` in one step. Callbacks run late, as after a blocked loop or a suspended machine."""
        self._now += seconds
        await self.advance(0.0)


async def _let_tasks_run() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
