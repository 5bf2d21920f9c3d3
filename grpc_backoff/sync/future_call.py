"""Threaded calls that run in the background: the shell of `call_machine` for futures and response streams.

Any thread may use such a call at any time. Each thread that notifies it steps the machine, one thread at a time, and
the conductor runs its timer. To its caller, it is one of grpcio's own rendezvous objects (`rendezvous.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.base.conditions import Condition
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.grpcio.private import CANCELLED_DETAILS, Status
from grpc_backoff.grpcio.sync_private import CLOSED_DETAILS, FORKED_DETAILS, call_state, status_of
from grpc_backoff.sync.call import BEGUN, OK, OK_CODE, Attempts, Entry, SteppedCall, leave, longest_sleep

if TYPE_CHECKING:
    from grpc_backoff.decide.calls import hedging_machine as h
    from grpc_backoff.grpcio.shapes import BackgroundCall

_LOG = logging.getLogger(__name__)


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
        self._settled = False
        self._quietly = False
        self._awaited = False
        """Whether a thread waits, or has waited, for an attempt."""
        self._due: list[Callable[[], object]] = []
        self._broken: BaseException | None = None

    def start(self) -> None:
        """Start the first attempt, or wait for a connection; an error while doing that is raised."""
        with self._lock:  # no other thread steps the machine meanwhile
            self._stepping = True
            try:
                self._begin(self._first)
            finally:
                self._stepping = False
            self._drain()
            if self._broken is not None:
                raise self._broken
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
        self._timer = self._calls.wake_at(at, lambda: self.feed(m.CallTimerFired()))

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
        attempt = self._made(lambda *how: self._context.run(attempts.make, *how), entry, effect)
        if attempt is None:
            self._broken = self._error
        else:
            self._error = None
            self._begun(attempt, entry)

    def _begun(self, attempt: BackgroundCall, entry: Entry) -> None:
        self._connection = entry[0]
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
        leave(entry[0], entry[1], code, status.details)
        with self._lock:
            if attempt is not self.attempt:
                return
            if self._settled:
                self._settle(attempt, status)
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
        attempt, ending = self.attempt, effect.ending
        if ending is m.Ending.ATTEMPT and attempt is not None:  # as most calls end
            if attempt.done():
                self._settle(attempt)
        elif ending is m.Ending.EXHAUSTED:
            self._settle(self._exhausted(effect))
        elif ending is m.Ending.TIMED_OUT:
            self._settle(attempt, self._timed_out())
        elif ending is m.Ending.CANCELLED:
            self._settle(None)
        else:
            self._settle(self._error)

    def _has_outcome(self) -> bool:
        return self._settled

    def _break_off(self, error: Exception) -> None:
        with self.state.condition:
            attempt, self.attempt, self._error = self.attempt, None, error
        self._finish(m.Finish(m.Ending.BROKEN))
        if attempt is None:
            self._broken = error
        else:
            self._calls.conductor.post(attempt.cancel)

    def _settle(self, outcome: Any, ended: Status | None = None) -> None:
        """Record how the call has ended, with the status if it is known already, and schedule its callbacks."""
        state = self.state
        with state.condition:
            callbacks, state.callbacks = state.callbacks or [], None
            if outcome is None:
                details = CANCELLED_DETAILS if self._quietly else CLOSED_DETAILS
                self._write(Status(grpc.StatusCode.CANCELLED, details, (), (), ""))
            elif outcome is self.attempt or (isinstance(outcome, grpc.RpcError) and isinstance(outcome, grpc.Call)):
                ended = ended or status_of(outcome)
                self.error = None if outcome is self.attempt else outcome
                state.cancelled = state.cancelled or ended.cancelled
                if state.code is None:
                    state.response = ended.response
                self._write(ended)
            else:
                self.error = outcome
                self._write(Status(grpc.StatusCode.INTERNAL, repr(outcome), (), (), ""))
            state.condition.notify_all()
        if self._spans is not None:
            self._end_span("CANCELLED")  # does nothing if the span has ended
        self._due += callbacks

    def _write(self, status: Status) -> None:
        state = self.state
        if state.code is None:
            state.code, state.details, state.debug_error_string = status.code, status.details, status.debug_error_string
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
            except Exception:  # noqa: BLE001, RUF100 - a callback may raise anything
                _LOG.exception("a call's callback raised")

    # The caller's side.

    def abandon(self) -> None:
        """End the call in the child of a fork, where no thread serves it. Its callbacks run only in the parent."""
        state = self.state
        self._lock, state.condition = threading.RLock(), Condition()  # other threads may have held them
        self._settled, state.callbacks = True, None
        self._write(Status(grpc.StatusCode.CANCELLED, FORKED_DETAILS, (), (), ""))

    def cancel(self, _code: object, _details: object) -> None:
        """Cancel the call; grpcio's rendezvous object calls this under the condition of `state`."""
        self._quietly = True
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
