"""The one thread behind all threaded channels of a process: it keeps their timers and steps their machines (TH-5).

Whoever wants something of a connection posts it here, from any thread, and goes on. So a connection's machine and its
shell are used by one thread alone and need no lock. Nothing of the program's runs here (TH-5a): what blocks in a
listener or a callback delays nobody's dial.

The thread starts with the first piece of work of a channel and ends soon after the last channel has let go of it.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from grpc_backoff.sync.pump import Pump, needs_pump

__all__ = ["CONDUCTOR", "LOOK_EVERY", "Conductor", "Timer", "take"]

_LOG = logging.getLogger(__name__)

LOOK_EVERY = 0.2
"""How often connections that stand are looked at, in seconds: all of them together, so that it costs one wake-up."""
_LINGERS = 0.1
"""How long the thread stays when no channel is left, in seconds: a program may make a channel for each request."""
_ENDS_WITHIN = 0.5
"""How long the interpreter's exit waits for the thread, in seconds."""
_FEW = 64
"""So many timers that were taken back may lie about before they are thrown out."""

Work = Callable[[], object]
T = TypeVar("T")


def take(queue: SimpleQueue[T], timeout: float | None) -> T:
    """Return the next item, after `timeout` seconds at the latest; for a queue that one thread reads.

    `SimpleQueue.get` alone can wait for ever: CPython takes a wake-up that is left over from an item got without
    waiting for a new one, works out how much time remains, and takes a negative remainder for no limit. To ask once
    without waiting uses such a wake-up up.

    Raises:
        Empty: there was none.
    """
    with contextlib.suppress(Empty):
        return queue.get_nowait()
    return queue.get(timeout=timeout)


class Looked(Protocol):
    """Something that wants to be looked at from time to time."""

    def look(self) -> None:
        """Look whether anything has happened; never blocks."""
        ...


class Timer:
    """Something to do at a moment."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        """Not taken back yet."""
        self.work: Work | None = work

    def cancel(self) -> None:
        """Take it back; harmless when it has run. From any thread."""
        self.work = None


class Conductor:
    """A thread that does what it is told, in order, and at given times."""

    def __init__(self) -> None:
        """Begin without a thread."""
        self.now = time.monotonic
        self._begin_anew()

    def _begin_anew(self) -> None:
        # Reentrant, both: a finalizer posts from wherever the garbage collector happened to run.
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._looked: dict[Looked, None] = {}
        self._next_look = 0.0
        self._users: dict[object, None] = {}
        self._stopping = False

    def is_closed(self) -> bool:
        """Return whether nothing runs here any more: never, for the schedules of keys."""
        return False

    def is_stopped(self) -> bool:
        """Return whether the interpreter is about to exit, so that nothing is done here any more."""
        return self._stopping

    def is_here(self) -> bool:
        """Return whether the code that asks runs on the conductor's thread."""
        return threading.current_thread() is self._thread

    # What channels ask.

    def join(self, user: object) -> None:
        """Keep the thread for `user`, until it leaves."""
        self._users[user] = None

    def leave(self, user: object) -> None:
        """Have no need of the thread any more; it ends when nobody has."""
        self._users.pop(user, None)
        self.post(_nothing)  # it looks anew how long it stays

    def post(self, work: Work) -> None:
        """Have `work` done by the thread, soon and in order; from any thread, also from a finalizer."""
        self._work.put(work)
        if self._thread is None:
            self._start()

    def call_at(self, when: float, callback: Work) -> Timer:
        """Call back once at `when`, on the thread, or soon after; from any thread."""
        timer = Timer(callback)
        if self.is_here():
            self._keep(when, timer)
        else:
            self.post(lambda: self._keep(when, timer))
        return timer

    def watch(self, looked: Looked) -> None:
        """Look at it every LOOK_EVERY seconds; on the thread."""
        if not self._looked:
            self._next_look = self.now() + LOOK_EVERY
        self._looked[looked] = None

    def unwatch(self, looked: Looked) -> None:
        """Look at it no more; harmless when nobody does. On the thread."""
        self._looked.pop(looked, None)

    # The thread.

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopping:
                return
            # A daemon: the exit of the interpreter does not wait for channels that nobody has closed.
            self._thread = threading.Thread(target=self._run, name="grpc-backoff", daemon=True)
            # In a context of its own: it outlives the call that happened to start it.
            Context().run(self._thread.start)

    def _run(self) -> None:
        pump = Pump() if needs_pump() else None
        self._go_on()
        if pump is not None:
            pump.stop()

    def _go_on(self) -> None:
        """Work until nobody needs the thread any more."""
        idle_since = None
        while True:
            if self._users:
                idle_since = None
            elif idle_since is None:
                idle_since = self.now()
            stays = None if idle_since is None else idle_since + _LINGERS
            self._take(self._wait_until(stays))
            self._fire()
            self._look()
            if self._stopping or (stays is not None and not self._users and self.now() >= stays and self._ends()):
                return

    def _wait_until(self, stays: float | None) -> float | None:
        moments = [] if stays is None else [stays]
        while self._timers and self._timers[0][2].work is None:
            heapq.heappop(self._timers)
        if self._timers:
            moments.append(self._timers[0][0])
        if self._looked:
            moments.append(self._next_look)
        return min(moments) if moments else None

    def _take(self, until: float | None) -> None:
        """Do what is there, or wait for it."""
        with contextlib.suppress(Empty):
            _do(take(self._work, None if until is None else max(0.0, until - self.now())))
            for _ in range(self._work.qsize()):  # not more: timers have their turn too
                _do(self._work.get_nowait())

    def _fire(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            work, timer.work = timer.work, None
            if work is not None:
                _do(work)

    def _look(self) -> None:
        if self._looked and self.now() >= self._next_look:
            self._next_look = self.now() + LOOK_EVERY
            for looked in tuple(self._looked):
                _do(looked.look)

    def _keep(self, when: float, timer: Timer) -> None:
        if len(self._timers) > _FEW and sum(kept[2].work is None for kept in self._timers) > len(self._timers) // 2:
            self._timers = [kept for kept in self._timers if kept[2].work is not None]
            heapq.heapify(self._timers)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))

    def _ends(self) -> bool:
        """Take the thread's leave, unless somebody has posted in the same moment."""
        with self._lock:
            here, self._thread = self._thread, None
            if not self._work.empty() or self._users:
                self._thread = here
                return False
        return True

    # The end of the process, and forks.

    def stop(self) -> None:
        """End the thread for good: the interpreter exits, and a thread that goes on would meet its ruins."""
        self._stopping = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._work.put(None)
            thread.join(_ENDS_WITHIN)

    def after_fork(self) -> None:
        """Begin anew in the child of a fork: the thread is the parent's, and so is everything that was posted."""
        self._begin_anew()


def _do(work: Work | None) -> None:
    if work is None:
        return
    try:
        work()
    except Exception:  # noqa: BLE001 - a bug, and the other channels go on
        _LOG.exception("a step of a threaded channel raised")


def _nothing() -> None:
    pass


CONDUCTOR = Conductor()
"""The process's own."""

atexit.register(CONDUCTOR.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CONDUCTOR.after_fork)
