"""Runs the program's hooks (RT-4 to RT-6) and lets calls share one renewal of credentials."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, TypeVar

from grpc_backoff.connection.clock import Clock
from grpc_backoff.decide.calls.call_machine import Hook, Metadata

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import FailedCall, RetryHooks
    from grpc_backoff.config.hooks import Hook as HookFunction

_LOG = logging.getLogger(__name__)
_REFRESHING: ContextVar[asyncio.Task[object] | None] = ContextVar("grpc_backoff_refreshing", default=None)
"""The renewal of credentials during which the current code runs. The code must not wait for that renewal."""

HookT = TypeVar("HookT")


class Hooks:
    """One channel's hooks, and the tasks in which they run."""

    def __init__(self, hooks: RetryHooks | None, target: str, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._hooks = hooks
        self._target = target
        self._clock = clock
        self._loop = loop
        self.tasks: set[asyncio.Task[object]] = set()
        """The hooks that are running."""
        self._refreshing: asyncio.Task[Metadata] | None = None
        self._refreshed_at = -math.inf

    def can_refresh(self, context: Context | None = None) -> bool:
        """Return whether credentials can be renewed for a call with this context, by default the current one (RT-4).

        For calls that the hook itself makes, this is False: the hook may wait for them.
        """
        own = _REFRESHING.get() if context is None else context.get(_REFRESHING)
        own_renewal = own is not None and not own.done() and own is self._refreshing
        return self._hooks is not None and self._hooks.refresh_credentials is not None and not own_renewal

    def ask(
        self,
        hook: Hook,
        failed: FailedCall,
        began: float,
        context: Context,
        done: Callable[[Metadata | None], None],
    ) -> None:
        """Run a hook, then call `done` with the renewed metadata, if any; at once if there is no such hook.

        Args:
            hook: the hook to run.
            failed: the argument of the hook.
            began: when the failed attempt began, in seconds on the channel's clock; a renewal since then need not be
                repeated.
            context: the call's context, in which the hook runs.
            done: called on the event loop.
        """
        if hook is Hook.REFRESH:
            task = self._renewal(failed, began, context)
            task.add_done_callback(lambda task: done(None if _failed(task) else task.result()))
            return
        function: HookFunction | None = getattr(self._hooks, hook.value, None)
        if function is None:
            done(None)
        else:
            self._start(_call(function, failed), context).add_done_callback(lambda _: done(None))

    def _renewal(self, failed: FailedCall, began: float, context: Context) -> asyncio.Task[Metadata]:
        """Return the renewal of credentials that a call has to wait for (RT-4).

        One run of the hook serves all calls whose attempts began before the run ended, because those attempts used the
        old credentials. A failed run serves only the calls that waited for it, because the next run may succeed.
        """
        renewal = self._refreshing
        if renewal is None or (renewal.done() and (_failed(renewal) or began >= self._refreshed_at)):
            hook = None if self._hooks is None else self._hooks.refresh_credentials
            assert hook is not None, "only called if there is such a hook"
            renewal = self._refreshing = self._start(self._renew(hook, failed), context)
        return renewal

    async def _renew(self, hook: HookFunction, failed: FailedCall) -> Metadata:
        from grpc_backoff.config.hooks import renewed_metadata  # noqa: PLC0415 - it is loaded: there is a hook

        _REFRESHING.set(asyncio.current_task())  # in the context of this task and its children
        renewed = renewed_metadata(await _call(hook, failed))
        self._refreshed_at = self._clock.now()
        return renewed

    def _start(self, hook: Coroutine[object, object, HookT], context: Context) -> asyncio.Task[HookT]:
        # Use a copy, because an eagerly started task cannot enter the context of the task that creates it.
        task: asyncio.Task[HookT] = self._loop.create_task(hook, context=context.copy())
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[HookT]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.error("a hook of the channel to %s raised", self._target, exc_info=error)

    def close(self) -> None:
        """Cancel running hooks, except a hook that is itself closing the channel."""
        for task in self._others():
            task.cancel()

    async def closed(self) -> None:
        """Wait until the cancelled hooks have ended."""
        others = self._others()
        if others:
            await asyncio.gather(*others, return_exceptions=True)

    def _others(self) -> set[asyncio.Task[object]]:
        return self.tasks - {asyncio.current_task()}


def _failed(task: asyncio.Task[HookT]) -> bool:
    return task.cancelled() or task.exception() is not None


async def _call(hook: HookFunction, failed: FailedCall) -> object:
    answer = hook(failed)
    return await answer if inspect.isawaitable(answer) else answer
