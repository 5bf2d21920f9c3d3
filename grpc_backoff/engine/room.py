"""How many more calls a connection may carry, for both APIs (PO-14)."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable

from grpc_backoff.decide.connections.pick import counts_for


class Room:
    """The calls of one connection, and those that have ended, but that its server may still count. Thread-safe."""

    def __init__(self, most: int, now: Callable[[], float], left: Callable[[], object]) -> None:
        """Start empty; `most` is how many calls there may be, and `left` is called when one has ended."""
        self._most = most
        self._now = now
        self._left = left
        self._began: dict[object, float] = {}
        self._counted: list[float] = []
        """Until when the ended calls are counted, as a heap."""
        self._lock = threading.RLock()  # reentrant, because a finalizer may make or end a call at any point

    def taken(self) -> int:
        """Return how many calls the server may count."""
        counted = self._counted
        if counted:
            with self._lock:
                now = self._now()
                while counted and counted[0] <= now:
                    heapq.heappop(counted)
        return len(self._began) + len(counted)

    def add(self, call: object) -> None:
        """Add a call, whether or not there is room for it."""
        self._began[call] = self._now()

    def enter(self, call: object) -> bool:
        """Add a call, if there is room for it; return whether there is."""
        self.add(call)  # before the check, so that of two threads, at most one takes the last place
        if self.taken() <= self._most:
            return True
        del self._began[call]
        return False

    def leave(self, call: object) -> None:
        """Record the end of a call; harmless if it has left already, or has not entered."""
        began = self._began.pop(call, None)
        if began is not None:
            now = self._now()
            with self._lock:
                heapq.heappush(self._counted, now + counts_for(now - began))
            self._left()

    def next_free(self) -> float:
        """Return until when the ended call that is counted shortest is counted; infinity if none is."""
        return min(tuple(self._counted), default=math.inf)
