"""Asyncio calls as they execute their machine's effects: the asyncio shell of `call_machine`.

A call feeds its machine inputs; the machine makes all decisions. What its caller sees of it is in `call.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from grpc_backoff.aio.call_errors import RetriesExhaustedError
from grpc_backoff.aio.environment import CallEnvironment
from grpc_backoff.aio.loops import raise_soon
from grpc_backoff.aio.stream_attempt import StreamAttempt
from grpc_backoff.base import stepping
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup, CallShell
from grpc_backoff.grpcio import aio_private
from grpc_backoff.grpcio.private import Status

if TYPE_CHECKING:
    from grpc_backoff.aio.core_channel import CoreChannel
    from grpc_backoff.aio.multicallables import MultiCallable
    from grpc_backoff.decide.calls import hedging_machine as h
    from grpc_backoff.engine.method import Arguments

_RUNNING, _DONE = m.CallPhase.RUNNING, m.CallPhase.DONE  # up to Python 3.11, access to a member is slow
_BEGUN, _OK = m.Begun(), m.OkStatus()


class Cancelled:
    """The outcome of a call that was cancelled before grpc's own call was made."""


CANCELLED = Cancelled()
Outcome = grpc.aio.Call | BaseException | Cancelled


class AttemptingCall(CallShell):
    """A call that makes attempts until it has an outcome, and notifies what waits for either.

    Once part of an attempt's response has reached the caller, the call is committed to that attempt (RT-8).
    """

    _calls: CallEnvironment
    exhausted_error = RetriesExhaustedError
    attempt: Any = None
    """The current attempt, or the last one; None while the call waits for a connection."""
    _outcome: Outcome | None = None
    # Tuples, because thousands of calls may wait, and most never have more than one of each.
    _awaiting: tuple[asyncio.Future[None], ...] = ()
    """What waits for the next attempt or the outcome."""
    _endings: tuple[asyncio.Future[None], ...] = ()
    """What waits for the outcome alone; cancelling such a wait must cancel the call."""
    _callbacks: tuple[Callable[[Any], None], ...] = ()

    def __init__(self, setup: CallSetup[MultiCallable]) -> None:
        """Start the first attempt, or wait for a connection."""
        super().__init__(setup)
        self._sender: MultiCallable | None = setup.attempts
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
        attempt, self.attempt = self.attempt, None  # otherwise the caller would be notified of its cancellation
        self._settle(error)
        if attempt is not None:
            attempt.cancel()

    def _carry_out(self, effect: h.Effect) -> None:  # noqa: C901, PLR0912 - one branch for each effect
        if effect is m.AS_ATTEMPT:  # spares most calls the comparison with every other effect
            self._settle(self.attempt or self._error or CANCELLED)
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
            case m.Finish():
                self._settle(self._outcome_of(effect))
            case stepping.Emit(event):
                self._emit(event)
            case m.SeekAnother(status):
                self._calls.pending.pool.seek_another(self._connection, status)
            case m.CallHook():
                self._read_error()
                failed, began = self._failed_call(effect), self._state.attempt_began
                self._calls.ask(effect.hook, failed, began, self._context, self._hook_done)
            case m.FailAttempt(code):
                self.attempt, self._error = None, self._calls.no_connection(self._machine.method, code)
                self._end_span(code)
            case m.FailSoon():
                self._calls.loop.call_soon(self.feed, self._calls.pending.no_connection())
            case stepping.AbandonAttempt():
                if self.attempt is not None and not self.attempt.cancel() and not self.attempt.done():
                    self.attempt, self._error = None, None

    def _timer_fired(self) -> None:
        self._timer = None
        self.feed(m.CallTimerFired())

    # Attempts.

    def _begin(self, effect: m.Begin, *, in_context: bool = False) -> None:
        """Make an attempt; an error while making the first one is raised to the caller."""
        self.attempt = self._error = None
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
        self._connection, self.attempt = connection, attempt
        if self._machine.policy is None and self._machine.handed_over:
            self._inputs.append(_BEGUN)
            return
        attempt.add_done_callback(self._attempt_ended)
        if self._awaiting:
            self._wake_awaiting()

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine alongside an attempt, in the context of the call; see `CallEnvironment.spawn`."""
        return self._calls.spawn(work, self._context)

    def _attempt_ended(self, attempt: object) -> None:
        """Notify the machine that an attempt has ended."""
        if attempt is not self.attempt or self._state.phase is not _RUNNING:
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

    def _outcome_of(self, effect: m.Finish) -> Outcome:
        match effect.ending:
            case m.Ending.CANCELLED:
                return CANCELLED
            case m.Ending.EXHAUSTED:
                self._read_error()
                return self._exhausted(effect)
            case m.Ending.TIMED_OUT:
                self._read_error()
                code, details, initial, trailing, debug, *_ = self._timed_out()
                return grpc.aio.AioRpcError(code, initial, trailing, details, debug)
            case _:
                return self.attempt or self._error or CANCELLED

    def _settle(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._sender = self._arguments = self._connection = self._request = None  # the sender refers to the channel
        if self._timer is not None:
            self._cancel_timer()
        if self._spans is not None:
            self._end_span("CANCELLED")  # does nothing if the span has ended
        if self._endings:
            if outcome is self.attempt and self._machine.handed_over:  # one wake, with the response, is enough
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

    def _pass_on(self, call: Any, callback: Callable[[Any], None]) -> None:
        call.add_done_callback(lambda _call: callback(self))

    def _wake_awaiting(self) -> None:
        awaiting, self._awaiting = self._awaiting, ()
        _wake(awaiting)


def _notify(call: AttemptingCall, callback: Callable[[Any], None], loop: asyncio.AbstractEventLoop) -> None:
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
