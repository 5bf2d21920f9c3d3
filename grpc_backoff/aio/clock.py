"""An asyncio event loop's clock (CB-12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context

from grpc_backoff.connection.clock import TimerHandle


class LoopClock:
    """An asyncio event loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the loop's own time and timers."""
        self._loop = loop
        # asyncio's own loops use `time.monotonic` as their clock. Call it directly, because every RPC reads the time
        # several times.
        own = getattr(loop.time, "__func__", None) is not asyncio.BaseEventLoop.time
        self.now = loop.time if own else time.monotonic

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once when the loop's clock reaches `when`, in seconds, or soon after."""
        # Use a new context, because the timer outlives the call that happened to arm it.
        return self._loop.call_at(when, callback, context=Context())
