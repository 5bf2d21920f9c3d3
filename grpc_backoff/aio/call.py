"""Asyncio calls that may wait for a connection or be repeated: the asyncio shell of `call_machine`.

A call executes its machine's effects and feeds the machine inputs; the machine makes all decisions. To its caller, it
looks like one of grpc's own calls. It is not built on grpc's intercepted calls, because these have no `time_remaining`,
silently allow mixed reading styles, and report a failed write with a different error than a plain call does.

Once the caller has seen part of an attempt's response, the initial metadata or a message, the call is committed to that
attempt (RT-8). `arities.py` and `request_streams.py` have the four arities.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Container, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from grpc_backoff.aio.call_errors import CallError, RetriesExhaustedError
from grpc_backoff.aio.calls import Calls
from grpc_backoff.aio.loops import raise_soon
from grpc_backoff.aio.stream_attempt import StreamAttempt
from grpc_backoff.base import stepping
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup, CallShell
from grpc_backoff.engine.method import Arguments, Method
from grpc_backoff.grpcio import aio_private
from grpc_backoff.grpcio.private import CANCELLED_DETAILS, Status

if TYPE_CHECKING:
    from grpc_backoff.aio.core_channel import CoreChannel
    from grpc_backoff.decide.calls import hedging_machine as h

_RUNNING, _DONE = m.CallPhase.RUNNING, m.CallPhase.DONE  # up to Python 3.11, access to a member is slow
_BEGUN, _OK = m.Begun(), m.OkStatus()
_GRACE_FOR_TRAILERS = 0.02
"""How long to wait after empty initial metadata, in seconds, because a trailers-only failure may follow (RT-8)."""


StepT = TypeVar("StepT")


class Cancelled:
    """The outcome of a call that was cancelled before grpc's own call was made."""


CANCELLED = Cancelled()
Outcome = grpc.aio.Call | BaseException | Cancelled


class Sender(Method):
    """Makes the attempts of calls."""

    @abstractmethod
    def connection(self, avoid: Container[object] | None = None) -> CoreChannel | None:
        """Return the connection on which an attempt would be made; None if there is none."""

    @abstractmethod
    def make_attempt(
        self,
        request: object,
        arguments: Arguments,
        seconds: float | None,
        instead: m.Metadata,
        avoid: Container[object] | None = None,
    ) -> tuple[grpc.aio.Call, CoreChannel] | None:
        """Make an attempt with a timeout in seconds; `instead` replaces the caller's metadata with the same keys.

        A connection to avoid is used only if no other one serves. None stands for a call that has just been made.

        Return grpc's own call and the connection on which it was made, or None if there is no connection.
        """


