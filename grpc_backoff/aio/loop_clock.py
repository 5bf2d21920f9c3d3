"""An asyncio event loop as the home of connections, and its clock (CB-12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from grpc_backoff.aio.loops import is_here

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle

_EARLY = 0.001
"""How many seconds a timer may be early: event loops that count in milliseconds round."""


class LoopClock:
    """An asyncio event loop's clock, and the loop as a `Home`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the loop's own time and timers."""
        self._loop = loop
        # asyncio's own loops use `time.monotonic` as their clock. Call it directly, because every RPC reads the time
        # several times.
        own = getattr(loop.time, "__func__", None) is not asyncio.BaseEventLoop.time
        self.now = loop.time if own else time.monotonic
        self._punctual = getattr(loop.call_at, "__func__", None) is asyncio.BaseEventLoop.call_at

    def __eq__(self, other: object) -> bool:
        """Return whether the other clock has the same loop, which is one home, however many channels it has."""
        return isinstance(other, LoopClock) and other._loop is self._loop

    def __hash__(self) -> int:
        """Return the hash of the loop."""
        return hash(self._loop)

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once when the loop's clock reaches `when`, in seconds, or soon after."""
        # Use a new context, because the timer outlives the call that happened to arm it.
        if self._punctual:
            return self._loop.call_at(when, callback, context=Context())
        return _UnhurriedTimer(self._loop, when, callback)

    def post(self, work: Callable[[], None], /) -> None:
        """Run `work` on the loop soon; see `Home.post`."""
        # Use a new context, because the work must not keep the poster's context alive.
        self._loop.call_soon_threadsafe(work, context=Context())

    def is_here(self) -> bool:
        """Return whether the calling code runs on the loop."""
        return is_here(self._loop)

    def is_closed(self) -> bool:
        """Return whether the loop is closed."""
        return self._loop.is_closed()


class _UnhurriedTimer:
    """A timer on an event loop whose own timers may be early: Qt's are, by up to a twentieth of their time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]) -> None:
        self._loop, self._when, self._callback, self._context = loop, when, callback, Context()
        self._arm()

    def _arm(self) -> None:
        self._handle: TimerHandle | None = self._loop.call_at(self._when, self._fired, context=self._context)

    def _fired(self) -> None:
        self._handle = None  # its callback refers to this object, which would be left to the collector
        if self._when - self._loop.time() > _EARLY:
            self._arm()
        else:
            self._callback()

    def cancel(self) -> None:
        """Cancel the callback; harmless if it has already run."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
