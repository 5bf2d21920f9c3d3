"""Asyncio calls that may wait for a connection or be repeated, as their callers see them, and the styles of reading.

To its caller, such a call looks like one of grpc's own. It is not built on grpc's intercepted calls, because these have
no `time_remaining`, silently allow mixed reading styles, and report a failed write with a different error than a plain
call does. `request_streams.py` has the calls with a stream of requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, TypeVar

import grpc
import grpc.aio

from grpc_backoff.aio.attempting_call import CANCELLED, AttemptingCall, Cancelled
from grpc_backoff.aio.call_errors import CallError
from grpc_backoff.aio.finished import cancelled_here
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.grpcio import aio_private

_GRACE_FOR_TRAILERS = 0.02
"""How long to wait after empty initial metadata, in seconds, because a trailers-only failure may follow (RT-8)."""
MIXED_STYLES = "The iterator and read/write APIs may not be mixed on a single RPC."

StepT = TypeVar("StepT")


def cancellations() -> int:
    """Return how often the current task has been cancelled, without those that it has dealt with."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class Call(AttemptingCall, grpc.aio.Call):
    """The base class of the four arities: it delegates the caller's methods to attempts."""

    # When grpcio up to 1.7x closes a channel, it inspects the calls of all tasks, and reads this attribute of each.
    _channel = None

    # For the arities, and for what sends their requests.

    @property
    def committed(self) -> bool:
        """Whether part of the attempt's response has reached the caller."""
        return self._state.committed  # type: ignore[no-any-return] # the state is that of its rules

    def commit(self) -> None:
        """Commit the call to the current attempt."""
        if not self._state.committed:
            self.feed(m.Committed())

    async def running(self) -> Any:
        """Return the attempt once it is on a connection; raise the call's error if it fails before that."""
        while self.attempt is None and self._outcome is None:
            await self._change()
        if self.attempt is None:
            self._raise_outcome()
        return self.attempt

    async def follows(self, attempt: grpc.aio.Call) -> bool:
        """Return whether another attempt follows a failed one, once that is decided.

        Raise the error of a failed call, unless the failed attempt itself reports the outcome.
        """
        await self._known(attempt)
        if self.attempt is not attempt:
            return True
        self._raise_outcome()
        return False

    async def or_cancel(self, step: Awaitable[StepT]) -> StepT:
        """Await `running` or `follows` in a method whose cancellation cancels the RPC."""
        try:
            return await step
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _cancelled_while(self, attempt: grpc.aio.Call) -> None:
        """Cancel the call, as grpc does if awaiting it is cancelled; raise the error of a failed step that ended it."""
        outcome = self._outcome
        if attempt is not self.attempt and isinstance(outcome, Exception) and not isinstance(outcome, CallError):
            self._raise_outcome()
        self.cancel()

    async def _from_attempt(self, ask: Callable[[Any], Awaitable[object]]) -> tuple[Any, object]:
        """Ask one attempt after the other, as long as another follows; return the one that answered, and its answer."""
        while True:
            attempt = await self.or_cancel(self.running())
            before = cancellations()
            try:
                answer = await ask(attempt)
            except grpc.aio.AioRpcError:
                self.heed_cancellation(before)
                if not await self.or_cancel(self.follows(attempt)):
                    raise
            except asyncio.CancelledError:
                self._cancelled_while(attempt)
                raise
            else:
                self.heed_cancellation(before)
                return attempt, answer

    def heed_cancellation(self, before: int) -> None:
        """Cancel the call if its reader has been cancelled more often than `before`, and raise CancelledError.

        While a stream of requests is being opened, grpcio loses the cancellation of its reader if the stream has just
        ended in another way. The call would be repeated although its caller has cancelled it (RO-3).
        """
        if cancellations() > before:
            self.cancel()
            raise asyncio.CancelledError

    def _raise_outcome(self) -> None:
        """Raise the outcome, unless it is an attempt, which reports its own end."""
        if isinstance(self._outcome, Cancelled):
            raise asyncio.CancelledError
        if isinstance(self._outcome, grpc.aio.AioRpcError):
            raise aio_private.anew(self._outcome)
        if isinstance(self._outcome, BaseException):
            raise self._outcome.with_traceback(None)

    async def _known(self, attempt: grpc.aio.Call) -> None:
        """Wait until the attempt that follows `attempt` has begun, or until the outcome is known."""
        while self.attempt is attempt and self._outcome is None:
            await self._change()

    def _change(self) -> asyncio.Future[None]:
        """Return a future that is done when another attempt begins, or when the outcome is known."""
        changed = self._calls.loop.create_future()
        # A caller that polls the call, and cancels its waits, must not leave them all here.
        self._awaiting = (*(other for other in self._awaiting if not other.done()), changed)
        return changed

    # grpc.aio.RpcContext

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        outcome = self._outcome
        return outcome.cancelled() if isinstance(outcome, grpc.aio.Call) else outcome is CANCELLED

    def done(self) -> bool:
        """Return whether the call has ended."""
        outcome = self._outcome
        return outcome.done() if isinstance(outcome, grpc.aio.Call) else outcome is not None

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline of the whole call; None if it has no deadline."""
        end = self._shown_end()
        return None if end is None else max(0.0, end - self._calls.clock.now())

    def cancel(self) -> bool:
        """Cancel the call; return whether it was still running."""
        if self._outcome is not None:
            return isinstance(self._outcome, grpc.aio.Call) and self._outcome.cancel()
        self.feed(m.CancelRequested())
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` with this call when it ends; at once if it has already ended."""
        if not callable(callback):
            raise TypeError("the first argument must be callable")
        outcome = self._outcome
        if outcome is None:
            self._callbacks += (callback,)
        elif isinstance(outcome, grpc.aio.Call) and not outcome.done():
            self._pass_on(outcome, callback)
        else:
            callback(self)

    # grpc.aio.Call

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the server's initial metadata; if it is not empty, commit the call to the current attempt."""
        while True:
            attempt = self.attempt
            if attempt is None:
                if self._outcome is not None:
                    return await self._answer("initial_metadata")  # type: ignore[no-any-return]
                await self._change()
                continue
            metadata: grpc.aio.Metadata = await attempt.initial_metadata()
            if self._machine.handed_over:
                return metadata
            if not metadata and not attempt.done() and self._machine.policy is not None:
                # Give the attempt a moment to end, because empty initial metadata may precede a trailers-only failure.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_FOR_TRAILERS):
                        await self._known(attempt)
            if not attempt.done():
                if metadata:
                    self.commit()
                return metadata
            await self._known(attempt)
            if self.attempt is attempt:
                return metadata

    async def _answer(self, question: str) -> Any:
        """Wait for the outcome, and return what its method of this name returns."""
        while self._outcome is None:
            await self._change()
        outcome = self._outcome
        if isinstance(outcome, grpc.aio.Call):
            return await getattr(outcome, question)()
        if isinstance(outcome, Cancelled):
            outcome = cancelled_here()
        if isinstance(outcome, grpc.aio.AioRpcError):
            return getattr(outcome, question)()
        raise outcome.with_traceback(None)

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailing metadata."""
        return await self._answer("trailing_metadata")  # type: ignore[no-any-return]

    async def code(self) -> grpc.StatusCode:
        """Wait for the status code and return it."""
        return await self._answer("code")  # type: ignore[no-any-return]

    async def details(self) -> str:
        """Return the status details."""
        return await self._answer("details")  # type: ignore[no-any-return]

    async def debug_error_string(self) -> str | None:
        """Return grpc's own debugging text, if there is any."""
        return await self._answer("debug_error_string")  # type: ignore[no-any-return]

    async def wait_for_connection(self) -> None:
        """Wait until the call has been sent; raise its error if it fails before that."""
        while True:
            attempt = await self.running()
            try:
                await attempt.wait_for_connection()
            except grpc.aio.AioRpcError:
                if not await self.follows(attempt):
                    raise
            else:
                return

    def __repr__(self) -> str:
        """Return the text of grpc's own call, once it exists."""
        if self.attempt is None:
            doing = "waits for a connection" if self._outcome is None else f"ended: {self._outcome!r}"
            return f"<{type(self).__name__}, {doing}>"
        if self._machine.handed_over:
            return repr(self.attempt)
        return f"<{type(self).__name__}, attempt {self._state.progress.attempt}: {self.attempt!r}>"


