"""Calls functions that block, each in one thread for all who ask meanwhile: names (PO-7), credentials (PO-10).

No other thread waits for such a thread, because a function that hangs cannot be ended: the channel that asked may be
gone when the answer comes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from grpc_backoff.base import threads
from grpc_backoff.base.process import after_fork
from grpc_backoff.base.status import Failure, Stage

FoundT = TypeVar("FoundT")


class SingleFlight(Generic[FoundT]):
    """Calls a function once at a time, in a daemon thread, for all who ask meanwhile."""

    def __init__(self, name: str, stage: Stage) -> None:
        """Name the threads, and the stage that fails if none can be started."""
        self._name = name
        self._stage = stage
        self.begin_anew()
        after_fork(self.begin_anew)

    def begin_anew(self) -> None:
        """Start over in the child of a fork, because the threads belong to the parent."""
        self._lock = threading.RLock()
        self._waiting: dict[Hashable, list[Callable[[FoundT | Failure], object]]] = {}

    def ask(
        self, what: Hashable, find: Callable[[], FoundT | Failure], tell: Callable[[FoundT | Failure], object]
    ) -> None:
        """Call `find` and pass its result to `tell`, in another thread; what it raises is a failure of the stage."""
        with self._lock:
            waiting = self._waiting.setdefault(what, [])
            waiting.append(tell)
            if len(waiting) > 1:
                return
        try:
            threads.start(lambda: self._tell(what, self._found(find)), self._name)
        except RuntimeError:  # the interpreter is about to exit, or there are too many threads
            self._tell(what, Failure(self._stage, "no thread could be started"))

    def _found(self, find: Callable[[], FoundT | Failure]) -> FoundT | Failure:
        try:
            return find()
        except BaseException as error:  # noqa: BLE001 - all who ask later would wait for the thread that has died
            return Failure(self._stage, f"{type(error).__name__}: {error}")

    def _tell(self, what: Hashable, outcome: FoundT | Failure) -> None:
        with self._lock:
            waiting = self._waiting.pop(what, [])
        for tell in waiting:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                tell(outcome)
