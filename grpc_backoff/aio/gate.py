"""Calls that wait for a connection, as call objects that a caller cannot tell from grpc's own.

A waiting call has two parts of life. First it waits: it can be cancelled, asked, awaited, written to, and its deadline
runs. Then it has an outcome: grpc's own call on the connection, to which everything is passed on from then, or an
error. grpc's own intercepted calls would have been shorter to use, but they know no `time_remaining`, mix reading
styles silently and report a failed write as another error than a plain call does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextvars import copy_context
from typing import Any, Protocol, Self

import grpc
import grpc.aio

from grpc_backoff.aio.outcome import CANCELLED, Cancelled, Ending, Outcome, notify
from grpc_backoff.aio.styles import StreamRequest, StreamResponse
from grpc_backoff.connection.clock import Clock, TimerHandle
from grpc_backoff.connection.events import ConnectionStatus
from grpc_backoff.errors import GrpcBackoffError

__all__ = [
    "WAITING_CALLS",
    "CallGate",
    "NoConnectionError",
    "WaitingCall",
]

Begin = Callable[[float | None], "grpc.aio.Call | None"]
"""Makes the real call with this many seconds left; None when there is no live connection after all."""


class NoConnectionError(GrpcBackoffError, grpc.aio.AioRpcError):
    """The outcome of a call that got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED where it waited for one.

    Attributes:
        status: what the channel was doing when the call failed.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: grpc.aio.Metadata | None = None,
        trailing_metadata: grpc.aio.Metadata | None = None,
        details: str | None = None,
        debug_error_string: str | None = None,
        status: ConnectionStatus | None = None,
    ) -> None:
        """Take what grpc's own error takes, and the status."""
        grpc.aio.AioRpcError.__init__(
            self,
            code,
            initial_metadata or grpc.aio.Metadata(),
            trailing_metadata or grpc.aio.Metadata(),
            details,
            debug_error_string,
        )
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling, as grpc's own error does."""
        metadata = self.initial_metadata(), self.trailing_metadata()
        return type(self), (self.code(), *metadata, self.details(), self.debug_error_string(), self.status)

    def anew(self) -> Self:
        """Return the same error, not raised yet."""
        kind, values = self.__reduce__()
        error: Self = kind(*values)
        return error


class Manager(Protocol):
    """What the gate needs of the connection's manager."""

    def status(self) -> ConnectionStatus:
        """Return what the channel is doing."""
        ...

    def want(self) -> None:
        """Ask for a connection."""
        ...


