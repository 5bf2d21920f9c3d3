"""Threaded calls that may wait for a connection or be repeated: the threaded shell of `call_machine`.

A call executes its machine's effects and feeds the machine inputs; the machine makes all decisions. There are two
shells:

* A blocking call does everything in its caller's thread, and sleeps there. Other threads put notifications, for example
  that there is a connection, into its mailbox.
* A future or a response stream can be used by any thread at any time. Each thread that notifies it steps the machine,
  one thread at a time, and the conductor runs its timer.

To its caller, a future or a response stream is one of grpcio's own rendezvous objects (`rendezvous.py`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Container
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.base import stepping
from grpc_backoff.base.conditions import Condition
from grpc_backoff.base.threads import new_queue
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup, CallShell
from grpc_backoff.engine.method import Arguments, replaced
from grpc_backoff.grpcio.private import CANCELLED_DETAILS, Status
from grpc_backoff.grpcio.sync_private import (
    CLOSED_DETAILS,
    FORKED_DETAILS,
    InactiveRpcError,
    call_state,
    failed_call,
    guard_call,
    status_of,
)
from grpc_backoff.sync.call_errors import RetriesExhaustedError
from grpc_backoff.sync.calls import Calls
from grpc_backoff.sync.core_connector import CoreConnection

if TYPE_CHECKING:
    from grpc_backoff.decide.calls import hedging_machine as h
    from grpc_backoff.grpcio.shapes import BackgroundCall
    from grpc_backoff.sync.replay import Replay

_LOG = logging.getLogger(__name__)

_LONGEST_SLEEP = 3600.0
"""The longest single wait, in seconds. The operating system has a limit far above it, which a deadline may exceed."""
_LONGEST_SLEEP_OF_MAIN = 0.25
"""The longest single wait in the main thread, in seconds, because a signal that arrives as the thread falls asleep does
not wake it (TH-6)."""
_BEGUN, _OK = m.Begun(), m.OkStatus()
_OF_CONNECTIONS = (m.ConnectionReady, m.NoConnection)


_BLOCKING_STYLES = ("__call__", "with_call")

Entry = tuple[CoreConnection, object, Any]
"""A connection that a call has entered, the token that keeps it open until the call leaves, and grpc's own
multicallable on it. This is a plain tuple, because every call on a READY channel creates one."""


class Attempts:
    """Makes the attempts of one call.

    Attributes:
        enter: enters a connection and returns it; None if there is none. Its argument has the connections that it
            enters only if no other serves; None if the call has just been made.
    """

    __slots__ = ("_arguments", "_arity", "_replay", "_request", "_single", "_style", "enter")

    def __init__(
        self,
        enter: Callable[[Container[object] | None], Entry | None],
        arity: str,
        style: str,
        request: Any,
        arguments: Arguments,
        replay: Replay | None = None,
        *,
        single: bool = False,
    ) -> None:
        self.enter = enter
        self._arity = arity
        self._style = style
        self._request = request
        self._arguments = arguments
        self._replay = replay
        self._single = single

    def make(self, entry: Entry, seconds: float | None, instead: m.Metadata) -> Any:
        """Make an attempt with a timeout in seconds; `instead` replaces the caller's metadata with the same keys.

        A blocking attempt returns its result or raises its error. Any other attempt returns grpcio's call object.
        """
        connection, _, method = entry
        _, metadata, credentials, _, compression = self._arguments
        replay = self._replay
        request = self._request if replay is None else replay.attempt()
        if instead:
            metadata = replaced(metadata, instead)
        in_background = self._style not in _BLOCKING_STYLES or self._arity.endswith("stream")
        if in_background:
            connection.streamed = True
        # The call is fail-fast in the core. If the connection breaks just as a wait-for-ready call is assigned to it,
        # the core would keep the call waiting for the core's own next attempt, long after this channel is READY again.
        blocking = self._style in _BLOCKING_STYLES and self._arity == "stream_unary"
        try:
            call = getattr(method, self._style)(
                request,
                timeout=seconds,  # by keyword, because tracers that wrap grpc's methods look for keywords
                metadata=metadata,
                credentials=credentials,
                wait_for_ready=False,
                compression=compression,
            )
        except ValueError as error:  # the channel was closed
            refusal = connection.refusal(error)
            if refusal is error or not in_background:
                raise refusal from None
            call = failed_call(refusal)
        finally:
            if replay is not None and blocking:
                replay.end(request)
        if in_background:
            guard_call(call)
        if replay is not None and not blocking and not call.add_callback(partial(replay.end, request)):
            replay.end(request)
        if self._single:  # its caller already holds the call
            token = object()
            connection.calls.add(token)
            if connection.room is not None:
                connection.room.add(token)
            follow(call, connection, token)
        return call

    def committed(self) -> None:
        """Stop keeping requests, because there will be no further attempt."""
        if self._replay is not None:
            self._replay.release()


class _SteppedCall(CallShell):
    """The base class of blocking calls and futures: it steps the machine; subclasses execute the effects."""

    _calls: Calls
    exhausted_error = RetriesExhaustedError

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        self._attempts: Attempts | None = setup.attempts
        super().__init__(setup)

    def _step(self, input_: Any) -> None:
        if self._state.phase is m.CallPhase.DONE:
            return  # the end is final; later inputs are ignored
        if isinstance(input_, _OF_CONNECTIONS) and self._state.phase is not m.CallPhase.WAITING:
            return  # the call no longer waits for a connection
        self._state, effects = self._machine.step(self._state, input_, self._calls.now(), self._calls)
        self._record()  # before the effects, because a blocking call makes a whole attempt in one of them
        for effect in effects:
            self._carry_out(effect)

    def _keep_no_requests(self) -> None:
        attempts = self._attempts
        if attempts is not None:
            attempts.committed()

    def _carry_out(self, effect: h.Effect) -> None:
        match effect:
            case m.Finish():
                self._finish(effect)
            case m.Begin():
                self._begin(effect)
            case m.Enqueue():
                self._calls.pending.add(self)
            case stepping.Emit(event):
                self._emit(event)
            case m.SeekAnother(status):
                self._calls.pending.pool.seek_another(self._connection, status)
            case m.FailAttempt(code):
                self._error = self._calls.no_connection(self._machine.method, code)
                self._connection = None
                self._end_span(code)

    def _begin(self, effect: m.Begin) -> None:
        """Make an attempt, if there is a connection."""
        assert self._attempts is not None, "a finished call must not start an attempt"
        entry = self._attempts.enter(self._avoided)
        if entry is None:
            self._inputs.append(self._not_connected())
            return
        if self._spans is not None:
            self._begin_span()
        self._attempt_on(entry, self._attempts, effect)

    def _not_connected(self) -> h.Input:
        return self._calls.pending.not_connected(waited=self._state.waited)

    @abstractmethod
    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        """Make an attempt on this connection."""

    @abstractmethod
    def _finish(self, effect: m.Finish) -> None:
        """End the call."""

    def _status(self, error: object) -> Status:
        return status_of(error)


class BlockingCall(_SteppedCall):
    """A call that blocks its caller's thread until it ends."""

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._mailbox: SimpleQueue[h.Input | None] = new_queue()
        """The inputs from other threads; None only makes the caller's thread look at the clock."""
        self._wake: float | None = None
        self._result: object = None

    def run(self) -> Any:
        """Make the call and return its result; raise its error if it fails."""
        try:
            self._carry_out(self._first)
            self._drain()
            while self._state.phase is not m.CallPhase.DONE:
                super().feed(self._receive())
        finally:
            self._cancel_timer()
            if self._recorded is not m.CallPhase.DONE:  # interrupted
                self._calls.pending.discard(self)
                self._calls.goes_on(self)
            if self._spans is not None:
                self._end_span("CANCELLED")  # does nothing if the span has ended
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame, and so to the channel

    def feed(self, input_: h.Input) -> None:
        """Pass an input to the caller's thread, which steps the machine. Any thread or finalizer may call this."""
        self._mailbox.put(input_)

    def commit(self) -> None:
        """Commit the call to the current attempt, because its requests are too large to keep (RT-8). Thread-safe."""
        self.feed(m.Committed())
        self._keep_no_requests()

    def abandon(self) -> None:
        """End the call in the child of a fork, if a hook in the call's own thread has forked."""
        self.feed(m.CancelRequested())

    def _has_outcome(self) -> bool:
        return False  # until `run` returns it

    def _break_off(self, error: Exception) -> None:
        self._error = error

    def _receive(self) -> h.Input:
        """Sleep until there is an input, or until the timer is due."""
        longest = longest_sleep()
        while True:
            left = longest if self._wake is None else self._wake - self._calls.now()
            with contextlib.suppress(Empty):
                received = self._calls.conductor.take(self._mailbox, min(max(0.0, left), longest))
                if received is not None:
                    return received
            if self._wake is not None and self._calls.now() >= self._wake:
                self._wake = None
                return m.CallTimerFired()

    def _carry_out(self, effect: h.Effect) -> None:
        match effect:
            case stepping.ArmTimer(at):
                self._wake = at
                self._cancel_timer()
                self._timer = self._calls.nudge_at(at, lambda: self._mailbox.put(None))
            case stepping.CancelTimer():
                self._wake = None
                self._cancel_timer()
            case m.CallHook():
                failed, began = self._failed_call(effect), self._state.attempt_began
                self._inputs.append(m.HookDone(self._calls.ask(effect.hook, failed, began, self._context)))
            case m.FailSoon():
                self._inputs.append(self._calls.pending.no_connection())
            case stepping.AbandonAttempt():
                pass  # no attempt is running while its caller is here
            case _:
                super()._carry_out(effect)

    def _not_connected(self) -> h.Input:
        if not self._calls.conductor.is_here():
            return super()._not_connected()
        self._error = self._calls.pending.cannot_wait()  # TH-6: a finalizer's call, which would wait for itself
        return m.AttemptBroken()

    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        self._error = None
        connection, token, _ = entry
        self._connection = connection
        try:
            self._result = attempts.make(entry, effect.seconds, effect.metadata)
        except grpc.RpcError as error:
            self._failed_with(error, connection, token)
        except Exception as error:  # noqa: BLE001 - a closed channel or wrong metadata
            self._error = error
            self._end_span("INTERNAL")
            self._inputs.append(m.AttemptBroken())
        else:
            connection.served = True
            self._end_span("OK")
            self._inputs.append(_BEGUN if self._machine.handed_over else _OK)
        finally:
            connection.ended(token)

    def _failed_with(self, error: Any, connection: CoreConnection, token: object) -> None:
        self._error = error
        self._end_span(error.code().name)
        input_ = m.Begun() if self._machine.handed_over else self._failure(error)
        connection.failed(error.code(), token, error.details())
        while not self._mailbox.empty():  # inputs received in the meantime, such as a commit
            given_meanwhile = self._mailbox.get()
            if given_meanwhile is not None:
                self._inputs.append(given_meanwhile)
        self._inputs.append(input_)

    def _finish(self, effect: m.Finish) -> None:
        if effect.ending is m.Ending.EXHAUSTED:
            self._error = self._exhausted(effect)
        elif effect.ending is m.Ending.TIMED_OUT:
            self._error = InactiveRpcError(call_state(*self._timed_out()[:5]))
        elif effect.ending is m.Ending.CANCELLED:  # by closing the channel, as nothing else cancels it
            self._error = InactiveRpcError(call_state(grpc.StatusCode.CANCELLED, CLOSED_DETAILS, (), ()))


