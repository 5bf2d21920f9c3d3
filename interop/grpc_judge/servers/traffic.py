"""Makes calls continuously on one channel and records how each of them ended."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from grpc_backoff import aio

_PAUSE = 0.02
_DELAY_MS = 400
"""How many milliseconds a server waits before it answers a long call."""
_PATIENCE = 20.0
"""The deadline of wait-for-ready calls in seconds, which is long enough for a server to be killed and restarted."""
_CORE_COULD_NOT_CONNECT = "failed to connect to all addresses"
_SLACK = 2.0
"""How many seconds after its deadline a call counts as hanging."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended.

    Attributes:
        at: when it ended.
        code: its status code.
        details: its status details; empty for success.
        unsent: whether it failed for lack of a connection, so that no server can have seen it. Either the channel
            reports this, or grpc's core does after redialling for a call that was assigned to a connection as it ended.
    """

    at: float
    code: grpc.StatusCode
    details: str = ""
    unsent: bool = False


@dataclass(slots=True)
class Call:
    """A call. Times are in seconds on the event loop's clock.

    Attributes:
        wait_for_ready: whether it is a wait-for-ready call.
        long: whether the server was asked to delay its answer.
        began: when it was made.
        deadline: when it must end.
        ended: how it ended; None if it is running or hung.
    """

    wait_for_ready: bool
    long: bool
    began: float
    deadline: float
    ended: Ended | None = None

    @property
    def answered(self) -> bool:
        """Whether the call succeeded."""
        return self.ended is not None and self.ended.code is grpc.StatusCode.OK

    @property
    def lost(self) -> bool:
        """Whether the call failed although it was sent, or although it was wait-for-ready."""
        return not self.answered and (self.wait_for_ready or self.ended is None or not self.ended.unsent)


def outcomes(calls: Sequence[Call]) -> str:
    """Return the two most frequent outcomes of calls, as text in parentheses; empty if no call has ended."""
    words = Counter(f"{call.ended.code.name}, {_plain(call.ended.details)!r}" for call in calls if call.ended)
    return f" ({'; '.join(text for text, _ in words.most_common(2))})" if words else ""


def _plain(details: str) -> str:
    """Remove the parts of status details that differ between calls: the target and the next attempt."""
    return re.sub(r"; (attempt|next) [^;]*$", "", re.sub(r"(ipv4:)?127\.0\.0\.1:\d+", "the target", details))


class Traffic:
    """Workers that make calls while the context is open. Calls are wait-for-ready or fail-fast, and long or short."""

    def __init__(self, channel: aio.Channel, method: str, deadline: float, *, everybody: bool) -> None:
        """Make calls to this method. The deadline, in seconds, covers wait-for-ready calls if `everybody`."""
        self._method: Any = channel.unary_unary(method)
        self._deadlines = {False: deadline, True: deadline if everybody else _PATIENCE}
        self._calls: list[Call] = []
        self._over = False
        self._answered = asyncio.Condition()

    @property
    def calls(self) -> Sequence[Call]:
        """All calls so far, in the order in which they were made."""
        return self._calls

    async def __aenter__(self) -> Self:
        """Start making calls."""
        kinds = [(False, False), (True, False), (False, False), (True, False), (False, True), (True, True)]
        self._workers = [asyncio.create_task(self._work(wait_for_ready, long)) for wait_for_ready, long in kinds]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Wait for running calls to end and cancel those that hang."""
        self._over = True
        patience = 0.0 if exc_type else max(self._deadlines.values()) + _SLACK
        await asyncio.wait(self._workers, timeout=patience)
        for worker in self._workers:
            worker.cancel()
        for outcome in await asyncio.gather(*self._workers, return_exceptions=True):
            if isinstance(outcome, Exception) and not exc_type:
                raise outcome  # this is our own error, not a failed call

    async def answered_since(self, moment: float, limit: float) -> None:
        """Wait until a call that was made after `moment` is answered, but no longer than `limit` seconds."""
        try:
            async with asyncio.timeout(limit), self._answered:
                await self._answered.wait_for(
                    lambda: any(call.began >= moment and call.answered for call in reversed(self._calls))
                )
        except TimeoutError:
            pass  # the verdict will show that

    async def _work(self, wait_for_ready: bool, long: bool) -> None:
        while not self._over:
            await self._call(wait_for_ready, long)
            await asyncio.sleep(_PAUSE)

    async def _call(self, wait_for_ready: bool, long: bool) -> None:
        loop, timeout = asyncio.get_running_loop(), self._deadlines[wait_for_ready]
        began = loop.time()
        call = Call(wait_for_ready, long, began, began + timeout)
        self._calls.append(call)
        metadata = (("answer-after-ms", str(_DELAY_MS)),) if long else ()
        try:
            await self._method(b"", timeout=timeout, wait_for_ready=wait_for_ready, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            unsent = isinstance(error, aio.NoConnectionError) or details.startswith(_CORE_COULD_NOT_CONNECT)
            call.ended = Ended(loop.time(), error.code(), details, unsent)
            return
        call.ended = Ended(loop.time(), grpc.StatusCode.OK)
        async with self._answered:
            self._answered.notify_all()
