"""Conditions that no signal handler can leave locked."""

from __future__ import annotations

import threading
from operator import attrgetter


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
