"""Calls with one request that may wait for a connection or be repeated, and the styles of reading.

Like grpc's own calls, these refuse to mix iteration with `read`. `request_streams.py` has the calls with a stream of
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any

import grpc.aio

from grpc_backoff.aio.call import Call, cancellations

MIXED_STYLES = "The iterator and read/write APIs may not be mixed on a single RPC."


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
            raise grpc.aio.UsageError(MIXED_STYLES)
        if self._responses is None:
            self._responses = self._iterate()
        return self._responses

    async def _iterate(self) -> AsyncIterator[object]:
        while True:
            attempt = await self.or_cancel(self.running())
            before = cancellations()
            try:
                async for response in attempt:
                    self.heed_cancellation(before)
                    if attempt is not self._attempt:
                        break  # it arrived after the decision to make another attempt
                    self.commit()
                    yield response
                    before = cancellations()  # another task may read on
                else:
                    self.heed_cancellation(before)
                    return
            except grpc.aio.AioRpcError:
                self.heed_cancellation(before)
                if not await self.or_cancel(self.follows(attempt)):
                    raise
            except asyncio.CancelledError:
                self._cancelled_while(attempt)
                raise

    async def read(self) -> object:
        """Return the next response, or `grpc.aio.EOF`."""
        if not self.done():
            if self._responses is not None:
                raise grpc.aio.UsageError(MIXED_STYLES)
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


class _UnaryUnaryCall(UnaryResponse, grpc.aio.UnaryUnaryCall[object, object]):
    pass


class _UnaryStreamCall(StreamResponse, grpc.aio.UnaryStreamCall[object, object]):
    pass


CALLS: dict[str, type[Call]] = {
    "unary_unary": _UnaryUnaryCall,
    "unary_stream": _UnaryStreamCall,
}
"""Classes of calls with one request, by the name of the channel method that creates the multicallable."""
