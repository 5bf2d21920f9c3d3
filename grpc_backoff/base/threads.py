"""What Python's threads lack: starts and waits that end, and conditions that no signal handler leaves locked."""

from __future__ import annotations

import _thread
import queue
import sys
import threading
from collections.abc import Callable
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, TypeVar


def new_queue() -> queue.SimpleQueue[Any]:
    """Return a queue of the class that is in force now: gevent replaces it, perhaps after this package was imported."""
    return queue.SimpleQueue()


class Running:
    """A piece of work that runs in a daemon thread of its own."""

    __slots__ = ("_ended", "_ident", "_work")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._ended = threading.Event()
        self._ident: int | None = None

    def run(self) -> None:
        """Do the work, in the calling thread."""
        self._ident = threading.get_ident()
        try:
            self._work()
        finally:
            self._ident = None  # the system may give it to another thread
            self._ended.set()

    def is_here(self) -> bool:
        """Return whether the calling code is part of the work."""
        return self._ident == threading.get_ident()

    def join(self, timeout: float | None = None) -> None:
        """Wait up to `timeout` seconds for the work; not at all where it would never end."""
        if not self.is_here() and not sys.is_finalizing():
            self._ended.wait(timeout)


def start(work: Callable[[], object], name: str) -> Running:
    """Do some work in a daemon thread with this name and an empty context, and do not wait for the thread.

    `threading.Thread.start` waits until the new thread has run for the first time. Where other threads compute, that
    takes seconds, because each change of threads takes one switch interval of the interpreter; and where the
    interpreter is about to exit, it takes for ever, because the new thread never runs.

    Raises:
        RuntimeError: the process has too many threads, or the interpreter is about to exit.
    """
    if sys.is_finalizing():  # Python 3.11 would start the thread, which would never run
        raise RuntimeError("can't start new thread at interpreter shutdown")
    running = Running(work)
    thread = threading.Thread(target=running.run, name=name, daemon=True)
    _thread.start_new_thread(_start, (thread, running))
    return running


def _start(thread: threading.Thread, running: Running) -> None:
    """Wait for the start in place of the thread that asked for it; where it fails, do the work here."""
    try:
        thread.start()
    except RuntimeError:
        running.run()


LONGEST_WAIT = 3600.0
"""The longest single wait, in seconds. The operating system has a limit far above it, which a deadline may exceed."""
_LONGEST_OF_MAIN = 0.25
"""The longest single wait in the main thread, in seconds, because a signal that arrives as the thread falls asleep does
not wake it (TH-6)."""

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


def is_main() -> bool:
    """Return whether the calling thread is the main one."""
    return threading.current_thread() is threading.main_thread()


def longest_sleep() -> float:
    """Return the longest time that this thread may sleep at once, in seconds."""
    return _LONGEST_OF_MAIN if is_main() else LONGEST_WAIT


class Condition(threading.Condition):
    """A condition whose lock is free after every `with`, even if a signal handler raises anywhere.

    Python runs the handlers of signals in the main thread, where a function of Python's own begins or where one that it
    has called returns. `threading.Condition.__enter__` and `__exit__` are such functions: an exception that a handler
    raises in them leaves the lock acquired for ever. Here, `with` uses the methods of the lock itself, which are in C.
    """

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


def guard(condition: object) -> None:
    """Turn a condition that other code has made into a `Condition`; it may be in use. Ignore anything else."""
    if type(condition) is threading.Condition:  # a subclass may have methods of its own
        condition.__class__ = Condition
