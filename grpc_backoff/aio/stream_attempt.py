"""An attempt of a call with a request stream, which ends only when the server's status is known.

A write to a call that has ended fails. grpcio then gives the call a status of its own, INTERNAL, before the server's
status or instead of it. Whether to retry depends on the server's status, so the attempt ends only when that status has
arrived, and reports it. The status follows the responses, so if a write has failed and nothing reads the responses, the
attempt reads the next response ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.aio.finished import cancelled_here
from grpc_backoff.aio.loops import until_done
from grpc_backoff.grpcio.aio_private import anew, is_stand_in, status_of

ALREADY_FINISHED = "RPC already finished."
_POLL, _POLLS = 0.01, 100
"""How often, in seconds, and how many times to check for the server's status."""


class StreamAttempt(grpc.aio.Call):
    """Wraps grpc's own call, to which a retried call writes its requests."""

    _channel = None  # as in `Call`, because grpcio inspects the calls of all tasks

    def __init__(self, call: Any) -> None:
        self.answered = False
        """Whether a response has arrived."""
        self.call = call
        """grpc's own call."""
        self._end: grpc.aio.AioRpcError | None = None
        self.callbacks: list[Callable[[object], None]] = []
        self._responses: AsyncIterator[object] | None = None
        self._reading = asyncio.Lock()
        self._ahead: list[object] = []
        call.add_done_callback(self._take_end)

    # The end.

    def _take_end(self, call: object) -> None:
        """Take over the status of the finished call, unless it is grpcio's own."""
        if self._end is not None:
            return
        end = status_of(call)
        if not is_stand_in(end):
            self._settle(end)

    def _settle(self, end: grpc.aio.AioRpcError) -> None:
        self._end = end
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback(self)

    async def _await_end(self) -> None:
        """Wait until the server's status has replaced grpcio's own, once the last response has arrived.

        This polls, because not all versions of grpcio call the done callbacks again at that point.
        """
        for _ in range(_POLLS):
            if self.call.done():
                self._take_end(self.call)
            if self._end is not None:
                return
            await asyncio.sleep(_POLL)
        self._settle(status_of(self.call))

    async def _await_end_or_answer(self) -> None:
        """Wait until a call that accepts no more requests has ended, or has received a response."""
        if not isinstance(self.call, grpc.aio.StreamStreamCall):
            # Use a task, because a task that is cancelled while it awaits a call discards the response.
            await until_done(asyncio.create_task(self._await_answer_and_end()))
            return
        async with self._reading:
            if self._end is None and not self._ahead:
                response = await self._next()
                if response is not grpc.aio.EOF:
                    self._ahead.append(response)

    async def _await_answer_and_end(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self.call
        await self._await_end()

    def _raise_end(self) -> None:
        """Raise the error with which the attempt ended; return if it succeeded, or has not ended."""
        end = self._end
        if end is None or end.code() is grpc.StatusCode.OK:
            return
        if end.code() is grpc.StatusCode.CANCELLED and not end.debug_error_string():  # not from the server
            raise asyncio.CancelledError
        raise anew(end)

    # Requests.

    async def write(self, request: bytes) -> None:
        """Send one request; if the attempt accepts no more, raise its own error or InvalidStateError."""
        if self._end is None:
            try:
                await self.call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                if self._end is None:
                    await self._await_end_or_answer()
                self._raise_end()
            else:
                return
        raise asyncio.InvalidStateError(ALREADY_FINISHED)

    async def done_writing(self) -> None:
        """Finish sending requests; does nothing if the attempt has ended."""
        with contextlib.suppress(grpc.aio.InternalError):  # it has just ended, which the next write reports
            await self.call.done_writing()

    # Responses.

    def __await__(self) -> Generator[Any, None, object]:
        """Wait for the response."""
        return self._response().__await__()

    async def _response(self) -> object:
        try:
            response = await self.call
        except grpc.aio.AioRpcError:
            await self._await_end()
            self._raise_end()
            raise
        await self._await_end()
        return response

    async def __aiter__(self) -> AsyncIterator[object]:
        """Iterate over the responses."""
        while (response := await self.read()) is not grpc.aio.EOF:
            yield response

    async def read(self) -> object:
        """Return the next response, or `grpc.aio.EOF`."""
        async with self._reading:
            if self._ahead:
                return self._ahead.pop()
            response = grpc.aio.EOF if self._end is not None else await self._next()
        if response is grpc.aio.EOF:
            self._raise_end()
        return response

    async def _next(self) -> object:
        # Iterate, because grpc's `read` returns nothing more after a failed write.
        if self._responses is None:
            self._responses = aiter(self.call)
        try:
            response = await anext(self._responses, grpc.aio.EOF)
        except grpc.aio.AioRpcError:
            response = grpc.aio.EOF
        if response is grpc.aio.EOF:
            await self._await_end()
        else:
            self.answered = True
        return response

    # grpc.aio.RpcContext

    def cancelled(self) -> bool:
        """Return whether the attempt was cancelled."""
        return self._end is not None and self._end.code() is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Return whether the attempt has ended, so that its status is known."""
        return self._end is not None

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if there is no deadline."""
        remaining: float | None = self.call.time_remaining()
        return remaining

    def cancel(self) -> bool:
        """Cancel the attempt; return whether it was still running."""
        if self._end is not None:
            return False
        self._ahead.clear()
        self.call.cancel()
        if self._end is None:  # grpcio does not cancel a call that has its own status
            self._settle(cancelled_here())
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` with this attempt when it ends; at once if it has already ended."""
        if self._end is None:
            self.callbacks.append(callback)
        else:
            callback(self)

    # grpc.aio.Call

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the server's initial metadata."""
        metadata: grpc.aio.Metadata = await self.call.initial_metadata()
        if self.call.done() and self._end is None:
            await self._await_end_or_answer()
        return metadata

    @property
    def status(self) -> grpc.aio.AioRpcError:
        """The status of a finished attempt, as an error even if it is OK."""
        assert self._end is not None, "only read once it is known"
        return self._end

    async def _known_status(self) -> grpc.aio.AioRpcError:
        if self._end is None:
            await self.call.code()
            await self._await_end()
        return self.status

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailing metadata."""
        return (await self._known_status()).trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """Return the status code."""
        return (await self._known_status()).code()

    async def details(self) -> str:
        """Return the status details."""
        return (await self._known_status()).details() or ""

    async def debug_error_string(self) -> str | None:
        """Return grpc's own debugging text."""
        return (await self._known_status()).debug_error_string()

    async def wait_for_connection(self) -> None:
        """Wait until the call has been sent; raise its error if it fails before that."""
        try:
            await self.call.wait_for_connection()
        except grpc.aio.AioRpcError:
            if self._end is None:
                await self._await_end_or_answer()
            self._raise_end()

    def __repr__(self) -> str:
        """Return the text of grpc's own call."""
        return repr(self.call)
