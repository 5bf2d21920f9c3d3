"""What the calls of one channel share: time, chance, the retry budget, hooks, and where they wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from grpc_backoff.aio.hooks import Hooks
from grpc_backoff.aio.listeners import Listeners
from grpc_backoff.aio.pending import PendingCalls
from grpc_backoff.calls.budget import RetryTokens
from grpc_backoff.calls.machine import ChannelClosing
from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.connection.clock import Clock
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.retry import RetryPolicy

if TYPE_CHECKING:
    from grpc_backoff.aio.call import Call

__all__ = ["Calls"]


class Calls:
    """The surroundings of one channel's calls: what their machine needs beside its inputs.

    Attributes:
        pending: the calls that wait for a connection.
        hooks: what the program does when calls fail.
        clock: the channel's.
        loop: the channel's.
        rng: where jitter comes from.
        tokens: what is left of the target's budget; None for no limit.
        replay_limit: how many bytes of a stream's requests are kept.
        stands_in: whether the core leaves calls that a GOAWAY refused to us (RT-10).
        listeners: the channel's.
        wall_clock: returns the seconds since the epoch, for servers that say a date.
        closing: whether the channel is closing.
    """

    def __init__(
        self,
        *,
        pending: PendingCalls,
        hooks: Hooks,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        tokens: RetryTokens | None,
        replay_limit: int,
        stands_in: bool,
        listeners: Listeners,
    ) -> None:
        """Keep them; no call is known yet."""
        self.pending = pending
        self.hooks = hooks
        self.clock = clock
        self.loop = loop
        self.rng = rng
        self.tokens = tokens
        self.replay_limit = replay_limit
        self.stands_in = stands_in
        self.emit = listeners.hear_of_call
        self._listeners = listeners
        self.wall_clock = time.time
        self.closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._between: dict[Call, None] = {}
        self._doubted: set[tuple[str, str]] = set()

    @property
    def observed(self) -> bool:
        """Whether anybody but the log listens."""
        return len(self._listeners.given) > 0

    def warn_of(self, method: str, policy: RetryPolicy, *, bounded: bool) -> None:
        """Warn, once for each method, of what of a policy makes calls that go on and on (RT-1)."""
        told = [(method, doubt) for doubt in doubts(policy, bounded=bounded)]
        new = [doubt for doubt in told if doubt not in self._doubted]
        self._doubted.update(new)
        if new:
            warn_of([f"retries of {method}: {'; '.join(doubt for _, doubt in new)}"])

    def spawn(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Run something beside an attempt; it may go on in a channel that is closing, as the attempt may."""
        # A copy: a task that starts eagerly cannot enter the context of the task that makes it.
        task = self.loop.create_task(work, context=context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def rests(self, call: Call) -> None:
        """Keep a call, and keep it alive, while it is between two attempts."""
        self._between[call] = None

    def goes_on(self, call: Call) -> None:
        """Forget a call that is not between two attempts any more."""
        self._between.pop(call, None)

    def close(self) -> None:
        """Repeat nothing any more: calls between two attempts end, and so do the hooks."""
        self.closing = True
        for call in tuple(self._between):
            call.feed(ChannelClosing())
        self.hooks.close()

    async def closed(self) -> None:
        """Return once everything has ended; the attempts have, by now."""
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.hooks.closed()
