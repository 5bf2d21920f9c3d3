"""The one thread behind all threaded channels of a process: it runs their timers and steps their machines (TH-5).

Any thread that needs something from a connection posts it here, and goes on. So a connection's machine and its shell
are used by one thread only and need no lock. None of the program's code runs here (TH-5a): a listener or callback that
blocks delays no dial.

The thread starts with the first piece of work of a channel and ends soon after the last channel has left it.
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
"""How often open connections are polled, in seconds: all of them together, so that it costs one wake-up."""
_LINGERS = 0.1
"""How long the thread stays without channels, in seconds: a program may create a channel for each request."""
_ENDS_WITHIN = 0.5
"""How long the interpreter's exit waits for the thread, in seconds."""
_FEW = 64
"""How many cancelled timers may accumulate before they are removed."""

Work = Callable[[], object]
T = TypeVar("T")


def take(queue: SimpleQueue[T], timeout: float | None) -> T:
    """Return the next item, after `timeout` seconds at the latest; for a queue that one thread reads.

    `SimpleQueue.get` alone can wait for ever: after an item was taken without waiting, CPython mistakes the wake-up
    that is left over for that of a new item, computes the time that remains, and treats a negative remainder as no
    limit. Asking once without waiting consumes such a wake-up.

    Raises:
        Empty: there was none.
    """
    with contextlib.suppress(Empty):
        return queue.get_nowait()
    return queue.get(timeout=timeout)


class Looked(Protocol):
    """Something that is polled from time to time."""

    def look(self) -> None:
        """Check whether anything has happened; never blocks."""
        ...


class Timer:
    """A piece of work scheduled for a moment."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        """Start as not cancelled."""
        self.work: Work | None = work

    def cancel(self) -> None:
        """Cancel it; harmless if it has run. From any thread."""
        self.work = None


class Conductor:
    """A thread that runs posted work, in order, and at given times."""

    def __init__(self) -> None:
        """Start without a thread."""
        self.now = time.monotonic
        self._begin_anew()

    def _begin_anew(self) -> None:
        # Both reentrant: a finalizer posts from wherever the garbage collector happened to run.
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
        """Return whether it no longer runs anything: never, for the schedules of keys."""
        return False

    def is_stopped(self) -> bool:
        """Return whether the interpreter is about to exit, so that nothing more is done here."""
        return self._stopping

    def is_here(self) -> bool:
        """Return whether the calling code runs on the conductor's thread."""
        return threading.current_thread() is self._thread

    # For channels.

    def join(self, user: object) -> None:
        """Keep the thread running for `user`, until it leaves."""
        self._users[user] = None

    def leave(self, user: object) -> None:
        """Stop keeping the thread running; it ends when it has no users."""
        self._users.pop(user, None)
        self.post(_nothing)  # so that it checks again how long to stay

    def post(self, work: Work) -> None:
        """Have the thread run `work`, soon and in order; from any thread, even from a finalizer."""
        self._work.put(work)
        if self._thread is None:
            self._start()

    def call_at(self, when: float, callback: Work) -> Timer:
        """Call back once on the conductor's thread, when the clock reads `when` or soon after; from any thread."""
        timer = Timer(callback)
        if self.is_here():
            self._keep(when, timer)
        else:
            self.post(lambda: self._keep(when, timer))
        return timer

    def watch(self, looked: Looked) -> None:
        """Poll it every LOOK_EVERY seconds; on the thread."""
        if not self._looked:
            self._next_look = self.now() + LOOK_EVERY
        self._looked[looked] = None

    def unwatch(self, looked: Looked) -> None:
        """Stop polling it; harmless if it is not polled. On the thread."""
        self._looked.pop(looked, None)

    # The thread.

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopping:
                return
            # A daemon: the interpreter's exit does not wait for channels that were not closed.
            self._thread = threading.Thread(target=self._run, name="grpc-backoff", daemon=True)
            # In a new context: it outlives the call that happened to start it.
            Context().run(self._thread.start)

    def _run(self) -> None:
        pump = Pump() if needs_pump() else None
        self._go_on()
        if pump is not None:
            pump.stop()

    def _go_on(self) -> None:
        """Run until the thread has no users."""
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
        """Run the available work, or wait for some."""
        with contextlib.suppress(Empty):
            _do(take(self._work, None if until is None else max(0.0, until - self.now())))
            for _ in range(self._work.qsize()):  # not more: timers need their turn too
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
        """End the thread, unless work was posted at the same moment."""
        with self._lock:
            here, self._thread = self._thread, None
            if not self._work.empty() or self._users:
                self._thread = here
                return False
        return True

    # The end of the process, and forks.

    def stop(self) -> None:
        """End the thread for good: the interpreter is exiting, and is torn down under any thread that still runs."""
        self._stopping = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._work.put(None)
            thread.join(_ENDS_WITHIN)

    def after_fork(self) -> None:
        """Start over in the child of a fork: the thread and all posted work belong to the parent."""
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
"""The conductor of this process."""

atexit.register(CONDUCTOR.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CONDUCTOR.after_fork)
