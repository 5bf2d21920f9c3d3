"""What the calls of one channel share: time, chance, the retry budget, hooks, and where they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

from grpc_backoff.aio.hooks import Hooks
from grpc_backoff.aio.listeners import Listeners
from grpc_backoff.aio.pending import PendingCalls
from grpc_backoff.channel.calls import ChannelCalls
from grpc_backoff.channel.settings import ChannelSetup
from grpc_backoff.connection.clock import Clock
from grpc_backoff.policy.backoff import Random

__all__ = ["Calls"]


class Calls(ChannelCalls):
    """The surroundings of one channel's calls, on its event loop.

    Attributes:
        clock: the channel's.
        loop: the channel's.
    """

    pending: PendingCalls
    hooks: Hooks

    def __init__(
        self,
        setup: ChannelSetup,
        *,
        pending: PendingCalls,
        hooks: Hooks,
        listeners: Listeners,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
    ) -> None:
        """Keep them; no call is known yet."""
        super().__init__(setup, pending=pending, hooks=hooks, listeners=listeners, now=clock.now, rng=rng)
        self.emit = listeners.hear_of_call
        self.clock = clock
        self.loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Run something beside an attempt; it may go on in a channel that is closing, as the attempt may."""
        # A copy: a task that starts eagerly cannot enter the context of the task that makes it.
        task = self.loop.create_task(work, context=context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Repeat nothing any more: calls between two attempts end, and so do the hooks."""
        super().close()
        self.hooks.close()

    async def closed(self) -> None:
        """Return once everything has ended; the attempts have, by now."""
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.gather(*others, return_exceptions=True)
        await self.hooks.closed()
