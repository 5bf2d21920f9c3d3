"""What each process has of its own: it notices that it is the child of a fork, and draws its own random numbers.

In the child of a fork, the rest of the library begins anew.

CPython runs the callbacks of `os.register_at_fork` where Python itself forks. A server that is written in C may fork
without them, as uWSGI does unless it is told otherwise. There, the child is known by the number of its process, which
`notice_fork` compares when a channel is created or used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from os import getpid, urandom


class _Process:
    """The process that the library's state belongs to."""

    def __init__(self) -> None:
        self.pid = getpid()
        self.reactions: list[Callable[[], object]] = []
        self.preparations: list[Callable[[], object]] = []
        self._noticing: dict[int, threading.RLock] = {}
        self._beginning: int | None = None
        """The process in which the reactions run just now."""

    def notice(self) -> None:
        """Begin anew once; other threads of the child wait until that is done."""
        # Each process has a lock of its own, because one from before the fork may be held by a thread of the parent.
        # It is reentrant, because a reaction may free a channel, which asks whether it belongs to the parent.
        with self._noticing.setdefault(getpid(), threading.RLock()):
            if getpid() not in (self.pid, self._beginning):
                self.begin_anew()

    def prepare(self) -> None:
        for preparation in self.preparations:
            preparation()

    def begin_anew(self) -> None:
        """React to a fork, in the order in which the reactions were registered."""
        self._beginning = getpid()
        try:
            for reaction in tuple(self.reactions):
                reaction()
        finally:
            self.pid = getpid()  # not earlier, because other threads take it for the sign that all is done
            self._beginning = None
            self._noticing.clear()


_PROCESS = _Process()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_PROCESS.prepare, after_in_child=_PROCESS.begin_anew)


def after_fork(reaction: Callable[[], object]) -> None:
    """Register a function that runs once in the child of each fork, before a channel is used there."""
    _PROCESS.reactions.append(reaction)


def before_fork(preparation: Callable[[], object]) -> None:
    """Register a function that runs before each fork that Python makes itself, in the thread that forks."""
    _PROCESS.preparations.append(preparation)


def notice_fork(getpid: Callable[[], int] = getpid, process: _Process = _PROCESS) -> None:
    """Run what is registered if this process is the child of a fork and nothing has run there yet. Thread-safe.

    The parameters are always the defaults: unlike the module's names, they last until the interpreter has ended.
    """
    if process.pid != getpid():
        process.notice()


_BITS = 53  # as many as a float has


class SystemChance:
    """The default source of jitter: the operating system's, which has no state that a fork could copy (CB-11).

    The stdlib's `random` has the same, but to import it takes as long as to import ten modules of this library.
    """

    def random(self) -> float:
        """Return a random number, uniformly distributed in [0, 1)."""
        return (int.from_bytes(urandom(8), "big") >> (64 - _BITS)) / (1 << _BITS)


CHANCE = SystemChance()
