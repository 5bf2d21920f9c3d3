"""The conductor: one thread that runs the timers and steps the machines of all threaded channels in a process (TH-5).

A thread that needs something from a connection posts the work here and continues. So only one thread uses a
connection's machine and its shell, and they need no lock. No user code runs here (TH-5a), so a listener or callback
that blocks does not delay a dial.

The thread starts with the first piece of work of a channel and ends soon after the last channel has left it. Where it
cannot be started, because the process has too many threads or the interpreter is about to exit, those who wait for
something run the work themselves meanwhile, one at a time (`Conductor.take`).

grpcio's core shuts down when its last channel is closed, and a channel that waits for its next attempt has none.
Starting the core again takes longer than many attempts, and aborts the process if it gets no file descriptor or thread.
So as long as there are users, and as long as the thread stays after them, a channel of the core that never connects is
open (`pump.Standby`).
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from grpc_backoff.base.process import after_fork
from grpc_backoff.base.threads import new_queue
from grpc_backoff.sync.pump import Pump, Standby, needs_pump

_LOG = logging.getLogger(__name__)

LOOK_EVERY = 0.2
"""How often open connections are polled, in seconds. They are polled together, at the cost of one wake-up."""
_LINGERS = 0.1
"""How long the thread, and grpcio's core, stay without channels, in seconds, because a program may create a channel for
each request."""
_LONGEST_WAIT = 3600.0
"""The longest single wait, in seconds. The operating system has a limit far above it, which a deadline may exceed."""
_TURN = 0.05
"""The longest turn of a thread that runs the work because no other can be started, in seconds."""
_ENDS_WITHIN = 0.5
"""How long the exit of the interpreter waits for the thread, in seconds."""

_FEW = 64
"""How many timers accumulate before cancelled ones are removed. After each removal, twice the remaining number may
accumulate, if that is more."""

Work = Callable[[], object]
T = TypeVar("T")


def take(queue: SimpleQueue[T], timeout: float) -> T:
    """Return the next item of a queue that only one thread reads, waiting for it up to `timeout` seconds.

    `SimpleQueue.get` alone can wait for ever. If an item was taken without waiting, its wake-up remains, and CPython
    mistakes that for the wake-up of a new item, computes the time left, and treats a negative result as no limit.
    Asking once without waiting consumes such a wake-up.

    Raises:
        Empty: no item arrived within that time.
    """
    try:
        return queue.get_nowait()
    except Empty:
        pass
    return queue.get(timeout=timeout)


if TYPE_CHECKING:

    class Polled(Protocol):
        """Something that the conductor polls from time to time."""

        def look(self) -> None:
            """Check whether anything has happened; never blocks."""
            ...


class Timer:
    """A piece of work that is scheduled for a certain time."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work: Work | None = work

    def cancel(self) -> None:
        """Cancel the work; harmless if it has run. Thread-safe."""
        self.work = None


