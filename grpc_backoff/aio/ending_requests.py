"""A caller's stream of requests, which ends with its call; loaded with `request_streams.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Self

import grpc.aio

from grpc_backoff.grpcio.aio_private import wake_writers


class EndingRequests(AsyncIterator[object]):
    """A caller's requests, up to the end of their call.

    grpc reads a caller's asynchronous iterator in a separate task. When a call ends before its requests do, that task
    keeps waiting for the next request, consumes it, and keeps the call alive until then. Every stream that the server
    ends leaves such a task behind. Here, the iterator is cancelled when the call ends, just as grpc cancels it when the
    program cancels the call. A synchronous iterator never waits, so it is passed to grpc unchanged.
    """

    def __init__(self, requests: AsyncIterable[object]) -> None:
        self._requests = aiter(requests)
        self._reader: asyncio.Task[object] | None = None
        self._over = False

    def end(self, _call: grpc.aio.Call) -> None:
        """End the requests, because their call has ended."""
        self._over = True
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> object:
        """Return the next request; raise StopAsyncIteration after the last one, or if the call has ended."""
        if self._over:
            raise StopAsyncIteration
        self._reader = asyncio.current_task()
        try:
            return await anext(self._requests)
        except asyncio.CancelledError:
            if self._over:
                raise StopAsyncIteration from None  # cancelled by this object
            raise
        finally:
            self._reader = None


def ending_requests(method: Callable[..., grpc.aio.Call]) -> Callable[..., grpc.aio.Call]:
    """Return a method whose calls' requests end with them."""

    def call(requests: object, **keywords: object) -> grpc.aio.Call:
        ending = EndingRequests(requests) if isinstance(requests, AsyncIterable) else None
        made = method(requests if ending is None else ending, **keywords)
        wake_writers(made)
        if ending is not None:
            made.add_done_callback(ending.end)
        return made

    return call
