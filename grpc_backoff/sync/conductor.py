"""The conductor: one thread that runs the timers and steps the machines of all threaded channels in a process (TH-5).

A thread that needs something from a connection posts the work here and continues. So only one thread uses a
connection's machine and its shell, and they need no lock. No callback of a program runs here (TH-5a), so one that
blocks does not delay a dial; only its clock and its `rng` do.

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
import math
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from grpc_backoff.base import threads
from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.logs import Log
from grpc_backoff.base.process import after_fork
from grpc_backoff.base.threads import LONGEST_WAIT, new_queue, take
from grpc_backoff.sync.pump import Pump, Standby, needs_pump

_LINGERS = 0.1
"""How long the thread, and grpcio's core, stay without channels, in seconds, because a program may create a channel for
each request."""
_TURN = 0.05
"""The longest turn of a thread that runs the work because no other can be started, in seconds."""
_ENDS_WITHIN = 0.5
"""How long the exit of the interpreter waits for the thread, in seconds."""

POLL_EVERY = 0.2
"""How often open connections are polled, in seconds. They are polled together, at the cost of one wake-up."""
_FEW = 64
"""How many timers accumulate before cancelled ones are removed. After each removal, twice the remaining number may
accumulate, if that is more."""

Work = Callable[[], object]
T = TypeVar("T")
_LOG = Log(__name__)


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

    def __init__(self, wake: Callable[[], object]) -> None:
        """Start empty; `wake` makes the thread look at the timers."""
        self.wakes = math.inf
        self._wake = wake
        self._kept: list[tuple[float, int, Timer]] = []
        self._passed_on: SimpleQueue[tuple[float, Timer]] = new_queue()
        self._most = _FEW
        self._numbers = itertools.count()

    def pass_on(self, when: float, work: Work) -> Timer:
        """Let the thread keep a timer, and wake it only if it would look too late. Thread-safe."""
        timer = Timer(work)
        self._passed_on.put((when, timer))  # before the check: the thread looks here once more after it has set `wakes`
        if when < self.wakes or self._passed_on.qsize() > _FEW:
            self._wake()
        return timer

    def keep(self, when: float, work: Work) -> Timer:
        """Keep a timer until it is due."""
        timer = Timer(work)
        self._keep(when, timer)
        return timer

    def _keep(self, when: float, timer: Timer) -> None:
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
                    self._keep(when, timer)

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
        """Replace the queue; see `Agenda.renew`."""
        before, self._passed_on = self._passed_on, new_queue()
        while not before.empty():
            self._passed_on.put(before.get_nowait())


class Polled(Protocol):
    """Something that is polled from time to time."""

    def look(self) -> None:
        """Check whether anything has happened; never blocks."""
        ...


class Agenda:
    """What has to be done. One thread at a time takes a turn; the methods are for that thread.

    Attributes:
        work: the posted work, in order. Any thread and any finalizer may put some there.
        timers: the timers.
    """

    def __init__(self, now: Callable[[], float], wake: Callable[[], object]) -> None:
        """Start with nothing to do; `wake` ends a thread's wait for work."""
        self.work: SimpleQueue[Work] = new_queue()
        self.timers = Timers(wake)
        self._now = now
        self._polled: dict[Polled, None] = {}
        self._next_poll = 0.0

    def poll(self, polled: Polled) -> None:
        """Poll an object every POLL_EVERY seconds."""
        if not self._polled:
            self._next_poll = self._now() + POLL_EVERY
        self._polled[polled] = None

    def stop_polling(self, polled: Polled) -> None:
        """Stop polling an object; harmless if it is not polled."""
        self._polled.pop(polled, None)

    def turn(self, until: float) -> None:
        """Do what is due; if nothing is, wait for it, up to the time `until`."""
        try:
            self._run_posted(self.timers.wait_until(min(until, self._next_poll) if self._polled else until))
            now = self._now()
            while (work := self.timers.take_due(now)) is not None:
                _run(work)
            self._poll_all()
        finally:
            self.timers.wakes = math.inf

    def _run_posted(self, until: float) -> None:
        """Run the posted work, or wait for some."""
        with contextlib.suppress(Empty):
            _run(take(self.work, min(max(0.0, until - self._now()), LONGEST_WAIT)))
            for _ in range(self.work.qsize()):  # no more than this, because timers need their turn too
                _run(self.work.get_nowait())

    def _poll_all(self) -> None:
        if self._polled and self._now() >= self._next_poll:
            self._next_poll = self._now() + POLL_EVERY
            for polled in tuple(self._polled):
                _run(polled.look)

    def renew(self) -> bool:
        """Replace queues that were made before gevent patched the process: all greenlets would sleep in them (FK-4).

        Return whether they were.
        """
        before = self.work
        if type(before) is type(new_queue()):
            return False
        self.work = new_queue()
        while not before.empty():
            self.work.put(before.get_nowait())
        self.timers.renew()
        return True


