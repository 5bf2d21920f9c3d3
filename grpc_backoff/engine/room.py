"""How many more calls connections may carry, and the calls that wait for room, for both APIs (PO-14)."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from grpc_backoff.decide.connections.pick import FULL, counts_for

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock, TimerHandle
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.pending import CallQueue

_FILL_EVERY = 0.001
"""How often calls that wait for room are started at most, in seconds, so that one wake-up serves many."""


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


class Rooms:
    """The rooms of a pool's connections, each for the same number of calls.

    Attributes:
        most: how many calls a connection carries.
    """

    def __init__(self, most: int, clock: Clock, refill: Callable[[], None]) -> None:
        """Start without connections; `refill` is called when there may be room for calls that wait."""
        self.most = most
        self._clock = clock
        self._refill = refill
        self._timer: TimerHandle | None = None
        """Armed while calls wait for room, until the next ended call is no longer counted."""

    @property
    def refills(self) -> bool:
        """Whether calls that wait for room are started as soon as an ended call is no longer counted. Thread-safe."""
        return self._timer is not None

    def give(self, connection: GatedConnection, left: Callable[[], object]) -> None:
        """Limit the calls of a new connection; `left` is called when one has ended, and must not keep a pool alive."""
        connection.room = Room(self.most, self._clock.now, left)

    def load(self, connection: GatedConnection) -> int:
        """Return how many calls a connection has, as far as that counts for the next one. Thread-safe."""
        room = connection.room
        if room is None or connection.gated is not None:  # its slot is about to serve, or its peer has to answer first
            return FULL
        return room.taken()

    def open(self, connections: Iterable[GatedConnection]) -> list[Room]:
        """Return the rooms of those of these connections that are up and that calls may enter."""
        alive = [connection for connection in connections if connection.alive()]
        return [connection.room for connection in alive if connection.gated is None and connection.room is not None]

    def fill(self, pending: CallQueue, connections: Iterable[GatedConnection]) -> tuple[int, int]:
        """Start as many of the pending calls as there is room for; return how many were pending at last, and the room.

        On threads, a call that was told of room leaves the queue later.
        """
        rooms, free = self.open(connections), 0
        while waiting := len(pending):
            free = sum(max(0, self.most - room.taken()) for room in rooms)
            if free:
                pending.release(free)
            if not free or len(pending) == waiting:
                break
        return waiting, free

    def fill_later(self, connections: Iterable[GatedConnection]) -> None:
        """Start more calls when the next ended call is no longer counted."""
        next_free = min((room.next_free() for room in self.open(connections)), default=math.inf)
        if self._timer is None and next_free < math.inf:
            self._timer = self._clock.call_at(max(next_free, self._clock.now() + _FILL_EVERY), self._due)

    def _due(self) -> None:
        self._timer = None
        self._refill()

    def close(self) -> None:
        """Start no more calls."""
        if self._timer is not None:
            self._timer.cancel()
