"""The four arities of calls that may wait for a connection or be repeated, and the styles of reading and writing.

Like grpc's own calls, these refuse to mix iteration with `read`, or an iterator of requests with `write`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any

import grpc.aio

from grpc_backoff.aio.call import Call, Outcome, Sender
from grpc_backoff.aio.connection import CallConnection
from grpc_backoff.aio.replay import Replay
from grpc_backoff.aio.stream_attempt import StreamAttempt
from grpc_backoff.engine.call import CallSetup

_MIXED_STYLES = "The iterator and read/write APIs may not be mixed on a single RPC."
_ALREADY_FINISHED = "RPC already finished."


class UnaryResponse(Call):
    """A call whose only response is awaited."""

    def __await__(self) -> Generator[Any, None, object]:
        """Wait for the outcome, so that attempts that are repeated neither wake the caller nor raise errors."""
        try:
            while self._outcome is None:
                yield from self._ending()
            if self._outcome is self._attempt:
                return (yield from self.attempt.__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_outcome()
        raise AssertionError("a call that made no attempt must end with an error")


class StreamResponse(Call):
    """A call whose responses are either iterated over or read one by one."""

    _responses: AsyncIterator[object] | None = None
    _reads = False

    def __aiter__(self) -> AsyncIterator[object]:
        """Iterate over the responses."""
        if self._reads:
            raise grpc.aio.UsageError(_MIXED_STYLES)
        if self._responses is None:
            self._responses = self._iterate()
        return self._responses

    async def _iterate(self) -> AsyncIterator[object]:
        while True:
            attempt = await self.running_or_cancel()
            try:
                async for response in attempt:
                    if attempt is not self._attempt:
                        break  # it arrived after the decision to make another attempt
                    self.commit()
                    yield response
                else:
                    return
            except grpc.aio.AioRpcError:
                if not await self.follows_or_cancel(attempt):
                    raise
            except asyncio.CancelledError:
                self._cancelled_while(attempt)
                raise

    async def read(self) -> object:
        """Return the next response, or `grpc.aio.EOF`."""
        if not self.done():
            if self._responses is not None:
                raise grpc.aio.UsageError(_MIXED_STYLES)
            self._reads = True
        return await self._next_response()

    async def _next_response(self) -> object:
        while True:
            attempt, response = await self._from_attempt(self._read)
            if attempt is self._attempt:
                if response is not grpc.aio.EOF:
                    self.commit()
                return response

    async def _read(self, attempt: Any) -> object:
        return await attempt.read()


class _StreamRequest(Call):
    """A call whose requests are either taken from an iterator or written one by one; they are sent to each attempt."""

    _replay: Replay | None = None

    def __init__(self, setup: CallSetup[Sender]) -> None:
        self._takes_writes = setup.request is None
        if not setup.machine.handed_over:
            self._replay = Replay(self, setup.calls, setup.attempts.serializer, setup.request)
            setup = setup._replace(attempts=setup.attempts.of_bytes(), request=None)
        super().__init__(setup)
        if self._replay is not None:
            self._replay.start(self._context)

    def _begun(self, attempt: grpc.aio.Call, connection: CallConnection) -> None:
        if self._replay is None:
            super()._begun(attempt, connection)
        else:
            super()._begun(StreamAttempt(attempt), connection)
            self._replay.begun()

    def commit(self) -> None:
        if not self.committed:
            super().commit()
            if self._replay is not None:
                self._replay.committed()

    def _settle(self, outcome: Outcome) -> None:
        replay, self._replay = self._replay, None  # pending writes keep it alive, and it refers to this call
        if replay is not None:
            replay.settled()
        super()._settle(outcome)

    @property
    def _done_writing_flag(self) -> bool:
        # grpc's intercepted stream calls read this attribute of the call that an interceptor returned.
        if self._replay is not None:
            return self._replay.half_closed
        return getattr(self._outcome, "_done_writing_flag", False)

    async def write(self, request: object) -> None:
        """Send one request, after waiting for a connection if there is none."""
        self._check_style()
        if self.done():
            raise asyncio.InvalidStateError(_ALREADY_FINISHED)
        await (self._replay or await self.running()).write(request)

    async def done_writing(self) -> None:
        """Finish sending requests; does nothing if the call has ended."""
        self._check_style()
        if not self.done():
            await (self._replay or await self.running_or_cancel()).done_writing()

    def _check_style(self) -> None:
        if not self._takes_writes:
            raise grpc.aio.UsageError(_MIXED_STYLES)


class _UnaryUnaryCall(UnaryResponse, grpc.aio.UnaryUnaryCall[object, object]):
    pass


class _UnaryStreamCall(StreamResponse, grpc.aio.UnaryStreamCall[object, object]):
    pass


class _StreamUnaryCall(_StreamRequest, grpc.aio.StreamUnaryCall[object, object]):
    def __await__(self) -> Generator[Any, None, object]:
        """Wait for the response on each attempt, which may have to be read to find its end (`StreamAttempt`)."""
        _, response = yield from self._from_attempt(_awaited).__await__()
        return response


async def _awaited(attempt: Any) -> object:
    return await attempt


class _StreamStreamCall(_StreamRequest, StreamResponse, grpc.aio.StreamStreamCall[object, object]):
    pass


CALLS: dict[str, type[Call]] = {
    "unary_unary": _UnaryUnaryCall,
    "unary_stream": _UnaryStreamCall,
    "stream_unary": _StreamUnaryCall,
    "stream_stream": _StreamStreamCall,
}
"""Call classes, by the name of the channel method that creates the multicallable."""
