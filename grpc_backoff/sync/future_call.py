"""Threaded calls that run in the background: the shell of `call_machine` for futures and response streams.

Any thread may use such a call at any time. Each thread that notifies it steps the machine, one thread at a time, and
the conductor runs its timer. To its caller, it is one of grpcio's own rendezvous objects: iterator, `grpc.Call`,
`grpc.Future` and `grpc.RpcError` in one, whose state is that of the whole call, even if that takes several attempts.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.base.threads import Condition, longest_sleep
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.grpcio.private import CANCELLED_DETAILS, Status
from grpc_backoff.grpcio.sync_private import (
    CLOSED_DETAILS,
    FORKED_DETAILS,
    GRPCIOS_LOG,
    Rendezvous,
    call_state,
    end_broken,
    status_of,
)
from grpc_backoff.sync.attempts import Attempts
from grpc_backoff.sync.call import BEGUN, OK, OK_CODE, SteppedCall
from grpc_backoff.sync.core_connector import Entry

if TYPE_CHECKING:
    from types import TracebackType

    from grpc_backoff.decide.calls import hedging_machine as h
    from grpc_backoff.grpcio.shapes import BackgroundCall


class FutureCall(SteppedCall):
    """A call that runs in the background; each thread that notifies it also steps its machine.

    Attributes:
        state: grpcio's state of the whole call; guarded by the condition that it contains.
        attempt: the attempt on a connection, or the last one; None while the call waits.
        error: the error of a failed call; None if the attempt itself reports the error.
    """

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self.state = call_state()
        self.error: BaseException | None = None
        self._lock = threading.RLock()
        """Held by the thread that steps the machine."""
        self._settled = False
        """Whether it is known how the call ends; the attempt that it ends with may still run."""
        self._by_caller = False
        """Whether the caller has cancelled the call."""
        self._awaited = False
        """Whether a thread waits, or has waited, for an attempt."""
        self._due: list[Callable[[], object]] = []
        """The program's callbacks that are to be run."""
        self._start_error: BaseException | None = None
        """What `start` raises, if the first attempt could not be made."""

    def start(self) -> None:
        """Start the first attempt, or wait for a connection; an error while doing that is raised."""
        with self._lock:  # no other thread steps the machine meanwhile
            self._stepping = True
            try:
                self._begin(self._first)
            finally:
                self._stepping = False
            self._drain()
            if self._start_error is not None:
                raise self._start_error
        if self._due:
            self._calls.listeners.call(self._call_back)

    # Driving the machine.

    def feed(self, input_: h.Input) -> None:
        """Step the machine with an input. Inputs produced by its effects wait for their turn. Thread-safe."""
        self._inputs.append(input_)
        self._drain()
        if self._due:
            self._calls.listeners.call(self._call_back)

    def _drain(self) -> None:
        with self._lock:
            super()._drain()

    def _arm(self, at: float) -> None:
        self._cancel_timer()
        self._timer = self._calls.call_at(at, lambda: self.feed(m.CallTimerFired()))

    def _run_hook(self, effect: m.CallHook) -> None:
        failed = self._failed_call(effect)  # now: the call may end at its deadline before the hook begins
        began, calls = self._state.attempt_began, self._calls
        calls.start(effect.hook, failed, began, self._context, self._hook_done)

    def _fail_soon(self) -> None:
        self._calls.conductor.post(lambda: self.feed(self._calls.pending.no_connection()))

    def _abandon_attempt(self) -> None:
        if self.attempt is not None:
            self._calls.conductor.post(self.attempt.cancel)

    # Attempts.

    def _begin(self, effect: m.Begin) -> None:
        self.attempt = None
        super()._begin(effect)

    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        attempt = self._made(lambda *arguments: self._context.run(attempts.make, *arguments), entry, effect)
        if attempt is None:
            self._start_error = self._error
        else:
            self._error = None
            self._begun(attempt, entry)

    def _begun(self, attempt: BackgroundCall, entry: Entry) -> None:
        self._connection = entry.connection
        self.attempt = attempt
        if self._awaited:
            with self.state.condition:
                self.state.condition.notify_all()
        if self._machine.handed_over:
            self._inputs.append(BEGUN)
        if not attempt.add_callback(lambda: self._attempt_ended(attempt, entry)):
            self._attempt_ended(attempt, entry)

    def _attempt_ended(self, attempt: object, entry: Entry) -> None:
        """Notify the machine that an attempt has ended. Called on grpcio's thread."""
        status = status_of(attempt)
        code = status.code
        input_: h.Input | None = None
        if not self._machine.handed_over:  # otherwise, nothing is left to decide
            input_ = OK if code is OK_CODE else self._failure(attempt)
        entry.ended(code, status.details)
        with self._lock:
            if attempt is not self.attempt:
                return
            if self._settled:
                self._settle(status)
            elif input_ is not None:
                self._error = None if code is OK_CODE else attempt
                self._end_span(code.name)
                # The attempt may have been cancelled elsewhere, for example by closing the channel.
                self._inputs.append(m.CancelRequested() if status.cancelled else input_)
                self._drain()
        self._call_back_here()

    # The end.

    def _finish(self, effect: m.Finish) -> None:
        self._settled = True
        self._attempts = self._request = None  # releases the channel, and the iterator of requests
        if self._timer is not None:
            self._cancel_timer()
        attempt, ending, error = self.attempt, effect.ending, self._error
        if ending is m.Ending.ATTEMPT and attempt is not None:  # as most calls end
            if attempt.done():
                self._settle(status_of(attempt))
        elif ending is m.Ending.TIMED_OUT:
            self._settle(self._timed_out())
        elif ending is m.Ending.EXHAUSTED:
            exhausted = self._exhausted(effect)
            self._settle(status_of(exhausted), exhausted)
        elif ending is m.Ending.CANCELLED or error is None:
            details = CANCELLED_DETAILS if self._by_caller else CLOSED_DETAILS
            self._settle(Status(grpc.StatusCode.CANCELLED, details, (), (), ""))
        elif isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
            self._settle(status_of(error), error)
        else:
            self._settle(Status(grpc.StatusCode.INTERNAL, repr(error), (), (), ""), error)

    def _has_outcome(self) -> bool:
        return self._settled

    def _break_off(self, error: Exception) -> None:
        with self.state.condition:
            attempt, self.attempt, self._error = self.attempt, None, error
        self._finish(m.Finish(m.Ending.BROKEN))
        if attempt is None:
            self._start_error = error
        else:
            self._calls.conductor.post(attempt.cancel)

    def _settle(self, status: Status, error: BaseException | None = None) -> None:
        """Record how the call has ended, and schedule its callbacks; `error` is None if the call itself reports it.

        Where the call was settled before its attempt has ended, the end of that adds what was missing.
        """
        state = self.state
        with state.condition:
            callbacks, state.callbacks = state.callbacks or [], None
            self.error = error
            state.cancelled = state.cancelled or status.cancelled
            self._write(status)
            state.condition.notify_all()
        if self._spans is not None:
            self._end_span("CANCELLED")  # does nothing if the span has ended
        self._due += callbacks

    def _write(self, status: Status) -> None:
        state = self.state
        if state.code is None:
            state.code, state.details, state.response = status.code, status.details, status.response
            state.debug_error_string = status.debug_error_string
        state.initial_metadata = state.initial_metadata or status.initial_metadata or ()
        state.trailing_metadata = state.trailing_metadata or status.trailing_metadata or ()
        if state.debug_error_string is None:
            state.debug_error_string = status.debug_error_string or ""

    def _call_back_here(self) -> None:
        """Run user callbacks on this thread of grpcio's; if a step is in progress, its thread runs them."""
        if self._due and not self._stepping:
            self._call_back()

    def _call_back(self) -> None:
        """Run user callbacks, on grpcio's thread or a listeners' thread, and without holding a lock."""
        with self._lock:  # two threads must not take the same callbacks
            due, self._due = self._due, []
        for callback in due:
            try:
                callback()
            except BaseException as error:  # noqa: BLE001 - SystemExit would end grpcio's thread
                GRPCIOS_LOG.error("Exception in callback %r: %r", getattr(callback, "func", callback), error)

    # The caller's side.

    def abandon(self) -> None:
        """End the call in the child of a fork, where no thread serves it. Its callbacks run only in the parent."""
        state = self.state
        self._lock, state.condition = threading.RLock(), Condition()  # other threads may have held them
        self._settled, state.callbacks = True, None
        self._write(Status(grpc.StatusCode.CANCELLED, FORKED_DETAILS, (), (), ""))

    def cancel(self, _code: object, _details: object) -> None:
        """Cancel the call; grpcio's rendezvous object calls this under the condition of `state`."""
        self._by_caller = True
        self._calls.conductor.post(self._cancel)

    def _cancel(self) -> None:
        self.feed(m.CancelRequested())
        # Cancel the attempt as well, because the machine no longer tracks an attempt that was handed over. Do this
        # last: an attempt that was being made when `cancel` was called is known by now.
        attempt = self.attempt
        if attempt is not None:
            attempt.cancel()

    def commit(self) -> None:
        """Commit the call to the current attempt, because the caller has seen part of its response (RT-8)."""
        if not self._state.committed and not self._settled:
            self.feed(m.Committed())
            self._keep_no_requests()

    def time_left(self) -> float | None:
        """Return the seconds until the deadline that `time_remaining` reports; None if there is no deadline."""
        end = self._shown_end()
        return None if end is None else end - self._calls.now()

    def read(self, attempt: BackgroundCall) -> object:
        """Return the attempt's next response, or raise what the attempt raises."""
        return next(attempt)

    def current(self) -> BackgroundCall | None:
        """Return the attempt once it is on a connection; None if the call ended before that."""
        with self.state.condition:
            self._wait_for(lambda: self.attempt is not None or self.state.code is not None)
            attempt: BackgroundCall | None = self.attempt
        return attempt

    def follows(self, attempt: object) -> bool:
        """Return whether the call went on after `attempt`, once that is decided.

        By now the whole call may have ended, because the thread that reads an attempt may be late.
        """
        with self.state.condition:
            self._wait_for(lambda: self.attempt is not attempt or self.state.code is not None)
            return self.attempt is not attempt

    def _wait_for(self, holds: Callable[[], bool]) -> None:
        self._awaited, longest = True, longest_sleep()  # before the check: an attempt that begins later notifies
        while not holds():
            self.state.condition.wait(longest)


