"""The clock of an asyncio event loop (CB-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from grpc_backoff.connection.clock import TimerHandle

__all__ = ["LoopClock"]


class LoopClock:
    """The clock of an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the loop's own time and timers."""
        self._loop = loop
        self.now = loop.time

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back once, at `when` or soon after, in seconds on the loop's clock."""
        # In a new context: the timer outlives the call that happened to arm it.
        return self._loop.call_at(when, callback, context=Context())
