"""What the retried calls of one channel share: time, chance, budget, hooks, and who is told what happens."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from grpc_backoff.connection.clock import Clock
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.remarks import doubts, warn_of
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.retry.budget import RetryTokens
from grpc_backoff.retry.events import CallEvent
from grpc_backoff.retry.hooks import FailedCall, Hook, RetryHooks

__all__ = ["Pairs", "Retries"]

_LOG = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-z_.-]+", re.ASCII)

HookT = TypeVar("HookT")

Pairs = tuple[tuple[str, str | bytes], ...]
"""Pairs of metadata."""

_REFRESHING: ContextVar[asyncio.Task[Any] | None] = ContextVar("grpc_backoff_refreshing", default=None)
"""The renewal of credentials that the running code is part of: it must not wait for itself."""


@dataclass(eq=False, kw_only=True)
class Retries:
    """The surroundings of one channel's retried calls.

    Attributes:
        target: the channel's target as it was given.
        clock: the channel's.
        loop: the channel's.
        rng: where jitter comes from.
        hooks: what the program does when calls fail.
        tokens: what is left of the target's budget; None for no limit.
        replay_limit: how many bytes of a stream's requests are kept.
        stands_in: whether the core leaves calls that a GOAWAY ended to us (RT-10).
        emit: tells the channel's listeners.
        listeners: who they are; the first is the log.
    """

    target: str
    clock: Clock
    loop: asyncio.AbstractEventLoop
    rng: Random
    hooks: RetryHooks
    tokens: RetryTokens | None
    replay_limit: int
    stands_in: bool
    emit: Callable[[CallEvent], None]
    listeners: Sequence[Any]
    wall_clock: Callable[[], float] = time.time
    closed: bool = False
    _doubted: set[tuple[str, str]] = field(default_factory=set)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _between: set[asyncio.Task[Any]] = field(default_factory=set)
    _refreshing: asyncio.Task[Pairs] | None = None
    _refreshed_at: float = -math.inf

    def warn_of(self, method: str, policy: RetryPolicy, *, bounded: bool) -> None:
        """Warn, once for each method, of what of a policy makes calls that go on and on."""
        told = [(method, doubt) for doubt in doubts(policy, bounded=bounded)]
        new = [doubt for doubt in told if doubt not in self._doubted]
        self._doubted.update(new)
        if new:
            warn_of([f"retries of {method}: {'; '.join(doubt for _, doubt in new)}"])

    def spawn(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Run something beside a try; it may go on in a channel that is closing, as the try may."""
        # A copy: a task that starts eagerly cannot enter the context of the task that makes it.
        task = self.loop.create_task(work, context=context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def between_tries(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Run what a call needs behind its failure; `close` ends it."""
        task = self.spawn(work, context)
        self._between.add(task)
        task.add_done_callback(self._between.discard)
        return task

    def close(self) -> None:
        """Retry nothing any more: calls between two tries end, and so do the hooks. Running tries are not touched."""
        self.closed = True
        for task in self._others(self._between):
            task.cancel()

    async def all_closed(self) -> None:
        """Return once everything has ended; the tries have, by now."""
        for task in self._others(self._tasks - self._between):  # those were cancelled, and may be cleaning up
            task.cancel()
        await asyncio.gather(*self._others(self._tasks), return_exceptions=True)

    def _others(self, tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Return all of them but the one that asks: a hook may close the channel."""
        return tasks - {asyncio.current_task()}

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of the channel's clock."""
        await self._until(self.loop.create_future(), seconds)

    async def _until(self, over: asyncio.Future[None], seconds: float | None) -> None:
        """Return when something is over, or after so many seconds of the channel's clock."""
        if seconds is None:
            await over
            return
        timer = self.clock.call_at(self.clock.now() + seconds, partial(_wake, over))
        try:
            await over
        finally:
            timer.cancel()

    def can_refresh(self) -> bool:
        """Return whether there is a way to new credentials (RT-4): not for the calls that the hook itself makes."""
        own = _REFRESHING.get()
        return self.hooks.refresh_credentials is not None and (own is None or own.done() or own is not self._refreshing)

    async def refresh(self, failed: FailedCall, tried_at: float, left: float | None) -> Pairs | None:
        """Have the credentials renewed; return the metadata that the hook gives, None if they are not renewed (RT-4).

        One run of the hook is for all calls whose tries began before its end: they had the old credentials.

        Args:
            failed: the try that failed.
            tried_at: when it began.
            left: the seconds until the call's deadline; None without one.
        """
        refreshing = self._refreshing
        if refreshing is None or (refreshing.done() and tried_at >= self._refreshed_at):
            assert self.hooks.refresh_credentials is not None, "asked only where it can be"
            refreshing = self._refreshing = self._start(self._renew(self.hooks.refresh_credentials, failed))
        await self._wait_for(refreshing, left)
        renewed = refreshing.done() and not refreshing.cancelled() and refreshing.exception() is None
        return refreshing.result() if renewed else None

    async def _renew(self, hook: Hook, failed: FailedCall) -> Pairs:
        _REFRESHING.set(asyncio.current_task())  # in the context of this task, and of what it starts
        try:
            renewed = _metadata(await _call(hook, failed))
        except BaseException:
            self._refreshing = None  # the next call may have more luck
            raise
        self._refreshed_at = self.clock.now()
        return renewed

    async def tell(self, hook: Hook | None, failed: FailedCall, left: float | None) -> None:
        """Call a hook, and wait for it as long as the call has time."""
        if hook is not None:
            await self._wait_for(self._start(_call(hook, failed)), left)

    def _start(self, hook: Coroutine[Any, Any, HookT]) -> asyncio.Task[HookT]:
        task: asyncio.Task[HookT] = self.loop.create_task(hook)
        for tasks in (self._tasks, self._between):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        task.add_done_callback(self._hook_ended)
        return task

    async def _wait_for(self, task: asyncio.Task[Any], seconds: float | None) -> None:
        """Return when a task has ended, or after so many seconds: it goes on then."""
        over = self.loop.create_future()
        task.add_done_callback(lambda _: _wake(over))
        await self._until(over, seconds)

    def _hook_ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.error("a hook of the channel to %s raised", self.target, exc_info=error)


async def _call(hook: Hook, failed: FailedCall) -> Any:
    answer = hook(failed)
    return await answer if inspect.isawaitable(answer) else answer


def _metadata(given: Any) -> Pairs:
    """Return the pairs that a hook gave; TypeError, without the values, if grpc would not take them for metadata."""
    try:
        pairs = tuple((key, value) for key, value in given or ())
    except (TypeError, ValueError):
        kind = type(given).__qualname__
        raise TypeError(f"refresh_credentials returned {kind}; pairs of metadata, or None, are allowed") from None
    for key, value in pairs:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise TypeError(
                f"refresh_credentials returned the key {key!r}; lower-case letters, digits and -_. are allowed"
            )
        if not isinstance(value, bytes if key.endswith("-bin") else str):
            kind = type(value).__qualname__
            raise TypeError(
                f"refresh_credentials returned {kind} for {key}; bytes for keys in -bin, else str, are allowed"
            )
    return pairs


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