class FutureRendezvous(Rendezvous):  # type: ignore[misc] # grpcio's own class is Any here
    """A call with one response, as returned by `future`."""

    def __init__(self, call: FutureCall) -> None:
        """Wrap a call that has not been started; the caller starts it afterwards."""
        left = call.time_left()
        deadline = None if left is None else time.time() + left
        Rendezvous.__init__(self, call.state, call, None, deadline)

    def initial_metadata(self) -> Any:
        """Return the server's initial metadata; if there is any, the call is now committed to the attempt (RT-8)."""
        while True:
            attempt = self._call.current()
            if attempt is None:
                return Rendezvous.initial_metadata(self)
            metadata = attempt.initial_metadata()
            if not attempt.done() and metadata:
                self._call.commit()
            if not attempt.done() or not self._call.follows(attempt):
                return metadata

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of a failed call, or None if it succeeded; see `grpc.Future.exception`."""
        found: BaseException | None = Rendezvous.exception(self, timeout)
        return found if found is not self else self._error()

    def result(self, timeout: float | None = None) -> Any:
        """Return the response, or raise the error of a failed call; see `grpc.Future.result`."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._state.response

    def traceback(self, timeout: float | None = None) -> TracebackType | None:
        """Return the traceback of a failed call's error; see `grpc.Future.traceback`."""
        error = self.exception(timeout)
        if error is None:
            return None
        try:
            raise error
        except grpc.RpcError:
            return sys.exc_info()[2]

    def _error(self) -> BaseException:
        error: BaseException | None = self._call.error
        return self if error is None else error


class StreamRendezvous(FutureRendezvous):
    """A call with a stream of responses."""

    def _next(self) -> object:
        while True:
            attempt = self._call.current()
            # The attempt learns of a cancellation later, and could return a message until then.
            if attempt is None or self.cancelled():
                raise self._error()
            try:
                response = self._call.read(attempt)
            except StopIteration:
                self._call.follows(attempt)
                raise
            except grpc.RpcError as error:
                error.__traceback__ = None  # it refers to this frame, and so would keep this object alive
                end_broken(attempt)
            else:
                self._call.commit()
                return response
            if not self._call.follows(attempt):
                raise self._error()
