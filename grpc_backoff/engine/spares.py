"""Connections that wait a moment for the next channel to the same server (SH-8).

A program that creates a channel for each request would otherwise make a connection for each. If the dial machine allows
it, the core's channel is kept for a moment when its channel is closed, and the next dial that would create the same one
takes it. None is kept across a fork, or at the exit.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.process import after_fork, before_fork
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.decide.connections.dial_machine import READY

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc_backoff.config.core_options import CoreArguments
    from grpc_backoff.engine.home import Home

_AVOIDS_FOR = 10.0
"""For how long nothing is kept of a peer that has ended a connection that came in quick turns, in seconds. It may end
each connection after a call, and the next call would be lost with it."""


class SpareKey(NamedTuple):
    """Which dials may take a spare channel: those at the same home that would make the same channel."""

    home: Home
    arguments: CoreArguments


class SpareChannel:
    """A channel of the core that has a connection and no calls.

    Attributes:
        channel: the channel.
        made: when its connection was made, in seconds on the clock of its home.
    """

    def __init__(
        self, channel: Any, made: float, check: Callable[[Any], Callable[[bool], int]], close: Callable[[Any], None]
    ) -> None:
        """`check` is the `state_check` of the channel's API, and `close` closes the channel."""
        self.channel = channel
        self.made = made
        self._check = check
        self._close = close

    def is_up(self) -> bool:
        """Return whether the connection is up."""
        return self._check(self.channel)(False) == READY

    def close(self) -> None:
        """Close the channel; any thread may do so."""
        self._close(self.channel)


class Spares:
    """The spare channels of a process, each with the time when it is closed.

    A thread closes those that nothing takes, because an event loop may have stopped. It ends with the last one.
    """

    def __init__(self) -> None:
        """Keep none yet."""
        self._kept: dict[SpareKey, tuple[SpareChannel, float]] = {}
        self._avoided: dict[CoreArguments, float] = {}
        self._inherited: list[object] = []
        self._is_served = False
        self._woken = threading.Event()
        self._now = monotonic

    def avoid(self, arguments: CoreArguments) -> None:
        """Keep no more channels that are created so for a while, because a peer has ended one. Thread-safe."""
        now = self._now()
        self._avoided = {known: until for known, until in self._avoided.copy().items() if until > now}
        self._avoided[arguments] = now + _AVOIDS_FOR

    def avoids(self, arguments: CoreArguments) -> bool:
        """Return whether channels that are created so are not to be kept at the moment."""
        return bool(self._avoided) and self._avoided.get(arguments, 0.0) > self._now()

    def keep(self, key: SpareKey, spare: SpareChannel) -> None:
        """Keep a channel that was created with `key`, in place of an earlier one. Thread-safe."""
        self._close(key)
        self._kept[key] = spare, self._now() + dial_times.SPARE_FOR
        if not self._is_served:  # asked last, because the thread looks once more after it has said so
            self._is_served = True
            self._woken = threading.Event()  # a new one, because gevent may have patched the process
            try:
                from grpc_backoff.base import threads  # noqa: PLC0415 - most programs keep none

                threads.start(self._serve, "grpc-backoff-spares")
            # Too many threads or files, the interpreter is about to exit, or the package is out of reach.
            except (RuntimeError, OSError, ImportError):
                self._is_served = False
                self._close(key)

    def take(self, key: SpareKey) -> SpareChannel | None:
        """Return a channel that was created with `key` and whose connection is up; None if there is none."""
        spare, _ = self._kept.pop(key, (None, 0.0))
        return None if spare is None or self._has_ended(key, spare) else spare

    def close(self) -> None:
        """Close all channels. Thread-safe."""
        for key in self._kept.copy():
            self._close(key)
        self._woken.set()

    def begin_anew(self) -> None:
        """Start over in the child of a fork; what is left belongs to the parent, and is not touched (FK-1)."""
        self._inherited.extend(self._kept.values())
        self._kept.clear()
        self._is_served = False
        self._woken = threading.Event()  # the parent's may be locked

    def _close(self, key: SpareKey) -> None:
        spare, _ = self._kept.pop(key, (None, 0.0))
        if spare is not None and not self._has_ended(key, spare):
            spare.close()

    def _has_ended(self, key: SpareKey, spare: SpareChannel) -> bool:
        """Return whether the peer has ended the connection; if so, close the channel."""
        if spare.is_up():
            return False
        self.avoid(key.arguments)
        spare.close()
        return True

    def _serve(self) -> None:
        try:
            while kept := self._kept.copy():
                self._woken.wait(max(0.0, min(until for _, until in kept.values()) - self._now()))
                self._woken.clear()
                for key, (_, until) in kept.items():
                    current = self._kept.get(key)
                    if until <= self._now() and current is not None and current[1] == until:
                        self._close(key)
        finally:
            self._is_served = False
        if self._kept:  # one that was kept before this was said
            self._serve()


SPARES = Spares()
"""The spare channels of this process."""

atexit.register(SPARES.close)
before_fork(SPARES.close)
after_fork(SPARES.begin_anew)
