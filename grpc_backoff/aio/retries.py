"""What the retried calls of one channel share: time, chance, budget, hooks, and who is told what happens."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grpc_backoff.connection.clock import Clock
from grpc_backoff.policy.backoff import Random
from grpc_backoff.retry.budget import RetryTokens
from grpc_backoff.retry.events import CallEvent
from grpc_backoff.retry.hooks import FailedCall, Hook, RetryHooks

__all__ = ["Retries"]

_LOG = logging.getLogger(__name__)


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
    _between_tries: set[asyncio.Task[Any]] = field(default_factory=set)
    _of_calls: set[asyncio.Task[Any]] = field(default_factory=set)
    _refreshing: asyncio.Future[Any] | None = None

    def between_tries(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        """Run what follows on a failed try, until the next one; closing the channel cancels it."""
        return self._run(work, context, self._between_tries)

    def beside_call(self, work: Coroutine[Any, Any, Any], context: Context) -> asyncio.Task[Any]:
        """Run what ends with its call, such as sending its requests; closing the channel waits for that."""
        return self._run(work, context, self._of_calls)

    def _run(
        self, work: Coroutine[Any, Any, Any], context: Context | None, tasks: set[asyncio.Task[Any]]
    ) -> asyncio.Task[Any]:
        task = self.loop.create_task(work, context=context)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def close(self) -> None:
        """Retry nothing any more: calls between two tries are over, and those that run have their last one."""
        self.closed = True
        for task in self._between_tries - {asyncio.current_task()}:  # a hook may close the channel
            task.cancel()

    async def all_closed(self) -> None:
        """Return once nothing runs any more; the calls have been ended by then."""
        tasks = (self._between_tries | self._of_calls) - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of the channel's clock."""
        over = self.loop.create_future()
        timer = self.clock.call_at(self.clock.now() + seconds, partial(_wake, over))
        try:
            await over
        finally:
            timer.cancel()

    async def refresh(self, failed: FailedCall, left: float | None) -> tuple[bool, Any]:
        """Have the credentials renewed; return whether they are, and what the hook returned (RT-4).

        Calls that fail while the hook runs wait for it instead of calling it again.
        """
        assert self.hooks.refresh_credentials is not None
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._start(self.hooks.refresh_credentials, failed)
        refreshing = self._refreshing
        await asyncio.wait([refreshing], timeout=left)
        if not refreshing.done() or refreshing.cancelled() or refreshing.exception() is not None:
            return False, None
        return True, refreshing.result()

    async def tell(self, hook: Hook | None, failed: FailedCall, left: float | None) -> None:
        """Call a hook, and wait for it as long as the call has time."""
        if hook is not None:
            await asyncio.wait([self._start(hook, failed)], timeout=left)

    def _start(self, hook: Hook, failed: FailedCall) -> asyncio.Future[Any]:
        """Call a hook; return what its answer will be. One that is no coroutine function has run by then."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        try:
            returned = hook(failed)
            if inspect.isawaitable(returned):
                answer = self.between_tries(_wait_for(returned))
            else:
                answer.set_result(returned)
        except Exception as error:  # noqa: BLE001 - it is the hook's
            answer.set_exception(error)
        answer.add_done_callback(self._hook_ended)
        return answer

    def _hook_ended(self, answer: asyncio.Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if error is not None:
            _LOG.error("a hook of the channel to %s raised", self.target, exc_info=error)


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