def _run(work: Work) -> None:
    try:
        work()
    except BaseException as error:
        if threads.is_main() and not isinstance(error, Exception):  # where a signal handler may raise it
            raise
        # A bug, or a program's clock; it must not stop other channels, which have no other thread.
        _LOG.exception("a step of a threaded channel raised")


class Conductor:
    """A thread that runs posted work in order, and scheduled work at its time."""

    keeps_time = True

    def __init__(self) -> None:
        self.now = monotonic
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork, because the thread and all posted work belong to the parent."""
        self._agenda = Agenda(self.now, self._wake)
        self._lock = threading.RLock()  # reentrant, because a finalizer may post work at any point
        self._thread: threading.Thread | None = None
        self._turns = threading.Lock()
        """Held by the thread that takes turns."""
        self._runner: int | None = None
        """The identity of that thread, during a turn."""
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
        if self._thread is not None:
            return
        if self._stopping or sys.is_finalizing():  # Python 3.11 would start the thread, which would never run
            raise RuntimeError("can't start new thread at interpreter shutdown")
        with self._lock:
            if self._thread is not None:
                return
            if self._agenda.renew():
                self._lock, self._turns = threading.RLock(), threading.Lock()
            # A daemon thread, so that the interpreter's exit does not wait for channels that were not closed.
            self._thread = thread = threading.Thread(target=self._run, name="grpc-backoff", daemon=True)
            try:
                # Use a new context, because the thread outlives the call that happened to start it.
                Context().run(thread.start)
            except BaseException:  # the process has too many threads, or a signal handler has raised
                if not thread.is_alive():
                    self._thread = None  # the next piece of work tries again
                raise

    # For channels.

    def join(self, user: object) -> None:
        """Keep the thread, and grpcio's core, running until `user` leaves."""
        self._users[user] = None
        self._standby.open()

    def leave(self, user: object) -> None:
        """Stop keeping the thread running for `user`; the thread ends when it has no users."""
        self._users.pop(user, None)
        self._wake()  # so that the thread checks again how long to stay
        if not self._users and self._thread is None:  # none can be started, so none will close it when it ends
            self._standby.close()

    def post(self, work: Work) -> None:
        """Make the thread run `work` soon, and in order. Thread-safe, and safe in a finalizer.

        If no thread can be started, the work runs when one can, or when a caller waits.
        """
        self._agenda.work.put(work)
        self.is_served()

    def _wake(self) -> None:
        self.post(_nothing)

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
        timers = self._agenda.timers
        return timers.keep(when, callback) if self.is_here() else timers.pass_on(when, callback)

    def poll(self, polled: Polled) -> None:
        """Poll an object a few times a second. Called only on the conductor's thread."""
        self._agenda.poll(polled)

    def stop_polling(self, polled: Polled) -> None:
        """Stop polling an object; harmless if it is not polled. Called only on the conductor's thread."""
        self._agenda.stop_polling(polled)

    # The thread.

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

    def _turn(self, until: float) -> None:
        """Do what is due; if nothing is, wait for it, up to the time `until`."""
        self._runner = threading.get_ident()
        try:
            if self._pump is None and needs_pump() and self._standby.wait(_TURN):
                until = -math.inf
            self._agenda.turn(until)
        finally:
            self._runner = None

    def _ends(self) -> bool:
        """End the thread, unless work has been posted in the meantime; return whether it ends."""
        with self._lock:
            here, self._thread = self._thread, None
            if not self._agenda.work.empty() or self._users:
                self._thread = here
                return False
        return True

    # The end of the process.

    def stop(self) -> None:
        """End the thread for good, because no thread may still run while the interpreter is torn down."""
        self._stopping = True
        thread = self._thread
        if thread is not None and not self.is_here():
            self._agenda.work.put(_nothing)
            thread.join(_ENDS_WITHIN)


def _nothing() -> None:
    """Do nothing: as posted work, this makes the thread look at what has changed."""


CONDUCTOR = Conductor()
"""The conductor for this process."""

atexit.register(CONDUCTOR.stop)
after_fork(CONDUCTOR.begin_anew)
