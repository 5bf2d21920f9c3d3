"""Runs the program's hooks (RT-4 to RT-6) on the event loop."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING

from grpc_backoff.base.logs import Log
from grpc_backoff.decide.calls.call_machine import Hook, Metadata
from grpc_backoff.engine.hooks import ChannelHooks, Done, HookRun

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import FailedCall, RetryHooks
    from grpc_backoff.connection.clock import Clock


class Hooks(ChannelHooks):
    """One channel's hooks, and the tasks in which they run."""

    _log = Log(__name__)

    def __init__(self, hooks: RetryHooks, target: str, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(hooks, target, clock.now)
        self._loop = loop
        self.tasks: set[asyncio.Task[Metadata | None]] = set()
        """The hooks that are running."""

    def ask(self, hook: Hook, failed: FailedCall, began: float, context: Context, done: Done) -> None:
        """Run a hook, then call `done` with the renewed metadata, if any; at once if there is no such hook.

        The arguments are those of `_prepare`; `failed` is the hook's.
        """
        run = self._prepare(hook, began, context, done)
        if run is not None:
            # In a copy, because an eagerly started task cannot enter the context of the task that creates it.
            task = run.context.run(self._loop.create_task, _call(run, failed))
            self.tasks.add(task)
            task.add_done_callback(partial(self._ended, run.over))

    def _ended(self, over: Done, task: asyncio.Task[Metadata | None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("a hook of the channel to %s raised", self._target, exc_info=error)
        over(None if task.cancelled() or error is not None else task.result())

    def close(self) -> None:
        """Cancel running hooks, except a hook that is itself closing the channel."""
        for task in self._others():
            task.cancel()

    async def closed(self) -> None:
        """Wait until the cancelled hooks have ended."""
        others = self._others()
        if others:
            await asyncio.gather(*others, return_exceptions=True)

    def _others(self) -> set[asyncio.Task[Metadata | None]]:
        return self.tasks - {asyncio.current_task()}


async def _call(run: HookRun, failed: FailedCall) -> Metadata | None:
    answer = run.function(failed)
    return run.read(await answer if inspect.isawaitable(answer) else answer)
