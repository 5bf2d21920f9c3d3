"""A call with no attempt yet, a current one, or several behind it: the threaded shells of `calls.machine`.

They execute the machine's effects and feed it inputs; all decisions are the machine's. There are two:

* a blocking call does everything in its caller's thread, and sleeps there. Other threads put their notifications into
  its mailbox, for example that there is a connection.
* a future or a response stream can be used by any thread at any time. Each thread that notifies it steps the machine,
  one at a time, and its timer is run by the conductor.

To its caller, the latter is one of grpcio's own rendezvous objects (`rendezvous.py`).
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import grpc

from grpc_backoff.calls import machine as m
from grpc_backoff.channel.call import BETWEEN, CallShell, Status
from grpc_backoff.record import NamedTuple, record
from grpc_backoff.sync.calls import Calls
from grpc_backoff.sync.conductor import Timer, take
from grpc_backoff.sync.core import CoreConnection
from grpc_backoff.sync.errors import RetriesExhaustedError
from grpc_backoff.sync.grpcio import CANCELLED_DETAILS, CLOSED_DETAILS, InactiveRpcError, call_state, status_of

__all__ = ["Attempts", "BlockingCall", "Entry", "FutureCall", "Terms"]

_LOG = logging.getLogger(__name__)

_LONGEST_SLEEP = 3600.0
"""The longest single wait, in seconds: the system has a limit far above, and a deadline may exceed it."""
_LONGEST_SLEEP_OF_MAIN = 0.25
"""The longest in the main thread: a signal that arrives just as the thread falls asleep does not wake it (TH-6)."""
_OF_CONNECTIONS = (m.ConnectionReady, m.Missed, m.NoConnection)


Entry = tuple[CoreConnection, object, Any]
"""A connection that a call has entered, the token that keeps it open until the call leaves, and grpc's own
multicallable on it. A plain tuple: every call on a READY channel creates one."""


class Attempts(Protocol):
    """Makes the attempts of one call."""

    def enter(self) -> Entry | None:
        """Enter the current connection; None if there is none."""
        ...

    def make(self, entry: Entry, seconds: float | None, instead: m.Metadata) -> Any:
        """Make an attempt, with metadata that replaces the caller's same keys.

        A blocking attempt returns its result, or raises. Any other returns grpcio's call object.
        """
        ...

    def committed(self) -> None:
        """Stop keeping requests: there will be no further attempt."""
        ...


@record
class Terms(NamedTuple):
    """The arguments that start a call.

    Attributes:
        calls: what the channel's calls share.
        machine: the rules for this call.
        attempts: makes its attempts.
        timeout: the caller's timeout for the whole call, in seconds (RT-7), or the time left of the call being served
            here.
        limit: the service config's timeout, which bounds the whole call too, but is not part of `time_remaining`.
        call_id: identifies the call in events and log lines; generated if None.
        request: the single request that the attempts send, if there is one: for hooks.
    """

    calls: Calls
    machine: m.CallMachine
    attempts: Attempts
    timeout: float | None
    limit: float | None
    call_id: str | None = None
    request: Any = None


class _Life(CallShell):
    """What both kinds share: the machine, and the execution of its effects."""

    _calls: Calls
    exhausted_error = RetriesExhaustedError

    def __init__(self, terms: Terms) -> None:
        calls, machine, attempts, timeout, limit, call_id, request = terms
        self._attempts: Attempts | None = attempts
        super().__init__(calls, machine, timeout, limit, call_id, request)

    def _step(self, given: m.Input) -> None:
        if self._state.phase is m.CallPhase.DONE:
            return  # the end is final; later inputs are ignored
        if isinstance(given, _OF_CONNECTIONS) and self._state.phase is not m.CallPhase.WAITING:
            return  # the wait that it was for is over
        before = self._state.phase
        self._state, effects = self._machine.step(self._state, given, self._calls.now(), self._calls)
        now = self._state.phase
        if before is m.CallPhase.WAITING is not now:
            self._calls.pending.discard(self)
        if before in BETWEEN and now not in BETWEEN:
            self._calls.goes_on(self)
        for effect in effects:
            self._carry_out(effect)
        if now in BETWEEN and before not in BETWEEN:
            self._calls.rests(self)

    @abstractmethod
    def _carry_out(self, effect: m.Effect) -> None: ...

    def _keep_no_requests(self) -> None:
        attempts = self._attempts
        if attempts is not None:
            attempts.committed()

    def _not_connected(self, code: str) -> None:
        self._error = self._calls.pending.error(grpc.StatusCode[code])
        self._connection = None
        self._end_span(code)

    def _status(self, error: Any) -> Status:
        return status_of(error)

    def _ask_hook(self, effect: m.CallHook) -> m.HookDone:
        failed = self._failed_call(effect)
        return m.HookDone(self._calls.hooks.ask(effect.hook, failed, self._state.attempt_began, self._context))


class BlockingCall(_Life):
    """A call whose caller waits for its end, in the caller's thread."""

    def __init__(self, terms: Terms) -> None:
        """Prepare the call without starting it."""
        super().__init__(terms)
        self._mailbox: SimpleQueue[m.Input] = SimpleQueue()
        self._wake: float | None = None
        self._result: Any = None

    def run(self) -> Any:
        """Make the call and return its result; raise the error of a failed call."""
        try:
            self._carry_out(self._first)
            while self._state.phase is not m.CallPhase.DONE:
                self._step(self._inputs.popleft() if self._inputs else self._receive())
        finally:
            self._calls.pending.discard(self)
            self._calls.goes_on(self)
            self._end_span("CANCELLED")  # unless it has ended
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame, and so to the channel

    def feed(self, given: m.Input) -> None:
        """Have the caller's thread step the machine; from any thread, and from finalizers: the queue is reentrant."""
        self._mailbox.put(given)

    def commit(self) -> None:
        """Commit the call to the current attempt: its requests are too large to keep (RT-8). From any thread."""
        self.feed(m.Committed())
        self._keep_no_requests()

    def _receive(self) -> m.Input:
        """Sleep until there is an input, or the timer is due."""
        longest = _longest_sleep()
        while True:
            left = longest if self._wake is None else self._wake - self._calls.now()
            try:
                return take(self._mailbox, min(max(0.0, left), longest))
            except Empty:
                if self._wake is not None and self._calls.now() >= self._wake:
                    self._wake = None
                    return m.CallTimerFired()

    def _carry_out(self, effect: m.Effect) -> None:  # noqa: C901 - one line for each effect
        match effect:
            case m.Finish():
                self._finish(effect)
            case m.Begin():
                self._begin(effect)
            case m.Enqueue():
                self._calls.pending.add(self)
            case m.ArmTimer(at):
                self._wake = at
            case m.CancelTimer():
                self._wake = None
            case m.Emit(event):
                self._emit(event)
            case m.CallHook():
                self._inputs.append(self._ask_hook(effect))
            case m.FailAttempt(code):
                self._not_connected(code)
            case m.FailSoon():
                self._inputs.append(self._calls.pending.no_connection())
            case m.AbandonAttempt():
                pass  # none is running while its caller is here

    def _begin(self, effect: m.Begin) -> None:
        assert self._attempts is not None, "a finished call starts no attempt"
        entry = self._attempts.enter()
        if entry is None and self._calls.conductor.is_here():  # TH-6: a finalizer's call, which would wait for itself
            self._error = self._calls.pending.cannot_wait()
            self._inputs.append(m.AttemptBroken())
            return
        if entry is None:
            self._inputs.append(self._calls.pending.not_connected())
            return
        self._begin_span()
        self._error = None
        connection, token, _ = entry
        self._connection = connection
        try:
            self._result = self._attempts.make(entry, effect.seconds, effect.metadata)
        except grpc.RpcError as error:
            self._failed_with(error, connection)
        except Exception as error:  # noqa: BLE001 - of a channel that was closed, of metadata that are none
            self._error = error
            self._end_span("INTERNAL")
            self._inputs.append(m.AttemptBroken())
        else:
            connection.served = True
            self._end_span("OK")
            self._inputs.append(m.Begun() if self._machine.handed_over else m.OkStatus(self._calls.observed))
        finally:
            connection.ended(token)

    def _failed_with(self, error: Any, connection: CoreConnection) -> None:
        self._error = error
        self._end_span(error.code().name)
        given = m.Begun() if self._machine.handed_over else self._failure(error)
        connection.failed(error.code())
        while not self._mailbox.empty():  # received in the meantime: for example, that the call is committed
            self._inputs.append(self._mailbox.get())
        self._inputs.append(given)

    def _finish(self, effect: m.Finish) -> None:
        if effect.ending is m.Ending.EXHAUSTED:
            self._error = self._exhausted(effect)
        elif effect.ending is m.Ending.CANCELLED:  # by the channel's close: nothing else cancels a blocking call
            self._error = InactiveRpcError(call_state(grpc.StatusCode.CANCELLED, CLOSED_DETAILS, (), ()))