class FutureCall(_SteppedCall):
    """A call that runs in the background; each thread that notifies it also steps its machine.

    Attributes:
        state: grpcio's state of the whole call; guarded by the condition that it contains.
        attempt: the attempt on a connection, or the last one; None while the call waits.
        error: the error of a failed call; None if the attempt itself reports the error.
    """

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self.state = call_state()
        self.attempt: Any = None
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

    def _carry_out(self, effect: h.Effect) -> None:
        match effect:
            case stepping.ArmTimer(at):
                self._cancel_timer()
                self._timer = self._calls.wake_at(at, lambda: self.feed(m.CallTimerFired()))
            case stepping.CancelTimer():
                self._cancel_timer()
            case m.CallHook():
                failed = self._failed_call(effect)  # now: the call may end at its deadline before the hook begins
                began, calls = self._state.attempt_began, self._calls
                calls.start(effect.hook, failed, began, self._context, self._hook_done)
            case m.FailSoon():
                self._calls.conductor.post(lambda: self.feed(self._calls.pending.no_connection()))
            case stepping.AbandonAttempt():
                if self.attempt is not None:
                    self._calls.conductor.post(self.attempt.cancel)
            case _:
                if isinstance(effect, m.FailAttempt):
                    self.attempt = None
                super()._carry_out(effect)

    # Attempts.

    def _begin(self, effect: m.Begin) -> None:
        self.attempt = None
        super()._begin(effect)

    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        connection, token, _ = entry
        try:
            attempt = self._context.run(attempts.make, entry, effect.seconds, effect.metadata)
        except Exception as error:  # noqa: BLE001 - a serializer, wrong metadata, or a closed channel
            connection.ended(token)
            self._error = self._broken = error
            self._end_span("INTERNAL")
            self._inputs.append(m.AttemptBroken())
            return
        except BaseException:  # KeyboardInterrupt
            connection.ended(token)
            raise
        self._error = None
        self._begun(attempt, entry)

    def _begun(self, attempt: BackgroundCall, entry: Entry) -> None:
        self._connection = entry[0]
        self.attempt = attempt
        if self._awaited:
            with self.state.condition:
                self.state.condition.notify_all()
        if self._machine.handed_over:
            self._inputs.append(_BEGUN)
        if not attempt.add_callback(lambda: self._attempt_ended(attempt, entry)):
            self._attempt_ended(attempt, entry)

    def _attempt_ended(self, attempt: object, entry: Entry) -> None:
        """Notify the machine that an attempt has ended. Called on grpcio's thread."""
        status = status_of(attempt)
        code = status.code
        input_: h.Input | None = None
        if not self._machine.handed_over:  # otherwise, nothing is left to decide
            succeeded = code is grpc.StatusCode.OK
            input_ = _OK if succeeded else self._failure(attempt)
        leave(entry[0], entry[1], code, status.details)
        with self._lock:
            if attempt is not self.attempt:
                return
            if self._settled:
                self._settle(attempt, status)
            elif input_ is not None:
                self._error = None if code is grpc.StatusCode.OK else attempt
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
        attempt = self.attempt
        if effect.ending is m.Ending.EXHAUSTED:
            self._settle(self._exhausted(effect))
        elif effect.ending is m.Ending.TIMED_OUT:
            self._settle(attempt, self._timed_out())
        elif effect.ending is m.Ending.CANCELLED:
            self._settle(None)
        elif attempt is None or effect.ending is m.Ending.BROKEN:
            self._settle(self._error)
        elif attempt.done():
            self._settle(attempt)

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
            elif isinstance(outcome, grpc.RpcError) and isinstance(outcome, grpc.Call):
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


def follow(call: Any, connection: CoreConnection, token: object) -> None:
    """Remove a call from its connection once it has ended."""
    # Keep no reference to the call itself, because grpcio cancels a call when nothing refers to it any more.
    state = call._state  # noqa: SLF001 - `code()` of a single-threaded one raises before its end

    def ended() -> None:
        leave(connection, token, state.code, state.details)

    if not call.add_callback(ended):
        ended()


def leave(connection: CoreConnection, token: object, code: grpc.StatusCode | None, details: str | bytes | None) -> None:
    """Remove a call that has ended with this status from its connection."""
    if code is grpc.StatusCode.OK:
        connection.served = True
        if (hear := connection.hear) is not None:
            hear()
    else:
        connection.failed(code, token, details)
    connection.ended(token)


def longest_sleep() -> float:
    """Return the longest time that this thread may sleep at once, in seconds."""
    is_main = threading.current_thread() is threading.main_thread()
    return _LONGEST_SLEEP_OF_MAIN if is_main else _LONGEST_SLEEP