class UnaryResponse(Call):
    """A call whose only response is awaited."""

    def __await__(self) -> Generator[Any, None, object]:
        """Wait for the outcome, so that attempts that are repeated neither wake the caller nor raise errors."""
        try:
            while self._outcome is None:
                ending = self._calls.loop.create_future()
                self._endings += (ending,)
                yield from ending
            attempt = self.attempt
            if self._outcome is self.attempt:
                return (yield from attempt.__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_outcome()
        raise AssertionError("a call that made no attempt must end with an error")


class StreamResponse(Call):
    """A call whose responses are either iterated over or read one by one; like grpc's own, it refuses to mix both."""

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
                    if attempt is not self.attempt:
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
            if attempt is self.attempt:
                if response is not grpc.aio.EOF:
                    self.commit()
                return response

    async def _read(self, attempt: Any) -> object:
        return await attempt.read()


class _UnaryUnaryCall(UnaryResponse, grpc.aio.UnaryUnaryCall[object, object]):
    pass


class _UnaryStreamCall(StreamResponse, grpc.aio.UnaryStreamCall[object, object]):
    pass


CALL_CLASSES: dict[str, type[Call]] = {
    "unary_unary": _UnaryUnaryCall,
    "unary_stream": _UnaryStreamCall,
}
"""Classes of calls with one request, by the name of the channel method that creates the multicallable."""
