"""The four arities of retried calls: how answers are read, and how requests are sent once more (RT-8)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable
from typing import Any

import grpc.aio

from grpc_backoff.aio.retries import Retries
from grpc_backoff.aio.retrying import MakeAttempt, RetriedCall
from grpc_backoff.aio.stream_tries import StreamTry
from grpc_backoff.aio.styles import StreamRequest, StreamResponse
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.retry.core_words import Link
from grpc_backoff.retry.replay import ReplayBuffer

__all__ = ["RETRIED_CALLS", "RetriedStreamRequest"]

_LOG = logging.getLogger(__name__)

_HALF_CLOSED = 'RPC is half closed after calling "done_writing".'

Serializer = Callable[[Any], bytes]


class _UnaryResponse(RetriedCall):
    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the response."""
        while True:
            attempt: Any = self._attempt
            try:
                return (yield from attempt.__await__())
            except grpc.aio.AioRpcError:
                if not (yield from self._goes_on(attempt).__await__()):
                    raise
            except asyncio.CancelledError:
                self.cancel()
                raise


class _StreamResponse(StreamResponse, RetriedCall):
    async def _iterate(self) -> AsyncIterator[Any]:
        while True:
            attempt: Any = self._attempt
            try:
                async for response in attempt:
                    if attempt is not self._attempt:
                        break  # it came after the decision to try again
                    self.commit()
                    yield response
                else:
                    return
            except grpc.aio.AioRpcError:
                if not await self._goes_on(attempt):
                    raise
            except asyncio.CancelledError:
                self.cancel()
                raise

    async def _read(self) -> Any:
        while True:
            attempt: Any = self._attempt
            try:
                response = await attempt.read()
            except grpc.aio.AioRpcError:
                if not await self._goes_on(attempt):
                    raise
            except asyncio.CancelledError:
                self.cancel()
                raise
            else:
                if attempt is self._attempt:
                    if response is not grpc.aio.EOF:
                        self.commit()
                    return response


class RetriedStreamRequest(StreamRequest, RetriedCall):
    """A retried call whose requests are a stream: each try gets them from the first on."""

    def __init__(
        self,
        retries: Retries,
        policy: RetryPolicy | None,
        method: str,
        make: MakeAttempt,
        timeout: float | None,
        limit: float | None,
        serialize: Serializer,
        requests: AsyncIterable[Any] | Iterable[Any] | None,
        *,
        link: Callable[[], Link],
        patient: bool = False,
    ) -> None:
        """Make the first try, and begin to send the requests if there is an iterator of them.

        The tries that `make` makes take serialized requests.
        """
        self._serialize = serialize
        self._buffer = ReplayBuffer(retries.replay_limit)
        self._complete = True
        self._sent = 0
        self._half_closed = False
        self._sending = asyncio.Lock()
        self._sent_to: grpc.aio.Call | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.takes_writes = requests is None
        super().__init__(
            retries,
            policy,
            method,
            lambda *how: StreamTry(make(*how)),
            timeout,
            limit,
            link=link,
            patient=patient,
        )
        if requests is not None:
            self._run(self._consume(requests))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what sends requests, until the call ends."""
        task = self._retries.spawn(work, self._context)
        self._tasks = [other for other in self._tasks if not other.done()] + [task]

    def _settle(self, outcome: Any) -> None:
        super()._settle(outcome)
        for task in self._tasks:
            task.cancel()

    def _try(self, now: float) -> grpc.aio.Call:
        attempt = super()._try(now)
        if not self._complete:
            self.commit()
        if self._buffer.end or self._buffer.closed:  # a later try
            self._run(self._replay())
        return attempt

    def commit(self) -> None:
        """Hold the call to the try that runs; what that has got will not be sent again."""
        super().commit()
        if self._sent_to is self._attempt:
            self._buffer.release(self._sent)

    @property
    def _done_writing_flag(self) -> bool:
        # grpc's intercepted stream calls look at this attribute of the call that an interceptor returned.
        return self._buffer.closed

    async def _write(self, request: Any) -> None:
        if self._buffer.closed:
            raise asyncio.InvalidStateError(_HALF_CLOSED)
        if not self._buffer.add(self._serialized(request)):  # RT-8
            self._complete = False  # from the next request on; so a try that has ended may have one more after it
            if not self._attempt.done():
                self.commit()
        await self._deliver()

    def _serialized(self, request: Any) -> bytes:
        try:
            data = self._serialize(request)
        except Exception:  # noqa: BLE001 - it is the serializer's
            _LOG.exception("a request cannot be serialized; as with grpc, an empty one takes its place")
            return b""
        if data is not None and not isinstance(data, bytes):
            raise TypeError(f"a serialized request is bytes, not {type(data).__name__}")
        return data or b""

    async def _done_writing(self) -> None:
        if not self._buffer.closed:
            self._buffer.closed = True
            with contextlib.suppress(asyncio.InvalidStateError):  # a call that has ended needs no end of requests
                await self._deliver()

    async def _deliver(self) -> None:
        """Return once a try has got everything; raise the call's error if there is none that can."""
        while True:
            attempt = self._attempt
            try:
                await self._send()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it has ended, or takes no more
                if self._is_answered():
                    self.commit()
                if self._committed or not await self._goes_on(attempt):
                    raise
            except asyncio.CancelledError:
                self.cancel()
                raise
            else:
                return

    def _is_answered(self) -> bool:
        return isinstance(self._attempt, StreamTry) and self._attempt.answered

    async def _send(self) -> None:
        """Send the try that runs whatever it has not got yet."""
        async with self._sending:
            attempt: Any = self._attempt
            if attempt is not self._sent_to:
                self._sent_to, self._sent, self._half_closed = attempt, 0, False
            while self._sent < self._buffer.end:
                await attempt.write(self._buffer[self._sent])
                self._sent += 1
                if self._committed:
                    self._buffer.release(self._sent)
            if self._buffer.closed and not self._half_closed:
                self._half_closed = True
                await attempt.done_writing()

    async def _replay(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # its end is seen elsewhere
            await self._send()

    async def _consume(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        """Send what an iterator yields. As with grpc, one that raises cancels the call."""
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    if not await self._is_taken(self._write(request)):
                        return
            else:
                for request in requests:
                    if not await self._is_taken(self._write(request)):
                        return
            await self._is_taken(self._done_writing())
        except asyncio.CancelledError:
            self.cancel()
            raise
        except Exception:  # noqa: BLE001 - it is the iterator's
            _LOG.debug("the iterator of a call's requests raised", exc_info=True)
            self.cancel()

    @staticmethod
    async def _is_taken(sending: Coroutine[Any, Any, None]) -> bool:
        """Return whether the call goes on; whoever waits for its answer hears of its end."""
        try:
            await sending
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return False
        return True


class _RetriedUnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    pass


class _RetriedUnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    pass


class _RetriedStreamUnaryCall(RetriedStreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]):
    pass


class _RetriedStreamStreamCall(RetriedStreamRequest, _StreamResponse, grpc.aio.StreamStreamCall[Any, Any]):
    pass


RETRIED_CALLS: dict[str, Callable[..., RetriedCall]] = {
    "unary_unary": _RetriedUnaryUnaryCall,
    "unary_stream": _RetriedUnaryStreamCall,
    "stream_unary": _RetriedStreamUnaryCall,
    "stream_stream": _RetriedStreamStreamCall,
}
"""The class of a retried call by the name of the channel method that makes its multicallable."""
