"""The environment that one channel's calls share: time, randomness, retry budget, hooks and pending calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from grpc_backoff.aio.loops import start
from grpc_backoff.aio.pending import PendingCalls
from grpc_backoff.config.channel_setup import ChannelSetup
from grpc_backoff.engine import environment

if TYPE_CHECKING:
    from grpc_backoff.aio.hooks import Hooks
    from grpc_backoff.aio.ordered_timers import OrderedTimers
    from grpc_backoff.config.hooks import FailedCall
    from grpc_backoff.decide.calls.call_machine import Hook
    from grpc_backoff.engine.hooks import Done


class CallEnvironment(environment.CallEnvironment):
    """The environment that one channel's calls share, on the channel's event loop.

    Attributes:
        loop: the channel's event loop.
        delays: the timers of hedged calls for their second copies, by the hedging delay in seconds.
    """

    pending: PendingCalls
    hooks: Hooks | None

    def __init__(self, setup: ChannelSetup, *, loop: asyncio.AbstractEventLoop, **parts: Any) -> None:
        """Take the arguments of the base class, and the channel's event loop."""
        super().__init__(setup, **parts)
        self.loop = loop
        self.delays: dict[float, OrderedTimers] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, object, None], context: Context) -> asyncio.Task[None]:
        """Run a coroutine alongside an attempt; like the attempt, it may continue while the channel closes."""
        # Use a copy, because an eagerly started task cannot enter the context of the task that creates it.
        return start(self.loop, work, self._tasks, context.copy())

    def ask(self, hook: Hook, failed: FailedCall, began: float, context: Context, done: Done) -> None:
        """Run a hook, then call `done`; at once if there is no such hook. See `Hooks.ask`."""
        if self.hooks is None:
            done(None)
        else:
            self.hooks.ask(hook, failed, began, context, done)

    def has(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether `closed` waits for this task."""
        return task in self._tasks or (self.hooks is not None and task in self.hooks.tasks)

    def close(self) -> None:
        """Make no further attempts: calls between two attempts end, and running hooks are cancelled."""
        super().close()
        for losers in tuple(self.losing):
            losers.cancel()
        for timers in self.delays.values():  # a channel that closes sends no further copies
            timers.close()
        if self.hooks is not None:
            self.hooks.close()

    async def closed(self) -> None:
        """Cancel the coroutines alongside attempts and wait until they and the hooks have ended."""
        others = self._tasks - {asyncio.current_task()} if self._tasks else ()
        for task in others:
            task.cancel()
        if others:
            await asyncio.gather(*others, return_exceptions=True)
        if self.hooks is not None:
            await self.hooks.closed()
