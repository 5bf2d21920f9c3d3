"""The conductor's timers, which any thread arms and cancels. Most are cancelled long before they are due."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections.abc import Callable
from queue import Empty, SimpleQueue

from grpc_backoff.base.threads import new_queue

_FEW = 64
"""How many timers accumulate before cancelled ones are removed. After each removal, twice the remaining number may
accumulate, if that is more."""

Work = Callable[[], object]


class Timer:
    """A piece of work that is scheduled for a certain time."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work: Work | None = work

    def cancel(self) -> None:
        """Cancel the work; harmless if it has run. Thread-safe."""
        self.work = None


class Timers:
    """The timers that one thread runs. The methods are for that thread, except `pass_on`.

    Attributes:
        wakes: when the thread looks at the timers at the latest; infinity if there is no thread, or no such time.
    """

    def __init__(self) -> None:
        self.wakes = math.inf
        self._kept: list[tuple[float, int, Timer]] = []
        self._passed_on: SimpleQueue[tuple[float, Timer]] = new_queue()
        self._most = _FEW
        self._numbers = itertools.count()

    def pass_on(self, when: float, timer: Timer) -> bool:
        """Let the thread keep a timer; return whether it must be woken for that. Thread-safe."""
        self._passed_on.put((when, timer))  # before the check: the thread looks here once more after it has set `wakes`
        return when < self.wakes or self._passed_on.qsize() > _FEW

    def keep(self, when: float, timer: Timer) -> None:
        """Keep a timer until it is due."""
        if len(self._kept) >= self._most:
            self._kept = [kept for kept in self._kept if kept[2].work is not None]
            heapq.heapify(self._kept)
            self._most = max(_FEW, 2 * len(self._kept))
        heapq.heappush(self._kept, (when, next(self._numbers), timer))

    def wait_until(self, latest: float) -> float:
        """Return until when the thread may wait, if it would wait until `latest` without timers."""
        while True:
            self._keep_passed_on()
            self.wakes = min(latest, self._next())
            if self._passed_on.empty():
                return self.wakes

    def _keep_passed_on(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                when, timer = self._passed_on.get_nowait()
                if timer.work is not None:
                    self.keep(when, timer)

    def _next(self) -> float:
        while self._kept and self._kept[0][2].work is None:
            heapq.heappop(self._kept)
        return self._kept[0][0] if self._kept else math.inf

    def take_due(self, now: float) -> Work | None:
        """Return the work that has been due for the longest time, and forget it; None if none is due."""
        while self._kept and self._kept[0][0] <= now:
            timer = heapq.heappop(self._kept)[2]
            work, timer.work = timer.work, None
            if work is not None:
                return work
        return None

    def renew(self) -> None:
        """Replace the queue, before the thread starts; see `Conductor._renew`."""
        before, self._passed_on = self._passed_on, new_queue()
        while not before.empty():
            self._passed_on.put(before.get_nowait())