class CallGate:
    """The calls of one channel that wait for a connection."""

    def __init__(self, target: str, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        """Begin empty; `manager` is set before the first call comes."""
        self.manager: Manager
        self.clock = clock
        self.loop = loop
        self._target = target
        self._waiting: dict[WaitingCall, None] = {}  # in order of arrival
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return how many calls wait."""
        return len(self._waiting)

    def add(self, call: WaitingCall) -> None:
        """Keep the call, and keep it alive, until it leaves."""
        self._waiting[call] = None

    def discard(self, call: WaitingCall) -> None:
        """Forget a call that has its outcome."""
        self._waiting.pop(call, None)
        if self._emptied is not None and not self._waiting and not self._emptied.done():
            self._emptied.set_result(None)

    def release(self) -> None:
        """Let all waiting calls go, as long as the connection lives."""
        for call in tuple(self._waiting):
            if not call.begin():
                self._missed()
                return

    def _missed(self) -> None:
        """Go on waiting after a connection that was gone before the calls could have it.

        Once: a call that does not outlast failures must not wait for ever on a peer that hangs up behind its SETTINGS.
        """
        for call in tuple(self._waiting):
            if call.missed and not call.patient:
                call.fail_soon()  # the machine has yet to hear of the loss, which is the reason
            call.missed = True
        if self._waiting:
            self.manager.want()

    def fail_impatient(self) -> None:
        """Fail the calls that do not outlast a failed attempt (CH-3)."""
        for call in tuple(self._waiting):
            if not call.patient:
                call.fail(self.unavailable())

    def cancel_all(self) -> None:
        """Cancel every waiting call, as closing a channel does."""
        for call in tuple(self._waiting):
            call.cancel()

    async def emptied(self, within: float) -> None:
        """Return once no call waits, after `within` seconds at the latest."""
        if self._waiting:
            self._emptied = self.loop.create_future()
            await asyncio.wait([self._emptied], timeout=within)

    def unavailable(self) -> NoConnectionError:
        """Return the error of a call that does not wait while there is no connection (CH-4)."""
        status = self.manager.status()
        return NoConnectionError(grpc.StatusCode.UNAVAILABLE, details=_explain(self._target, status), status=status)

    def deadline_exceeded(self) -> NoConnectionError:
        """Return the error of a call whose deadline passed while it waited (CH-4)."""
        status = self.manager.status()
        details = f"Deadline Exceeded while waiting: {_explain(self._target, status)}"
        return NoConnectionError(grpc.StatusCode.DEADLINE_EXCEEDED, details=details, status=status)


def _explain(target: str, status: ConnectionStatus) -> str:
    said = [f"no connection to {target}"]
    if status.last_error is not None:
        said.append(f"last error: {status.last_error}")
    if status.in_flight:
        said.append(f"attempt {status.attempt} is under way")
    elif status.next_attempt_in is not None:
        said.append(f"attempt {status.attempt + 1} starts in {status.next_attempt_in:.3g} s")
    return "; ".join(said)


class WaitingCall(Ending):
    """What the four arities share: waiting, the outcome, and everything that is only passed on."""

    # grpcio up to 1.7x, closing any channel, looks at the calls of all tasks and wants to know whose they are.
    _channel = None

    def __init__(
        self, gate: CallGate, begin: Begin, timeout: float | None, *, limit: float | None = None, patient: bool
    ) -> None:
        """Start waiting; `timeout` counts from now and covers the wait and the call (CH-3).

        So does `limit`, which the service config sets; as on a plain call, `time_remaining` does not show it.
        """
        self.patient = patient
        self.missed = False
        self._gate = gate
        self._begin: Begin | None = begin
        self._outcome: asyncio.Future[Outcome] = gate.loop.create_future()
        self._callbacks: list[Callable[[Any], None]] = []
        self._context = copy_context()  # the call is made later, and belongs to the caller's trace all the same
        now = gate.clock.now()
        self._deadline = None if timeout is None else now + max(0.0, timeout)  # NaN has passed, as in grpc
        bounds = [bound for bound in (self._deadline, None if limit is None else now + limit) if bound is not None]
        self._end = min(bounds, default=None)
        self._timer: TimerHandle | None = None
        if self._end is not None:
            self._timer = gate.clock.call_at(self._end, self._deadline_passed)
        gate.add(self)

    # Leaving the wait. Each of these is called once at most, by `_settle`'s own doing.

    def begin(self) -> bool:
        """Make the real call; return False, and go on waiting, if there is no live connection."""
        if self._begin is None:
            return True
        if self._end is not None and self._end <= self._gate.clock.now():
            self._deadline_passed()  # before its timer could say so
            return True
        try:
            call = self._context.run(self._begin, self._until(self._end))
        except Exception as error:  # noqa: BLE001 - it is the caller's, who awaits the call
            self._settle(error)
            return True
        if call is None:
            return False
        if self._outcome.done():  # somebody's code, a credentials plugin or so, cancelled it in the meantime
            call.cancel()
            return True
        callbacks, self._callbacks = self._callbacks, []
        self._settle(call)
        for callback in callbacks:
            self._pass_on(call, callback)
        return True

    def fail(self, error: BaseException) -> None:
        """End the wait with an error."""
        self._settle(error)

    def fail_soon(self) -> None:
        """Fail for want of a connection, but not before the caller has the call in hand."""
        self._gate.loop.call_soon(self._fail_now)

    def _fail_now(self) -> None:
        if not self._outcome.done():
            self._settle(self._gate.unavailable())

    def _deadline_passed(self) -> None:
        self._settle(self._gate.deadline_exceeded())

    def _settle(self, outcome: Outcome) -> None:
        if self._outcome.done():
            return  # somebody's done callback was faster
        self._begin = None  # with it go the request and the channel
        self._gate.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outcome.set_result(outcome)
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            notify(self, callback, self._gate.loop)

    def _pass_on(self, call: grpc.aio.Call, callback: Callable[[Any], None]) -> None:
        call.add_done_callback(lambda _call: callback(self))

    def _settled(self) -> Outcome | None:
        return self._outcome.result() if self._outcome.done() else None

    async def _call(self) -> Any:
        """Return the real call once there is one; raise what the caller of a failed call gets."""
        outcome = await asyncio.shield(self._outcome)
        if isinstance(outcome, Cancelled):
            raise asyncio.CancelledError
        if isinstance(outcome, NoConnectionError):
            # A fresh one for each who asks: an error that is raised leads to this frame, and so to the call that keeps
            # it, and such a circle would wait for the collector, with the channel in it (CB-10).
            raise outcome.anew()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _call_or_cancel(self) -> Any:
        """Like `_call`, for methods whose cancellation cancels the RPC."""
        try:
            return await self._call()
        except asyncio.CancelledError:
            self.cancel()
            raise

    # grpc.aio.RpcContext

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        outcome = self._settled()
        if isinstance(outcome, grpc.aio.Call):
            return outcome.cancelled()
        return outcome is CANCELLED

    def done(self) -> bool:
        """Return whether the call has ended."""
        outcome = self._settled()
        if isinstance(outcome, grpc.aio.Call):
            return outcome.done()
        return outcome is not None

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, None without one."""
        return self._until(self._deadline)

    def _until(self, when: float | None) -> float | None:
        return None if when is None else max(0.0, when - self._gate.clock.now())

    def cancel(self) -> bool:
        """Cancel the call; return whether it was still running."""
        outcome = self._settled()
        if isinstance(outcome, grpc.aio.Call):
            return outcome.cancel()
        if outcome is not None:
            return False
        self._settle(CANCELLED)
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Have `callback` called with this call when it ends, at once if it has."""
        outcome = self._settled()
        if isinstance(outcome, grpc.aio.Call):
            self._pass_on(outcome, callback)
        elif outcome is None:
            self._callbacks.append(callback)
        else:
            callback(self)

    # grpc.aio.Call

    async def _known_outcome(self) -> Outcome:
        return await asyncio.shield(self._outcome)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the server's initial metadata."""
        return await self._ask("initial_metadata", grpc.aio.Metadata())  # type: ignore[no-any-return]

    async def wait_for_connection(self) -> None:
        """Return once the call is on its way; raise its error if it failed before."""
        await (await self._call()).wait_for_connection()

    def __repr__(self) -> str:
        """Show grpc's own call once there is one."""
        outcome = self._settled()
        if isinstance(outcome, grpc.aio.Call):
            return repr(outcome)
        doing = "waits for a connection" if outcome is None else f"ended: {outcome!r}"
        return f"<{type(self).__name__}, {doing}>"


class _UnaryResponse(WaitingCall):
    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the response."""
        return self._response().__await__()

    async def _response(self) -> Any:
        return await (await self._call_or_cancel())


class _StreamResponse(StreamResponse, WaitingCall):
    async def _iterate(self) -> AsyncIterator[Any]:
        async for response in await self._call_or_cancel():
            yield response

    async def _read(self) -> Any:
        return await (await self._call_or_cancel()).read()


class _StreamRequest(StreamRequest, WaitingCall):
    @property
    def _done_writing_flag(self) -> bool:
        # grpc's intercepted stream calls look at this attribute of the call that an interceptor returned.
        return getattr(self._settled(), "_done_writing_flag", False)

    async def _write(self, request: Any) -> None:
        await (await self._call_or_cancel()).write(request)

    async def _done_writing(self) -> None:
        await (await self._call_or_cancel()).done_writing()


class _WaitingUnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    pass


class _WaitingUnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    pass


class _WaitingStreamUnaryCall(_StreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]):
    pass


class _WaitingStreamStreamCall(_StreamRequest, _StreamResponse, grpc.aio.StreamStreamCall[Any, Any]):
    pass


WAITING_CALLS: dict[str, type[WaitingCall]] = {
    "unary_unary": _WaitingUnaryUnaryCall,
    "unary_stream": _WaitingUnaryStreamCall,
    "stream_unary": _WaitingStreamUnaryCall,
    "stream_stream": _WaitingStreamStreamCall,
}
"""The class of a waiting call by the name of the channel method that makes its multicallable."""
