"""How many more calls connections may carry, and the calls that wait for room, for both APIs (PO-14)."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from grpc_backoff.decide.connections.pick import FULL, counts_for

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.pool import AnyPool
    from grpc_backoff.engine.slot import SlotReceiver

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

    def __init__(self, pool: AnyPool, most: int) -> None:
        self.most = most
        self._pool = pool
        self._timer: TimerHandle | None = None
        """Armed while calls wait for room, until the next ended call is no longer counted."""

    def give(self, connection: GatedConnection, receiver: SlotReceiver) -> None:
        """Limit the calls of a new connection; the receiver of its slot is told when one has ended."""
        now = self._pool.setup.clock.now  # a connection with calls must not keep its pool alive (CB-10)
        connection.room = Room(self.most, now, receiver.left)

    def load(self, connection: GatedConnection) -> int:
        """Return how many calls a connection has, as far as that counts for the next one. Thread-safe."""
        room = connection.room
        if room is None or connection.gated is not None:  # its slot is about to serve, or its peer has to answer first
            return FULL
        return room.taken()

    def open(self) -> list[Room]:
        """Return the rooms of the serving connections that are up and that calls may enter."""
        found = [slot.manager.connection for slot in self._pool.serving_slots()]
        alive = [connection for connection in found if connection is not None and connection.alive()]
        return [connection.room for connection in alive if connection.gated is None and connection.room is not None]

    def call_left(self) -> None:
        """Handle the end of a call: another one may take its place soon. Any thread may call this."""
        if self._timer is None and len(self._pool.pending):
            self._pool.at_home(self._pool.fill)

    def fill(self) -> tuple[int, int]:
        """Start as many of the pending calls as there is room for; return how many were pending at last, and the room.

        On threads, a call that was told of room leaves the queue later.
        """
        pool, rooms, free = self._pool, self.open(), 0
        while waiting := len(pool.pending):
            free = sum(max(0, self.most - room.taken()) for room in rooms)
            if free:
                pool.pending.release(free)
            if not free or len(pool.pending) == waiting:
                break
        return waiting, free

    def fill_later(self) -> None:
        """Start more calls when the next ended call is no longer counted."""
        next_free = min((room.next_free() for room in self.open()), default=math.inf)
        if self._timer is None and next_free < math.inf:
            self._timer = self._pool.call_at(max(next_free, self._pool.now() + _FILL_EVERY), self._due)

    def _due(self) -> None:
        self._timer = None
        self._pool.fill()

    def close(self) -> None:
        """Start no more calls."""
        if self._timer is not None:
            self._timer.cancel()
