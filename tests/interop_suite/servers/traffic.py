"""Makes calls continuously on one channel, and notes how each of them ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections import Counter
from dataclasses import dataclass

import grpc
import grpc.aio

from grpc_backoff import aio

PATIENCE = 20.0  # seconds: the deadline of wait-for-ready calls, in which a server is killed and started again
PAUSE = 0.02
LONG_MS = 400  # milliseconds that a server waits before it answers a long call
SLACK = 2.0  # seconds after its deadline, after which a call counts as hanging
CORE_COULD_NOT_CONNECT = "failed to connect to all addresses"


@dataclass(slots=True)
class Call:
    """A call. Times are in seconds on the event loop's clock.

    Attributes:
        wait_for_ready: whether it is a wait-for-ready call.
        began: when it was made.
        deadline: when it must end.
        ended: when it ended; None if it is running or hung.
        code: its status code.
        details: its status details; empty for success.
        unsent: whether it failed for lack of a connection, so that no server can have seen it. Either the channel
            reports this, or grpc's core does after redialling for a call that was assigned to a connection as it ended.
    """

    wait_for_ready: bool
    began: float
    deadline: float
    ended: float | None = None
    code: grpc.StatusCode | None = None
    details: str = ""
    unsent: bool = False

    @property
    def answered(self):
        """Whether the call succeeded."""
        return self.code is grpc.StatusCode.OK

    @property
    def lost(self):
        """Whether the call failed although it was sent, or although it was wait-for-ready."""
        return not self.answered and (self.wait_for_ready or not self.unsent)


def outcomes(calls):
    """Return the two most frequent outcomes of calls, without what differs between calls: targets and next attempts."""
    words = Counter(f"{call.code.name}, {_plain(call.details)!r}" if call.code else "hung" for call in calls)
    return "; ".join(text for text, _ in words.most_common(2))


def _plain(details):
    return re.sub(r"; (attempt|next) [^;]*$", "", re.sub(r"(ipv4:)?127\.0\.0\.1:\d+", "the target", details))


class Traffic:
    """Workers that make calls while the context is open. Calls are wait-for-ready or fail-fast, and long or short."""

    def __init__(self, channel, method, deadline, patience):
        """Make calls of this method; `patience` is the deadline of wait-for-ready calls, in seconds."""
        self.calls = []
        self._method = channel.unary_unary(method)
        self._deadlines = {False: deadline, True: patience}
        self._over = False
        self._answered = asyncio.Condition()

    async def __aenter__(self):
        kinds = [(False, False), (True, False), (False, False), (True, False), (False, True), (True, True)]
        self._workers = [asyncio.create_task(self._work(*kind)) for kind in kinds]
        return self

    async def __aexit__(self, failed, *_):
        """Wait for running calls to end and cancel those that hang."""
        self._over = True
        await asyncio.wait(self._workers, timeout=0 if failed else max(self._deadlines.values()) + SLACK)
        for worker in self._workers:
            worker.cancel()
        for outcome in await asyncio.gather(*self._workers, return_exceptions=True):
            if isinstance(outcome, Exception) and not failed:
                raise outcome  # this is our own error, not a failed call

    async def answered_since(self, moment, limit):
        """Wait until a call made since `moment` is answered, for at most `limit` seconds: a check shows if none was."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit), self._answered:
                await self._answered.wait_for(lambda: any(call.answered for call in self._since(moment)))

    def _since(self, moment):
        return itertools.takewhile(lambda call: call.began >= moment, reversed(self.calls))

    async def _work(self, wait_for_ready, long):
        while not self._over:
            await self._call(wait_for_ready, long)
            await asyncio.sleep(PAUSE)

    async def _call(self, wait_for_ready, long):
        clock, timeout = asyncio.get_running_loop().time, self._deadlines[wait_for_ready]
        call = Call(wait_for_ready, clock(), clock() + timeout)
        self.calls.append(call)
        metadata = (("answer-after-ms", str(LONG_MS)),) if long else ()
        try:
            await self._method(b"", timeout=timeout, wait_for_ready=wait_for_ready, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            call.ended, call.code, call.details = clock(), error.code(), error.details() or ""
            no_connection = isinstance(error, aio.NoConnectionError)
            call.unsent = no_connection or call.details.startswith(CORE_COULD_NOT_CONNECT)
            return
        call.ended, call.code = clock(), grpc.StatusCode.OK
        async with self._answered:
            self._answered.notify_all()