class FutureCall(_Life):
    """A call that runs in the background: each thread that notifies it drives it on.

    Attributes:
        state: grpcio's state of the call as a whole; guarded by its condition.
        attempt: the attempt on a connection, or the last one; None while the call waits.
        error: the error of a failed call; None if the attempt itself reports it.
    """

    def __init__(self, terms: Terms) -> None:
        """Prepare the call without starting it."""
        super().__init__(terms)
        self.state = call_state()
        self.attempt: Any = None
        self.error: BaseException | None = None
        self._lock = threading.RLock()
        self._stepping = False
        self._timer: Timer | None = None
        self._settled = False
        self._quietly = False
        self._due: list[Callable[[], object]] = []
        self._broken: BaseException | None = None

    def start(self) -> None:
        """Start the first attempt, or wait for a connection; an error while starting the first attempt is raised."""
        self._drain(lambda: self._carry_out(self._first))
        if self._broken is not None:
            raise self._broken
        if self._due:
            self._calls.listeners.call(self._call_back)

    # Driving the machine.

    def feed(self, given: m.Input) -> None:
        """Step the machine; from any thread. Effects may produce further inputs, which wait for their turn."""
        self._inputs.append(given)
        self._drain()
        if self._due:
            self._calls.listeners.call(self._call_back)

    def _drain(self, begin: Callable[[], None] | None = None) -> None:
        with self._lock:
            if self._stepping:
                return
            self._stepping = True
            try:
                if begin is not None:
                    begin()
                while self._inputs:
                    self._step(self._inputs.popleft())
            finally:
                self._stepping = False

    def _carry_out(self, effect: m.Effect) -> None:  # noqa: C901 - one line for each effect
        match effect:
            case m.Finish():
                self._finish(effect)
            case m.Begin():
                self._begin(effect)
            case m.Enqueue():
                self._calls.pending.add(self)
            case m.ArmTimer(at):
                self._cancel_timer()
                self._timer = self._calls.conductor.call_at(at, lambda: self.feed(m.CallTimerFired()))
            case m.CancelTimer():
                self._cancel_timer()
            case m.Emit(event):
                self._emit(event)
            case m.CallHook():
                self._calls.listeners.call(lambda: self.feed(self._ask_hook(effect)))
            case m.FailAttempt(code):
                self.attempt = None
                self._not_connected(code)
            case m.FailSoon():
                self._calls.conductor.post(lambda: self.feed(self._calls.pending.no_connection()))
            case m.AbandonAttempt():
                if self.attempt is not None:
                    self._calls.conductor.post(self.attempt.cancel)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Attempts.

    def _begin(self, effect: m.Begin) -> None:
        assert self._attempts is not None, "a finished call starts no attempt"
        entry = self._attempts.enter()
        self.attempt = None
        if entry is None:
            self._inputs.append(self._calls.pending.not_connected())
            return
        self._begin_span()
        connection, token, _ = entry
        try:
            attempt = self._context.run(self._attempts.make, entry, effect.seconds, effect.metadata)
        except Exception as error:  # noqa: BLE001 - of a serializer, of metadata that are none, of a closed channel
            connection.ended(token)
            self._error = self._broken = error
            self._end_span("INTERNAL")
            self._inputs.append(m.AttemptBroken())
            return
        self._error, self._connection = None, connection
        with self.state.condition:
            self.attempt = attempt
            self.state.condition.notify_all()
        if self._machine.handed_over:
            self._inputs.append(m.Begun())
        if not attempt.add_callback(lambda: self._attempt_ended(attempt, entry)):
            self._attempt_ended(attempt, entry)

    def _attempt_ended(self, attempt: Any, entry: Entry) -> None:
        """Notify the machine at once that an attempt has ended; on grpcio's thread."""
        status = status_of(attempt)
        connection, token, _ = entry
        code = status.code
        if code is grpc.StatusCode.OK:
            connection.served = True
            given: m.Input = m.OkStatus(self._calls.observed)
        else:
            given = self._failure(attempt)
            connection.failed(code)
        connection.ended(token)
        with self._lock:
            if attempt is not self.attempt:
                return
            if self._settled:
                self._settle(attempt)
            else:
                self._error = None if code is grpc.StatusCode.OK else attempt
                self._end_span(code.name)
                # It may have been cancelled from elsewhere, for example by closing the channel.
                self._inputs.append(m.CancelRequested() if status.cancelled else given)
                self._drain()
        if not self._stepping:
            self._call_back()

    # The end.

    def _finish(self, effect: m.Finish) -> None:
        self._settled = True
        self._attempts = None  # releases the channel
        self._cancel_timer()
        attempt = self.attempt
        if effect.ending is m.Ending.EXHAUSTED:
            self._settle(self._exhausted(effect))
        elif effect.ending is m.Ending.CANCELLED:
            self._settle(None)
        elif attempt is None or effect.ending is m.Ending.BROKEN:
            self._settle(self._error)
        elif attempt.done():
            self._settle(attempt)

    def _settle(self, outcome: Any) -> None:
        """Record how the call has ended, and run its callbacks."""
        state = self.state
        with state.condition:
            callbacks, state.callbacks = state.callbacks or [], None
            if outcome is None:
                state.cancelled = True
                self._write(
                    grpc.StatusCode.CANCELLED, CANCELLED_DETAILS if self._quietly else CLOSED_DETAILS, (), (), ""
                )
            elif isinstance(outcome, grpc.RpcError):
                ended = status_of(outcome)
                self.error = None if outcome is self.attempt else outcome
                state.cancelled = state.cancelled or ended.cancelled
                if state.code is None:
                    state.response = ended.response
                self._write(*ended[:5])
            else:
                self.error = outcome
                self._write(grpc.StatusCode.INTERNAL, repr(outcome), (), (), "")
            state.condition.notify_all()
        self._end_span("CANCELLED")  # unless it has ended
        self._due += callbacks

    def _write(self, code: Any, details: Any, initial: Any, trailing: Any, debug: Any) -> None:
        state = self.state
        if state.code is None:
            state.code, state.details, state.debug_error_string = code, details, debug
        state.initial_metadata = state.initial_metadata or initial or ()
        state.trailing_metadata = state.trailing_metadata or trailing or ()
        if state.debug_error_string is None:
            state.debug_error_string = debug or ""

    def _call_back(self) -> None:
        """Run the program's callbacks: on grpcio's thread or a listeners' thread, and without a lock."""
        due, self._due = self._due, []
        for callback in due:
            try:
                callback()
            except Exception:  # noqa: BLE001, RUF100 - it is the program's
                _LOG.exception("a callback of a call raised")

    # The caller's side.

    def cancel(self, _code: Any, _details: Any) -> None:
        """Cancel the call; grpcio's rendezvous object calls this under the condition of `state`."""
        self._quietly = True
        self._calls.conductor.post(self._cancel)

    def _cancel(self) -> None:
        self.feed(m.CancelRequested())
        # After that: an attempt that was being made is known now; the machine no longer tracks one that was handed
        # over.
        attempt = self.attempt
        if attempt is not None:
            attempt.cancel()

    def commit(self) -> None:
        """Commit the call to the current attempt: part of its response has reached the caller (RT-8)."""
        if not self._state.committed and not self._settled:
            self.feed(m.Committed())
            self._keep_no_requests()

    def time_left(self) -> float | None:
        """Return the seconds until the deadline that `time_remaining` reports; None without one."""
        return None if self._shown_end is None else self._shown_end - self._calls.now()

    def current(self) -> Any:
        """Wait until the attempt is on a connection, and return it; None if the call has ended without one."""
        with self.state.condition:
            self._wait_for(lambda: self.attempt is not None or self.state.code is not None)
            return self.attempt

    def follows(self, attempt: Any) -> bool:
        """Wait until it is known whether another attempt follows one that has ended, and return whether it does."""
        with self.state.condition:
            self._wait_for(lambda: self.attempt is not attempt or self.state.code is not None)
            return self.state.code is None

    def _wait_for(self, holds: Callable[[], bool]) -> None:
        longest = _longest_sleep()
        while not holds():
            self.state.condition.wait(longest)


def _longest_sleep() -> float:
    """Return how many seconds this thread may sleep at a time."""
    is_main = threading.current_thread() is threading.main_thread()
    return _LONGEST_SLEEP_OF_MAIN if is_main else _LONGEST_SLEEP
