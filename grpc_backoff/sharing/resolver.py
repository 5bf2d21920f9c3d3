"""Resolves names with the system's `getaddrinfo`, which blocks, in daemon threads (PO-7).

There is at most one thread for a name. No other thread waits for it, because a resolution that hangs cannot be ended:
the channel that asked may be gone when the answer comes.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextvars import Context

from grpc_backoff.config.target import Address
from grpc_backoff.connection.events import Failure, Stage

Addresses = tuple[str, ...]
Tell = Callable[[Addresses | Failure], object]
"""Receives the addresses of a name, or why there are none, in any thread."""
WITHIN_LIMIT = 0.99
"""The part of an attempt's time limit after which a resolution counts as hanging, so that its stage is known."""
HANGS = Failure(Stage.RESOLVE, "the name was not resolved within the attempt's time limit")


class Resolver:
    """Resolves names, each in one thread at a time."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork, because the threads belong to the parent."""
        self._lock = threading.RLock()
        self._waiting: dict[tuple[str, int], list[Tell]] = {}

    def resolve(self, host: str, port: int, tell: Tell) -> None:
        """Resolve a name and call `tell` with the outcome, in another thread."""
        with self._lock:
            waiting = self._waiting.setdefault((host, port), [])
            waiting.append(tell)
            if len(waiting) > 1:
                return
        thread = threading.Thread(target=self._run, args=(host, port), name="grpc-backoff-resolver", daemon=True)
        try:
            Context().run(thread.start)
        except RuntimeError:  # the interpreter is about to exit, or there are too many threads
            self._tell(host, port, Failure(Stage.RESOLVE, "no thread could be started"))

    def _run(self, host: str, port: int) -> None:
        self._tell(host, port, look_up(host, port))

    def _tell(self, host: str, port: int, outcome: Addresses | Failure) -> None:
        with self._lock:
            waiting = self._waiting.pop((host, port), [])
        for tell in waiting:
            tell(outcome)


def look_up(host: str, port: int) -> Addresses | Failure:
    """Return the addresses of a name, each once and in the system's order, or why there are none. This blocks."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Failure(Stage.RESOLVE, f"the name {host} could not be resolved: {error}")
    places = [str(Address(each[0], each[4])) for each in found if each[0] in (socket.AF_INET, socket.AF_INET6)]
    return tuple(dict.fromkeys(places)) or Failure(Stage.RESOLVE, f"the name {host} has no addresses")


RESOLVER = Resolver()
"""The resolver of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RESOLVER.begin_anew)
