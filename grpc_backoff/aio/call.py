"""A call with no attempt yet, a current one, or several behind it: the asyncio shell of `calls.machine`.

It executes the machine's effects and feeds it inputs; all decisions are the machine's. To its caller it is one of
grpc's own calls. It is a class of its own instead of an interceptor's call, because grpc's intercepted calls have no
`time_remaining`, silently allow mixed reading styles, and report a failed write with another error than a plain call.

What the caller has seen of an attempt commits the call to it: the initial metadata, or a response (RT-8). The four
arities are at the end of this module.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.aio import grpcio
from grpc_backoff.aio.calls import Calls
from grpc_backoff.aio.connection import CallConnection
from grpc_backoff.aio.errors import CallError, RetriesExhaustedError
from grpc_backoff.aio.outcome import CANCELLED, Answering, Cancelled, Outcome, notify
from grpc_backoff.aio.replay import Replay, Requests
from grpc_backoff.aio.stream_attempt import StreamAttempt
from grpc_backoff.aio.styles import StreamRequest, StreamResponse
from grpc_backoff.calls import machine as m
from grpc_backoff.channel.call import CallShell, Status
from grpc_backoff.connection.clock import TimerHandle
from grpc_backoff.record import NamedTuple, record

__all__ = ["CALLS", "Call", "MakeAttempt", "MakeEarly", "Terms"]

MakeEarly = Callable[[float | None], "grpc.aio.Call | None"]
"""Makes an attempt with a timeout of this many seconds before there is a connection; None if that is not possible."""

MakeAttempt = Callable[[float | None, m.Metadata], "tuple[grpc.aio.Call, CallConnection] | None"]
"""Makes an attempt with a timeout of this many seconds, and with metadata that replaces the caller's same keys.

