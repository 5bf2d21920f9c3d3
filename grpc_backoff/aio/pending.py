"""The queue of pending calls, which wait for a connection."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from grpc_backoff.aio.call_errors import NoConnectionError
from grpc_backoff.aio.loops import until_done
from grpc_backoff.base.status import State
from grpc_backoff.decide.calls.call_machine import Missed, NotConnected
from grpc_backoff.engine import pending
from grpc_backoff.engine.pending import READY, AnyCall

if TYPE_CHECKING:
    from grpc_backoff.aio.pool import Share

_TRANSIENT_FAILURE = State.TRANSIENT_FAILURE  # up to Python 3.11, access to a member is slow


class PendingCalls(pending.PendingCalls):
    """One channel's pending calls, in order of arrival."""

    pool: Share
    no_connection_error = NoConnectionError

    def __init__(self, target: str, loop: asyncio.AbstractEventLoop, *, proxied: bool = False) -> None:
        super().__init__(target, proxied=proxied)
        self._loop = loop
        self._emptied: asyncio.Future[None] | None = None
        self._starting: set[AnyCall] = set()
        """The calls that are being told of a connection. One that finds it lost may cause another `release`."""

    def not_connected(self, *, waited: bool = True) -> NotConnected:
        """Ask for a connection; return the input for an attempt that finds none, and has `waited` for one or not.

        If the key is in backoff, its last failure also applies to calls that ask for a connection now (SH-3).
        """
        failing, pool = self.pool.want() is _TRANSIENT_FAILURE, self.pool.pool
        full = pool.waits_for_room
        if full:
            self._loop.call_soon(pool.fill)  # when the call is in the queue
        if failing:
            self._note_error()
        if not waited:  # so it has missed no connection
            return NotConnected(failing=failing, resolved=self._resolved, lasting=self._lasting)
        paid = full or pool.is_paid  # if full, it has missed no connection
        return NotConnected(failing, self._resolved, pool.made, paid, self._lasting)

    def discard(self, call: AnyCall) -> None:
        """Remove a call that has a connection or has ended."""
        self._waiting.pop(call, None)
        if self._emptied is not None and not self._waiting and not self._emptied.done():
            self._emptied.set_result(None)

    def release(self, most: float = math.inf) -> None:
        """Start pending calls, all or the first `most` of them, as long as the connection stays up."""
        self._resolved = True
        waiting = [call for call in tuple(self._waiting) if call not in self._starting]
        for turn, call in enumerate(waiting):
            if turn >= most:
                return
            if call not in self._waiting:
                continue  # a release that a call before it has caused has started it
            self._starting.add(call)
            try:
                self._feed(call, READY)
            finally:
                self._starting.discard(call)
            if call in self._waiting:  # the connection was lost before the call could use it
                pool = self.pool.pool
                missed = Missed(pool.made, pool.is_paid)
                for other in waiting[turn + 1 :]:
                    if other in self._waiting:
                        self._feed(other, missed)
                return

    async def emptied(self, within: float) -> None:
        """Wait until no call is pending, up to `within` seconds."""
        if self._waiting:
            self._emptied = self._loop.create_future()
            await until_done(self._emptied, within=within)