class Timers:
    """The conductor's timers. Most are cancelled long before they are due.

    The methods are for its thread, except `pass_on`.

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


class Conductor:
    """A thread that runs posted work in order, and scheduled work at its time."""

    def __init__(self) -> None:
        self.now = time.monotonic
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork, because the thread and all posted work belong to the parent."""
        # Both are reentrant, because a finalizer may post work wherever the garbage collector happens to run.
        self._work: SimpleQueue[Work] = new_queue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._turns = threading.Lock()
        """Held by the thread that runs the work."""
        self._runner: int | None = None
        """The identity of that thread, while it runs the work."""
        self._timers = Timers()
        self._polled: dict[Polled, None] = {}
        self._next_look = 0.0
        self._users: dict[object, None] = {}
        self._stopping = False
        self._standby = Standby()
        self._pump: Pump | None = None

    def is_closed(self) -> bool:
        """Return False, because to the schedules of keys, the conductor is never closed."""
        return False

    def is_here(self) -> bool:
        """Return whether the calling code is work of the conductor."""
        return self._runner == threading.get_ident()

    def is_served(self) -> bool:
        """Return whether there is a thread that runs the work; one is started if possible."""
        if self._thread is not None:
            return True
        try:
            self.require()
        except RuntimeError:
            return False
        return True

    def require(self) -> None:
        """Start the thread if there is none.

        Raises:
            RuntimeError: no thread can be started; the work is run by those who wait for something.
        """
        if self._thread is None:
            self._start()

    # For channels.

    def join(self, user: object) -> None:
        """Keep the thread, and grpcio's core, running until `user` leaves."""
        self._users[user] = None
        self._standby.open()

    def leave(self, user: object) -> None:
        """Stop keeping the thread running for `user`; the thread ends when it has no users."""
        self._users.pop(user, None)
        self.post(_nothing)  # so that the thread checks again how long to stay
        if not self._users and self._thread is None:  # none can be started, so none will close it when it ends
            self._standby.close()

    def post(self, work: Work) -> None:
        """Make the thread run `work` soon, and in order. Thread-safe, and safe in a finalizer.

        If no thread can be started, the work runs when one can, or when a caller waits.
        """
        self._work.put(work)
        self.is_served()

    def take(self, queue: SimpleQueue[T], timeout: float) -> T:
        """Return the next item of a queue that only the calling thread reads, waiting for it up to `timeout` seconds.

        Where no thread can be started to run the work, the calling thread runs it while it waits.

        Raises:
            Empty: no item arrived within that time.
        """
        end = self.now() + timeout
        while not self.is_served():
            until = min(end, self.now() + _TURN)
            if self._turns.acquire(blocking=False):
                try:
                    self._turn(until)
                finally:
                    self._turns.release()
                until = -math.inf
            try:
                return take(queue, max(0.0, until - self.now()))
            except Empty:
                if self.now() >= end:
                    raise
        return take(queue, max(0.0, end - self.now()))

    def call_at(self, when: float, callback: Work) -> Timer:
        """Call `callback` once on the conductor's thread, when the clock reaches `when`, in seconds. Thread-safe.

        The thread is not woken for a timer that is due after it wakes anyway, because most are cancelled long before.
        """
        timer = Timer(callback)
        if self.is_here():
            self._timers.keep(when, timer)
        elif self._timers.pass_on(when, timer):
            self.post(_nothing)
        return timer

    def watch(self, polled: Polled) -> None:
        """Poll an object every LOOK_EVERY seconds. Called only on the conductor's thread."""
        if not self._polled:
            self._next_look = self.now() + LOOK_EVERY
        self._polled[polled] = None

    def unwatch(self, polled: Polled) -> None:
        """Stop polling an object; harmless if it is not polled. Called only on the conductor's thread."""
        self._polled.pop(polled, None)

    # The thread.

    def _start(self) -> None:
        if self._stopping or sys.is_finalizing():  # Python 3.11 would start the thread, which would never run
            raise RuntimeError("can't start new thread at interpreter shutdown")
        with self._lock:
            if self._thread is not None:
                return
            if type(self._work) is not type(new_queue()):
                self._renew()
            # A daemon thread, so that the interpreter's exit does not wait for channels that were not closed.
            self._thread = thread = threading.Thread(target=self._run, name="grpc-backoff", daemon=True)
            try:
                # Use a new context, because the thread outlives the call that happened to start it.
                Context().run(thread.start)
            except BaseException:  # the process has too many threads, or a signal handler has raised
                if not thread.is_alive():
                    self._thread = None  # the next piece of work tries again
                raise

    def _renew(self) -> None:
        """Replace what was made before gevent patched the process: all greenlets would sleep in it (FK-4)."""
        work = self._work
        self._work, self._lock, self._turns = new_queue(), threading.RLock(), threading.Lock()
        while not work.empty():
            self._work.put(work.get_nowait())
        self._timers.renew()

    def _run(self) -> None:
        with self._turns:
            if needs_pump():
                with contextlib.suppress(RuntimeError):  # too many threads: each turn waits for the core
                    self._pump = Pump()
            self._go_on()
            if not self._users:
                self._standby.close()
            pump, self._pump = self._pump, None
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
            stays = math.inf if idle_since is None else idle_since + _LINGERS
            self._turn(stays)
            if self._stopping:
                self._thread = None
                return
            if not self._users and self.now() >= stays and self._ends():
                return

    def _turn(self, stays: float) -> None:
        """Run what is due; if nothing is, wait for it until `stays`, on the clock."""
        self._runner = threading.get_ident()
        try:
            until = self._timers.wait_until(min(stays, self._next_look) if self._polled else stays)
            if self._pump is None and needs_pump() and self._standby.wait(_TURN):
                until = -math.inf
            self._take(until)
            now = self.now()
            while (work := self._timers.take_due(now)) is not None:
                _do(work)
            self._look()
        finally:
            self._runner, self._timers.wakes = None, math.inf

    def _take(self, until: float) -> None:
        """Run the queued work, or wait for some."""
        with contextlib.suppress(Empty):
            _do(take(self._work, min(max(0.0, until - self.now()), _LONGEST_WAIT)))
            for _ in range(self._work.qsize()):  # no more than this, because timers need their turn too
                _do(self._work.get_nowait())

    def _look(self) -> None:
        if self._polled and self.now() >= self._next_look:
            self._next_look = self.now() + LOOK_EVERY
            for polled in tuple(self._polled):
                _do(polled.look)

    def _ends(self) -> bool:
        """End the thread, unless work has been posted in the meantime; return whether it ends."""
        with self._lock:
            here, self._thread = self._thread, None
            if not self._work.empty() or self._users:
                self._thread = here
                return False
        return True

    # The end of the process.

    def stop(self) -> None:
        """End the thread for good, because no thread may still run while the interpreter is torn down."""
        self._stopping = True
        thread = self._thread
        if thread is not None and not self.is_here():
            self._work.put(_nothing)
            thread.join(_ENDS_WITHIN)


def _nothing() -> None:
    """Do nothing: as posted work, this makes the thread look at what has changed."""


def _do(work: Work) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - a bug, which must not stop other channels
        _LOG.exception("a step of a threaded channel raised")


CONDUCTOR = Conductor()
"""The conductor for this process."""

atexit.register(CONDUCTOR.stop)
after_fork(CONDUCTOR.begin_anew)
