"""Starts threads without waiting for them.

`threading.Thread.start` waits until the new thread has run for the first time. Where other threads compute, that takes
seconds, because each change of threads takes one switch interval of the interpreter; and where the interpreter is about
to exit, it takes for ever, because the new thread never runs.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any


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
