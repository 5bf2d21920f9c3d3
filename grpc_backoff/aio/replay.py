"""The requests of a stream that may have to be sent again (RT-8): each attempt gets all of them, from the first one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import Any

import grpc.aio

from grpc_backoff.aio.call import Call
from grpc_backoff.base.base_errors import kind_of
from grpc_backoff.base.logs import Log
from grpc_backoff.decide.calls.replay import ReplayBuffer

_LOG = Log(__name__)
_HALF_CLOSED = 'RPC is half closed after calling "done_writing".'

Requests = AsyncIterable[object] | Iterable[object]


class Replay:
    """The requests that one call keeps, and the tasks that send them."""

    def __init__(self, call: Call, limit: int, serialize: Callable[[object], bytes] | None) -> None:
        """Start without requests; `limit` is how many bytes are kept."""
        self._call = call
        self._serialize = serialize
        self._buffer = ReplayBuffer(limit)
        self._complete = True
        self._sent = 0
        self._closed_to = False
        self._sending = asyncio.Lock()
        self._sent_to: Any = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def half_closed(self) -> bool:
        """Whether the caller has finished sending requests."""
        return self._buffer.closed

    def start(self, requests: Requests | None) -> None:
        """Start to send the requests of the iterator, if there is one."""
        if requests is not None and not self._call.done():
            self._run(self._consume(requests))

    def begun(self) -> None:
        """Send all requests so far to the attempt that has just begun."""
        if not self._complete:
            self._call.commit()
        if self._buffer.end or self._buffer.closed:
            self._run(self._send_quietly())

    def committed(self) -> None:
        """Discard the requests that the attempt has received, because they will not be sent again."""
        if self._sent_to is self._call.attempt:
            self._buffer.release(self._sent)

    def settled(self) -> None:
        """Stop sending requests."""
        tasks, self._tasks = self._tasks, []  # a cancelled task refers back to this object (CB-10)
        for task in tasks:
            task.cancel()

    def _run(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine that sends requests, until the call ends."""
        task = self._call.spawn(work)
        self._tasks = [other for other in self._tasks if not other.done()] + [task]

    async def write(self, request: object) -> None:
        """Send one request, to as many attempts as necessary."""
        if self._buffer.closed:
            raise asyncio.InvalidStateError(_HALF_CLOSED)
        data = self._serialized(request)
        await self._call.running()  # a write that is cancelled before then leaves the call as it was, as in grpc
        if not self._buffer.add(data):
            self._complete = False  # over the limit: if no attempt is running, only one more may follow
            attempt = self._call.attempt
            if attempt is not None and not attempt.done():
                self._call.commit()
        await self._deliver()

    def _serialized(self, request: object) -> bytes:
        if self._serialize is None:
            data = request
        else:
            try:
                data = self._serialize(request)
            except Exception:  # noqa: BLE001 - a serializer may raise anything
                _LOG.exception("a request could not be serialized; an empty one is sent instead, as in grpc")
                return b""
        if data is not None and not isinstance(data, bytes):
            raise TypeError(f"request serializer returned {kind_of(data)}: expected bytes")
        return data or b""

    async def done_writing(self) -> None:
        """Finish sending requests."""
        if not self._buffer.closed:
            self._buffer.closed = True
            with contextlib.suppress(asyncio.InvalidStateError):  # a finished call needs no end of requests
                await self._deliver()

    async def _deliver(self) -> None:
        """Wait until an attempt has received all requests; raise the call's error if no attempt will receive them."""
        while True:
            attempt = await self._call.or_cancel(self._call.running())
            try:
                await self._send(attempt)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the attempt accepts no more requests
                if attempt.answered:
                    self._call.commit()
                if self._call.committed or not await self._call.or_cancel(self._call.follows(attempt)):
                    raise
            except asyncio.CancelledError:
                self._call.cancel()
                raise
            else:
                if attempt is self._call.attempt or self._call.done():
                    return

    async def _send(self, attempt: object) -> None:
        """Send an attempt all requests that it has not received yet."""
        async with self._sending:
            if attempt is not self._call.attempt:
                return  # another attempt has begun in the meantime, with its own task
            if attempt is not self._sent_to:
                self._sent_to, self._sent, self._closed_to = attempt, 0, False
            while self._sent < self._buffer.end:
                await attempt.write(self._buffer[self._sent])
                self._sent += 1
                if self._call.committed:
                    self._buffer.release(self._sent)
            if self._buffer.closed and not self._closed_to:
                self._closed_to = True
                await attempt.done_writing()

    async def _send_quietly(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # its end is handled elsewhere
            await self._send(self._call.attempt)

    async def _consume(self, requests: Requests) -> None:
        """Send the requests of an iterator. As in grpc, an exception from the iterator cancels the call."""
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    if not await self._is_taken(self.write(request)):
                        return
            else:
                for request in requests:
                    if not await self._is_taken(self.write(request)):
                        return
            await self._is_taken(self.done_writing())
        except asyncio.CancelledError:
            self._call.cancel()
            raise
        except Exception:  # noqa: BLE001 - an iterator may raise anything
            _LOG.debug("the request iterator of a call raised", exc_info=True)
            self._call.cancel()

    @staticmethod
    async def _is_taken(sending: Coroutine[object, object, None]) -> bool:
        """Await `sending`; return False if the call has ended, because awaiting the response then raises the error."""
        try:
            await sending
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return False
        return True