Returns grpc's own call and the connection on which it was made; None if there is no connection.
"""

_OBSERVED, _UNOBSERVED = m.OkStatus(observed=True), m.OkStatus(observed=False)
_GRACE_FOR_TRAILERS = 0.02
"""Grace period for empty initial metadata, in seconds, in case a trailers-only failure follows (RT-8)."""


@record
class Terms(NamedTuple):
    """The arguments that start a call.

    Attributes:
        calls: what the channel's calls share.
        machine: the rules for this call.
        make: makes an attempt.
        timeout: the caller's timeout for the whole call, in seconds (RT-7).
        limit: the service config's timeout, which bounds the whole call too, but is not part of `time_remaining`.
        call_id: identifies the call in events and log lines; generated if None.
        early: makes an attempt while the call is pending; None if that is not allowed.
    """

    calls: Calls
    machine: m.CallMachine
    make: MakeAttempt
    timeout: float | None
    limit: float | None
    call_id: str | None = None
    early: MakeEarly | None = None


class Call(CallShell, Answering):
    """What the four arities share: the machine's effects and inputs, and methods that only delegate."""

    _calls: Calls
    exhausted_error = RetriesExhaustedError
    # Up to 1.7x, grpcio inspects the calls of all tasks when it closes any channel, and looks up their channel.
    _channel = None
    _replay: Replay | None = None
    _early: grpc.aio.Call | None = None
    _attempt: grpc.aio.Call | None = None
    _outcome: Outcome | None = None
    _timer: TimerHandle | None = None

    def __init__(self, terms: Terms, request: Any = None) -> None:
        """Start the first attempt, or wait for a connection.

        `request` is the single request that the attempts send, if there is one: for hooks.
        """
        calls, machine, make, timeout, limit, call_id, early = terms
        super().__init__(calls, machine, timeout, limit, call_id, request)
        self._make: MakeAttempt | None = make
        self._make_early: MakeEarly | None = early
        self._awaiting: list[asyncio.Future[None]] = []
        self._callbacks: list[Callable[[Any], None]] = []
        self._stepping = True
        try:
            self._begin(self._first, in_context=True)
        finally:
            self._stepping = False
        if self._inputs:
            self._drain()

    # Driving the machine.

    def feed(self, given: m.Input) -> None:
        """Step the machine. Effects may produce further inputs, which wait until the earlier effects are done."""
        self._inputs.append(given)
        if not self._stepping:
            self._drain()

    def _drain(self) -> None:
        before = self._state.phase
        self._stepping = True
        try:
            while self._inputs:
                given = self._inputs.popleft()
                if self._state.phase is m.CallPhase.DONE:
                    continue  # the end is final; later inputs are ignored
                try:
                    self._step(given)
                except Exception as error:  # from a generator or a clock supplied by the program
                    if self._outcome is not None:
                        raise
                    self._break_off(error)
        finally:
            self._stepping = False
            self._moved(before, self._state.phase)

    def _step(self, given: m.Input) -> None:
        calls = self._calls
        self._state, effects = self._machine.step(self._state, given, calls.now(), calls)
        for effect in effects:
            self._carry_out(effect)

    def _break_off(self, error: Exception) -> None:
        """End with this error: a step was interrupted, and nothing else would ever end the call."""
        self._state = self._state._replace(phase=m.CallPhase.DONE)
        attempt, self._attempt = self._attempt, None  # otherwise the caller would be notified of its cancellation
        self._settle(error)
        if attempt is not None:
            attempt.cancel()

    def _carry_out(self, effect: m.Effect) -> None:  # noqa: C901 - one line for each effect
        match effect:
            case m.Finish():
                self._finish(effect)
            case m.Begin():
                self._begin(effect)
            case m.Enqueue():
                self._calls.pending.add(self)
                self._enter_early()
            case m.ArmTimer(at):
                self._cancel_timer()
                self._timer = self._calls.clock.call_at(at, self._timer_fired)
            case m.CancelTimer():
                self._cancel_timer()
            case m.Emit(event):
                self._emit(event)
            case m.CallHook():
                self._ask_hook(effect)
            case m.FailAttempt(code):
                self._attempt, self._error = None, self._calls.pending.error(grpc.StatusCode[code])
                self._end_span(code)
            case m.FailSoon():
                self._calls.loop.call_soon(self.feed, self._calls.pending.no_connection())
            case m.AbandonAttempt():
                self._abandon()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timer_fired(self) -> None:
        self._timer = None
        self.feed(m.CallTimerFired())

    # Attempts.

    def _begin(self, effect: m.Begin, *, in_context: bool = False) -> None:
        """Make an attempt; an error while making the first one is raised to the caller."""
        assert self._make is not None, "a finished call starts no attempt"
        early, self._early = self._early, None
        if early is not None:
            self._begun(early, None)
            return
        self._attempt = None
        if self._spans is not None:
            self._begin_span()
        try:
            if in_context:
                made = self._make(effect.seconds, effect.metadata)
            else:
                made = self._context.run(self._make, effect.seconds, effect.metadata)
        except Exception as error:
            self._end_span("INTERNAL")
            if in_context:
                raise
            self._error = error  # raised when the call is awaited
            self.feed(m.AttemptBroken())
            return
        if made is None:
            self.feed(self._calls.pending.not_connected())
        else:
            self._begun(*made)

    def _enter_early(self) -> None:
        """CB-7: if the target is proven, make the call on the attempt in flight, as if on its connection.

        In no case is the call made a second time: with the connection it is the attempt of the call, and without one
        the call fails. So only calls that do not survive a failure are made this way.
        """
        if self._make_early is None or self._early is not None:
            return
        end, seconds = self._state.attempt_end, None
        if end is not None:
            seconds = end - self._calls.clock.now()
            if not seconds > 0:
                return
        with contextlib.suppress(Exception):  # raised again, and to the caller, when the call is made on the connection
            self._early = self._make_early(seconds)

    @property
    def is_early(self) -> bool:
        """Whether the call waits in an attempt to connect, and may have left with its connection."""
        return self._early is not None

    @property
    def is_answered(self) -> bool:
        """Whether such a call has its answer already, so that nothing that becomes of the attempt can fail it."""
        early = self._early
        return early is not None and early.done() and grpcio.is_ok(early)

    def _begun(self, attempt: grpc.aio.Call, connection: CallConnection | None) -> None:
        self._connection = connection
        if self._machine.handed_over:
            self._attempt = attempt
            self.feed(m.Begun())
            return
        if self._replay is not None:
            attempt = StreamAttempt(attempt)
        self._attempt = attempt
        attempt.add_done_callback(self._attempt_ended)
        if self._replay is not None:
            self._replay.begun()
        if self._awaiting:
            self._wake()

    def _abandon(self) -> None:
        if self._attempt is not None and not self._attempt.cancel() and not self._attempt.done():
            self._attempt, self._error = None, None

    def _attempt_ended(self, attempt: Any) -> None:
        """Notify the machine at once that an attempt has ended."""
        current: Any = self._attempt
        if attempt is not current or self._state.phase is not m.CallPhase.RUNNING:
            return
        stream = type(attempt) is StreamAttempt  # `isinstance` asks an abstract class, which costs a microsecond
        if not stream and grpcio.is_ok(attempt):
            self._succeeded()
            return
        error: grpc.aio.AioRpcError = attempt.status if stream else grpcio.status_of(attempt)
        if error.code() is grpc.StatusCode.OK:
            self._succeeded()
            return
        if grpcio.is_cancelled_here(attempt.call if stream else attempt):
            self.feed(m.CancelRequested())  # for example, because the channel was closed
            return
        self._error = error
        self._end_span(error.code().name)
        self.feed(self._failure(error))

    def _succeeded(self) -> None:
        if self._spans is not None:
            self._end_span("OK")
        self.feed(_OBSERVED if self._calls.observed else _UNOBSERVED)

    def _status(self, error: Any) -> Status:
        assert isinstance(error, grpc.aio.AioRpcError), "a failed attempt has an error"
        metadata = error.initial_metadata(), error.trailing_metadata()
        return Status(error.code(), error.details() or "", *metadata, error.debug_error_string())

    def _ask_hook(self, effect: m.CallHook) -> None:
        failed = self._failed_call(effect)
        self._calls.hooks.ask(effect.hook, failed, self._state.attempt_began, self._context, self._hook_done)

    def _hook_done(self, metadata: m.Metadata | None) -> None:
        self.feed(m.HookDone(metadata))

    # The end.

    def _finish(self, effect: m.Finish) -> None:
        ending = effect.ending
        if ending is m.Ending.CANCELLED:
            self._settle(CANCELLED)
        elif ending is m.Ending.EXHAUSTED:
            self._settle(self._exhausted(effect))
        else:
            self._settle(self._attempt or self._error or CANCELLED)

    def _settle(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._make = self._make_early = self._connection = self._request = None  # with them goes the channel
        early, self._early = self._early, None
        if early is not None:
            early.cancel()
        if self._timer is not None:
            self._cancel_timer()
        if self._spans is not None:
            self._end_span("CANCELLED")  # unless it has ended
        if self._replay is not None:
            self._replay.settled()
            self._replay = None  # it refers back to this call, and pending writes keep it
        if self._awaiting:
            self._wake()
        if not self._callbacks:
            return
        callbacks, self._callbacks = self._callbacks, []
        handed_over = isinstance(outcome, grpc.aio.Call) and not outcome.done()
        for callback in callbacks:
            if handed_over:
                self._pass_on(outcome, callback)
            else:
                notify(self, callback, self._calls.loop)

    def _pass_on(self, call: Any, callback: Callable[[Any], None]) -> None:
        call.add_done_callback(lambda _call: callback(self))

    def _wake(self) -> None:
        awaiting, self._awaiting = self._awaiting, []
        for changed in awaiting:
            if not changed.done():
                changed.set_result(None)

    # The caller's side.

    @property
    def attempt(self) -> Any:
        """The current attempt, or the last one; None while the call waits for a connection."""
        return self._attempt

    @property
    def committed(self) -> bool:
        """Whether part of the attempt's response has reached the caller."""
        return self._state.committed

    def commit(self) -> None:
        """Commit the call to the current attempt."""
        if not self._state.committed:
            self.feed(m.Committed())
            if self._replay is not None:
                self._replay.committed()

    async def running(self) -> Any:
        """Wait until the attempt is on a connection, and return it; raise the error of a failed call."""
        while self._attempt is None and self._outcome is None:
            await self._change()
        if self._attempt is not None:
            return self._attempt
        self._raise_outcome()
        raise AssertionError("a call without an attempt ends with an error")

    async def follows(self, attempt: grpc.aio.Call) -> bool:
        """Wait until it is known whether another attempt follows a failed one, and return whether it does.

        Raises the error of a failed call, unless the failed attempt itself reports the outcome.
        """
        await self._known(attempt)
        if self._attempt is not attempt:
            return True
        self._raise_outcome()
        return False

    async def follows_or_cancel(self, attempt: grpc.aio.Call) -> bool:
        """Like `follows`, for methods whose cancellation cancels the RPC."""
        try:
            return await self.follows(attempt)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def running_or_cancel(self) -> Any:
        """Like `running`, for methods whose cancellation cancels the RPC."""
        if self._attempt is not None:
            return self._attempt
        try:
            return await self.running()
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _cancelled_while(self, attempt: grpc.aio.Call) -> None:
        """Cancel the call, as grpc does when awaiting is cancelled; unless a step that raised has ended it."""
        outcome = self._outcome
        if attempt is not self._attempt and isinstance(outcome, Exception) and not isinstance(outcome, CallError):
            self._raise_outcome()
        self.cancel()

    def _raise_outcome(self) -> None:
        """Raise the outcome, unless it is an attempt, which reports its own end."""
        if isinstance(self._outcome, Cancelled):
            raise asyncio.CancelledError
        if isinstance(self._outcome, CallError):
            raise self._outcome.anew()
        if isinstance(self._outcome, BaseException):
            raise self._outcome.with_traceback(None)

    async def _known(self, attempt: grpc.aio.Call) -> None:
        """Wait until it is known what follows an attempt that has ended."""
        while self._attempt is attempt and self._outcome is None:
            await self._change()

    async def _change(self) -> None:
        """Wait for the next attempt, or the outcome."""
        changed = self._calls.loop.create_future()
        self._awaiting.append(changed)
        try:
            await changed
        except asyncio.CancelledError:
            if changed in self._awaiting:  # a caller that polls the call must not fill the list
                self._awaiting.remove(changed)
            raise

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
        """Return the seconds until the deadline of the whole call; None without one."""
        return None if self._shown_end is None else max(0.0, self._shown_end - self._calls.clock.now())

    def cancel(self) -> bool:
        """Cancel the call; return whether it was still running."""
        if self._outcome is not None:
            return isinstance(self._outcome, grpc.aio.Call) and self._outcome.cancel()
        self.feed(m.CancelRequested())
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` with this call when it ends; at once if it has."""
        outcome = self._outcome
        if outcome is None:
            self._callbacks.append(callback)
        elif isinstance(outcome, grpc.aio.Call) and not outcome.done():
            self._pass_on(outcome, callback)
        else:
            callback(self)

    # grpc.aio.Call

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the server's initial metadata; if the caller has seen any, the call is committed to the attempt."""
        while True:
            attempt = self._attempt
            if attempt is None:
                if self._outcome is not None:
                    return await self._ask("initial_metadata", grpc.aio.Metadata())  # type: ignore[no-any-return]
                await self._change()
                continue
            metadata: grpc.aio.Metadata = await attempt.initial_metadata()
            if self._machine.handed_over:
                return metadata
            if not metadata and not attempt.done() and self._machine.policy is not None:
                await self._trailers_behind(attempt)
            if not attempt.done():
                if metadata:
                    self.commit()
                return metadata
            await self._known(attempt)
            if self._attempt is attempt:
                return metadata

    async def _trailers_behind(self, attempt: grpc.aio.Call) -> None:
        """Give an attempt a moment to end: a trailers-only status starts with empty metadata, which may come first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_FOR_TRAILERS):
                await self._known(attempt)

    async def _known_outcome(self) -> Outcome:
        while self._outcome is None:
            await self._change()
        return self._outcome

    async def wait_for_connection(self) -> None:
        """Wait until the call has been sent; raise its error if it failed before."""
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
        """Show grpc's own call, once there is one."""
        if self._attempt is None:
            doing = "waits for a connection" if self._outcome is None else f"ended: {self._outcome!r}"
            return f"<{type(self).__name__}, {doing}>"
        if self._machine.handed_over:
            return repr(self._attempt)
        return f"<{type(self).__name__}, attempt {self._state.progress.attempt}: {self._attempt!r}>"


class _UnaryResponse(Call):
    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the response."""
        while True:
            attempt: Any = self._attempt
            if attempt is None:
                attempt = yield from self.running_or_cancel().__await__()
            try:
                return (yield from attempt.__await__())
            except grpc.aio.AioRpcError:
                if not (yield from self.follows_or_cancel(attempt).__await__()):
                    raise
            except asyncio.CancelledError:
                self._cancelled_while(attempt)
                raise


class _StreamResponse(StreamResponse, Call):
    async def _iterate(self) -> AsyncIterator[Any]:
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

    async def _read(self) -> Any:
        while True:
            attempt = await self.running_or_cancel()
            try:
                response = await attempt.read()
            except grpc.aio.AioRpcError:
                if not await self.follows_or_cancel(attempt):
                    raise
            except asyncio.CancelledError:
                self._cancelled_while(attempt)
                raise
            else:
                if attempt is self._attempt:
                    if response is not grpc.aio.EOF:
                        self.commit()
                    return response


class _StreamRequest(StreamRequest, Call):
    def __init__(
        self, terms: Terms, *, requests: Requests | None = None, serialize: Callable[[Any], bytes] | None = None
    ) -> None:
        """Start the first attempt, or wait for a connection.

        Args:
            terms: the arguments of the call; if attempts may be repeated, they take serialized requests.
            requests: the caller's iterator; None if the caller writes.
            serialize: serializes a request.
        """
        self.takes_writes = requests is None
        if not terms.machine.handed_over:
            self._replay = Replay(self, terms.calls, serialize, requests)
        super().__init__(terms)
        if self._replay is not None:
            self._replay.start(self._context)

    @property
    def _done_writing_flag(self) -> bool:
        # grpc's intercepted stream calls read this attribute of the call that an interceptor returned.
        if self._replay is not None:
            return self._replay.half_closed
        return getattr(self._outcome, "_done_writing_flag", False)

    async def _write(self, request: Any) -> None:
        await (self._replay or await self.running_or_cancel()).write(request)

    async def _done_writing(self) -> None:
        await (self._replay or await self.running_or_cancel()).done_writing()


class _UnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    pass


class _UnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    pass


class _StreamUnaryCall(_StreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]):
    pass


class _StreamStreamCall(_StreamRequest, _StreamResponse, grpc.aio.StreamStreamCall[Any, Any]):
    pass


CALLS: dict[str, type[Call]] = {
    "unary_unary": _UnaryUnaryCall,
    "unary_stream": _UnaryStreamCall,
    "stream_unary": _StreamUnaryCall,
    "stream_stream": _StreamStreamCall,
}
"""The class of a call, by the name of the channel method that creates its multicallable."""