def cancellations() -> int:
    """Return how often the current task has been cancelled, without those that it has dealt with."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class Call(CallShell, grpc.aio.Call):
    """The base class of the four arities: it drives the machine, and delegates the caller's methods to attempts."""

    _calls: Calls
    exhausted_error = RetriesExhaustedError
    # When grpcio up to 1.7x closes a channel, it inspects the calls of all tasks, and reads this attribute of each.
    _channel = None
    _attempt: grpc.aio.Call | None = None
    _outcome: Outcome | None = None
    # Tuples, because thousands of calls may wait, and most never have more than one of each.
    _awaiting: tuple[asyncio.Future[None], ...] = ()
    _endings: tuple[asyncio.Future[None], ...] = ()
    _callbacks: tuple[Callable[[Call], None], ...] = ()

    def __init__(self, setup: CallSetup[Sender]) -> None:
        """Start the first attempt, or wait for a connection."""
        super().__init__(setup)
        self._sender: Sender | None = setup.attempts
        self._arguments: Arguments | None = setup.arguments
        self._stepping, first = True, self._first
        del self._first  # thousands may wait, and keep only what they need
        try:
            self._begin(first, in_context=True)
        finally:
            self._stepping = False
        if self._inputs:
            self._drain()

    # Driving the machine. All the overhead of a call that succeeds at the first attempt is in the next two sections.

    def _step(self, input_: Any) -> None:
        if self._state.phase is _DONE:
            return  # the end is final; later inputs are ignored
        self._state, effects = self._machine.step(self._state, input_, self._calls.now(), self._calls)
        for effect in effects:
            self._carry_out(effect)

    _drained = CallShell._record  # noqa: SLF001 - its own base class; this spares each step a call

    def _has_outcome(self) -> bool:
        return self._outcome is not None

    def _break_off(self, error: Exception) -> None:
        attempt, self._attempt = self._attempt, None  # otherwise the caller would be notified of its cancellation
        self._settle(error)
        if attempt is not None:
            attempt.cancel()

    def _carry_out(self, effect: h.Effect) -> None:  # noqa: C901, PLR0912 - one branch for each effect
        if effect is m.AS_ATTEMPT:  # spares most calls the comparison with every other effect
            self._settle(self._attempt or self._error or CANCELLED)
            return
        match effect:
            # The effects of a call that waits for a connection come first, because the order costs time.
            case stepping.CancelTimer():
                self._cancel_timer()
            case m.Begin():
                self._begin(effect)
            case stepping.ArmTimer(at):
                self._cancel_timer()
                self._timer = self._calls.clock.call_at(at, self._timer_fired)
            case m.Enqueue():
                self._calls.pending.add(self)
            case m.Finish(m.Ending.CANCELLED):
                self._settle(CANCELLED)
            case m.Finish(m.Ending.EXHAUSTED):
                self._read_error()
                self._settle(self._exhausted(effect))
            case m.Finish(m.Ending.TIMED_OUT):
                self._read_error()
                code, details, initial, trailing, debug, *_ = self._timed_out()
                self._settle(grpc.aio.AioRpcError(code, initial, trailing, details, debug))
            case m.Finish():
                self._settle(self._attempt or self._error or CANCELLED)
            case stepping.Emit(event):
                self._emit(event)
            case m.SeekAnother(status):
                self._calls.pending.pool.seek_another(self._connection, status)
            case m.CallHook():
                self._read_error()
                failed, began = self._failed_call(effect), self._state.attempt_began
                self._calls.ask(effect.hook, failed, began, self._context, self._hook_done)
            case m.FailAttempt(code):
                self._attempt, self._error = None, self._calls.no_connection(self._machine.method, code)
                self._end_span(code)
            case m.FailSoon():
                self._calls.loop.call_soon(self.feed, self._calls.pending.no_connection())
            case stepping.AbandonAttempt():
                if self._attempt is not None and not self._attempt.cancel() and not self._attempt.done():
                    self._attempt, self._error = None, None

    def _timer_fired(self) -> None:
        self._timer = None
        self.feed(m.CallTimerFired())

    # Attempts.

    def _begin(self, effect: m.Begin, *, in_context: bool = False) -> None:
        """Make an attempt; an error while making the first one is raised to the caller."""
        self._attempt = self._error = None
        if self._spans is not None:
            self._begin_span()
        sender, arguments = self._sender, self._arguments
        assert sender is not None, "a finished call must not start an attempt"
        assert arguments is not None, "and has no arguments"
        attempt = self._request, arguments, effect.seconds, effect.metadata, self._avoided
        try:
            made = sender.make_attempt(*attempt) if in_context else self._context.run(sender.make_attempt, *attempt)
        except Exception as error:
            self._end_span("INTERNAL")
            if in_context:
                raise
            self._error = error  # raised when the call is awaited
            self._inputs.append(m.AttemptBroken())
            return
        if made is None:
            self._inputs.append(self._not_connected())
        else:
            self._begun(*made)

    def _not_connected(self) -> m.NotConnected:
        return self._calls.pending.not_connected(waited=self._state.waited)

    def _begun(self, attempt: grpc.aio.Call, connection: CoreChannel) -> None:
        self._connection, self._attempt = connection, attempt
        if self._machine.policy is None and self._machine.handed_over:
            self._inputs.append(_BEGUN)
            return
        attempt.add_done_callback(self._attempt_ended)
        if self._awaiting:
            self._wake_awaiting()

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine alongside an attempt, in the context of the call; see `Calls.spawn`."""
        return self._calls.spawn(work, self._context)

    def _attempt_ended(self, attempt: object) -> None:
        """Notify the machine that an attempt has ended."""
        current: Any = self._attempt
        if attempt is not current or self._state.phase is not _RUNNING:
            return
        stream = type(attempt) is StreamAttempt  # `isinstance` asks an abstract class, which costs a microsecond
        succeeded = attempt.status.code() is grpc.StatusCode.OK if stream else aio_private.core_call(attempt).is_ok()
        if succeeded:
            if self._spans is not None:
                self._end_span("OK")
            self.feed(_OK)
            return
        if aio_private.is_cancelled_here(attempt.call if stream else attempt):
            self.feed(m.CancelRequested())  # for example, because the channel was closed
            return
        self._error = attempt.status if stream else attempt
        if self._spans is not None:
            self._end_span(self._status(self._error).code.name)
        self.feed(self._failure(self._error))

    def _read_error(self) -> None:
        """Make the error of the failed attempt, which a call that is repeated with success does not need."""
        if isinstance(self._error, grpc.aio.Call):
            self._error = aio_private.status_of(self._error)

    def _status(self, error: object) -> Status:
        if not isinstance(error, grpc.aio.AioRpcError):
            return aio_private.raw_status(error)
        metadata = error.initial_metadata(), error.trailing_metadata()
        return Status(error.code(), error.details() or "", *metadata, error.debug_error_string())

    # The end.

    def _settle(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._sender = self._arguments = self._connection = self._request = None  # the sender refers to the channel
        if self._timer is not None:
            self._cancel_timer()
        if self._spans is not None:
            self._end_span("CANCELLED")  # does nothing if the span has ended
        if self._endings:
            if outcome is self._attempt and self._machine.handed_over:  # one wake, with the response, is enough
                aio_private.core_call(outcome).add_done_callback(partial(_wake, self._endings))
            else:
                _wake(self._endings)
            self._endings = ()
        if self._awaiting:
            self._wake_awaiting()
        if not self._callbacks:
            return
        callbacks, self._callbacks = self._callbacks, ()
        handed_over = isinstance(outcome, grpc.aio.Call) and not outcome.done()
        for callback in callbacks:
            if handed_over:
                self._pass_on(outcome, callback)
            else:
                _notify(self, callback, self._calls.loop)

    def _pass_on(self, call: Any, callback: Callable[[Call], None]) -> None:
        call.add_done_callback(lambda _call: callback(self))

    # The caller's side.

    @property
    def attempt(self) -> Any:
        """The current attempt, or the last one; None while the call waits for a connection."""
        return self._attempt

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
        while self._attempt is None and self._outcome is None:
            await self._change()
        if self._attempt is None:
            self._raise_outcome()
        return self._attempt

    async def follows(self, attempt: grpc.aio.Call) -> bool:
        """Return whether another attempt follows a failed one, once that is decided.

        Raise the error of a failed call, unless the failed attempt itself reports the outcome.
        """
        await self._known(attempt)
        if self._attempt is not attempt:
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
        if attempt is not self._attempt and isinstance(outcome, Exception) and not isinstance(outcome, CallError):
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
        while self._attempt is attempt and self._outcome is None:
            await self._change()

    def _change(self) -> asyncio.Future[None]:
        """Return a future that is done when another attempt begins, or when the outcome is known."""
        changed = self._calls.loop.create_future()
        # A caller that polls the call, and cancels its waits, must not leave them all here.
        self._awaiting = (*(other for other in self._awaiting if not other.done()), changed)
        return changed

    def _wake_awaiting(self) -> None:
        awaiting, self._awaiting = self._awaiting, ()
        _wake(awaiting)

    def _ending(self) -> asyncio.Future[None]:
        """Return a future that is done when the outcome is known; cancelling a wait for it must cancel the call."""
        ending = self._calls.loop.create_future()
        self._endings += (ending,)
        return ending

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
                # Give the attempt a moment to end, because empty initial metadata may precede a trailers-only failure.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_FOR_TRAILERS):
                        await self._known(attempt)
            if not attempt.done():
                if metadata:
                    self.commit()
                return metadata
            await self._known(attempt)
            if self._attempt is attempt:
                return metadata

    async def _ask(self, question: str, if_cancelled: object) -> Any:
        while self._outcome is None:
            await self._change()
        outcome = self._outcome
        if isinstance(outcome, grpc.aio.Call):
            return await getattr(outcome, question)()
        if isinstance(outcome, grpc.aio.AioRpcError):
            return getattr(outcome, question)()
        if isinstance(outcome, BaseException):
            raise outcome.with_traceback(None)
        return if_cancelled

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailing metadata."""
        return await self._ask("trailing_metadata", grpc.aio.Metadata())  # type: ignore[no-any-return]

    async def code(self) -> grpc.StatusCode:
        """Wait for the status code and return it."""
        return await self._ask("code", grpc.StatusCode.CANCELLED)  # type: ignore[no-any-return]

    async def details(self) -> str:
        """Return the status details."""
        return await self._ask("details", CANCELLED_DETAILS)  # type: ignore[no-any-return]

    async def debug_error_string(self) -> str | None:
        """Return grpc's own debugging text, if there is any."""
        return await self._ask("debug_error_string", "")  # type: ignore[no-any-return]

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
        if self._attempt is None:
            doing = "waits for a connection" if self._outcome is None else f"ended: {self._outcome!r}"
            return f"<{type(self).__name__}, {doing}>"
        if self._machine.handed_over:
            return repr(self._attempt)
        return f"<{type(self).__name__}, attempt {self._state.progress.attempt}: {self._attempt!r}>"


def _notify(call: Call, callback: Callable[[Call], None], loop: asyncio.AbstractEventLoop) -> None:
    """Call a done callback; its exceptions are handled like those of asyncio's own callbacks."""
    try:
        callback(call)
    except (KeyboardInterrupt, SystemExit) as error:
        raise_soon(error, loop)  # raising it here would leave the call half ended
    except BaseException as error:  # noqa: BLE001 - a callback may raise anything
        loop.call_exception_handler({"message": "a call's done callback raised", "exception": error})


def _wake(awaiting: tuple[asyncio.Future[None], ...], _ended: object = None) -> None:
    """Wake everything that waits for a change of a call."""
    for changed in awaiting:
        if not changed.done():
            changed.set_result(None)
