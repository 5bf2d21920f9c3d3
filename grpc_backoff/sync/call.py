"""Threaded calls that may wait for a connection or be repeated: the threaded shell of `call_machine`.

A call executes its machine's effects and feeds the machine inputs; the machine makes all decisions. The base class has
two kinds: calls that block their callers, and those that run in the background (`future_call.py`). A call that blocks
does everything in its caller's thread, and sleeps there. Other threads put notifications, for example that there is a
connection, into its mailbox. What calls grpcio's own methods is in `attempts.py`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.base import stepping
from grpc_backoff.base.threads import longest_sleep, new_queue
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup, CallShell
from grpc_backoff.grpcio.private import Status
from grpc_backoff.grpcio.sync_private import (
    CLOSED_DETAILS,
    InactiveRpcError,
    call_state,
    status_of,
)
from grpc_backoff.sync.attempts import Attempts
from grpc_backoff.sync.call_errors import RetriesExhaustedError
from grpc_backoff.sync.core_connector import Entry
from grpc_backoff.sync.environment import CallEnvironment

if TYPE_CHECKING:
    from grpc_backoff.decide.calls import hedging_machine as h
    from grpc_backoff.grpcio.shapes import BackgroundCall

BEGUN, OK = m.Begun(), m.OkStatus()
_OF_CONNECTIONS = (m.ConnectionReady, m.NoConnection)
_WAITING, _DONE = m.CallPhase.WAITING, m.CallPhase.DONE  # up to Python 3.11, access to a member is slow
OK_CODE = grpc.StatusCode.OK


class SteppedCall(CallShell):
    """The base class of blocking calls and futures: it steps the machine; subclasses execute the effects."""

    _calls: CallEnvironment
    exhausted_error = RetriesExhaustedError
    attempt: Any = None

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._attempts: Attempts | None = setup.attempts
        if setup.attempts.replay is not None:
            setup.attempts.replay.overfull = self.commit

    def _step(self, input_: Any) -> None:
        phase = self._state.phase
        if phase is _DONE:
            return  # the end is final; later inputs are ignored
        if phase is not _WAITING and isinstance(input_, _OF_CONNECTIONS):
            return  # the call no longer waits for a connection
        self._state, effects = self._machine.step(self._state, input_, self._calls.now(), self._calls)
        if self._state.phase is not phase:
            self._record()  # before the effects, because a blocking call makes a whole attempt in one of them
        for effect in effects:
            self._carry_out(effect)

    @abstractmethod
    def commit(self) -> None:
        """Commit the call to the current attempt (RT-8). Thread-safe."""

    def _keep_no_requests(self) -> None:
        attempts = self._attempts  # None once the call has ended, in another thread
        if attempts is not None and attempts.replay is not None:
            attempts.replay.release()

    def _carry_out(self, effect: h.Effect) -> None:  # noqa: C901 - one branch for each effect
        match effect:  # the effects of a call that waits for a connection come first, because the order costs time
            case m.Begin():
                self._begin(effect)
            case stepping.CancelTimer():
                self._cancel_timer()
            case m.Finish():
                self._finish(effect)
            case stepping.ArmTimer(at):
                self._arm(at)
            case m.Enqueue():
                self._calls.pending.add(self)
            case stepping.Emit(event):
                self._emit(event)
            case m.CallHook():
                self._run_hook(effect)
            case m.SeekAnother(status):
                self._calls.pending.pool.seek_another(self._connection, status)
            case m.FailAttempt(code):
                self._error = self._calls.no_connection(self._machine.method, code)
                self.attempt = self._connection = None
                self._end_span(code)
            case m.FailSoon():
                self._fail_soon()
            case stepping.AbandonAttempt():
                self._abandon_attempt()

    @abstractmethod
    def _arm(self, at: float) -> None:
        """Arm the machine's timer."""

    @abstractmethod
    def _run_hook(self, effect: m.CallHook) -> None:
        """Run a hook, and tell the machine when it is done."""

    @abstractmethod
    def _fail_soon(self) -> None:
        """Tell the machine that there is no connection, once the caller has the call object, if it gets one."""

    @abstractmethod
    def _abandon_attempt(self) -> None:
        """Cancel the attempt, if one is running."""

    def _begin(self, effect: m.Begin) -> None:
        """Make an attempt, if there is a connection."""
        assert self._attempts is not None, "a finished call must not start an attempt"
        if self._spans is not None:
            self._begin_span()  # first: it includes the wait for a connection
        entry = self._attempts.enter(self._avoided)
        if entry is None:
            self._inputs.append(self._not_connected())
            return
        self._attempt_on(entry, self._attempts, effect)

    def _not_connected(self) -> h.Input:
        return self._calls.pending.not_connected(waited=self._state.waited)

    @abstractmethod
    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        """Make an attempt on this connection."""

    def _made(self, make: Callable[..., BackgroundCall], entry: Entry, effect: m.Begin) -> BackgroundCall | None:
        """Make an attempt in the background, by a method of `Attempts`; None if that fails, which ends the call."""
        try:
            return make(entry, effect.seconds, effect.metadata)
        except BaseException as error:
            entry.leave()
            if not isinstance(error, Exception):  # KeyboardInterrupt
                raise
            self._not_made(error)
            return None

    def _not_made(self, error: Exception) -> None:
        """Tell the machine of a serializer that raises, of wrong metadata, or of a closed channel."""
        self._error = error
        self._end_span("INTERNAL")
        self._inputs.append(m.AttemptBroken())

    @abstractmethod
    def _finish(self, effect: m.Finish) -> None:
        """End the call."""

    def _status(self, error: object) -> Status:
        return status_of(error)


class BlockingCall(SteppedCall):
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
            while self._state.phase is not _DONE:
                super().feed(self._receive())
        finally:
            self._cancel_timer()
            if self._recorded is not _DONE:  # interrupted
                self._calls.pending.discard(self)
                self._calls.goes_on(self)
            if self._spans is not None:
                self._end_span("CANCELLED")  # does nothing if the span has ended
        self._attempts = self._request = None  # releases the channel: others may keep the call for a while (CB-10)
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

    def _arm(self, at: float) -> None:
        self._cancel_timer()
        self._wake = at
        self._timer = self._calls.nudge_at(at, lambda: self._mailbox.put(None))

    def _cancel_timer(self) -> None:
        self._wake = None
        if self._timer is not None:  # only on a clock that the program supplied
            super()._cancel_timer()

    def _run_hook(self, effect: m.CallHook) -> None:
        failed, began = self._failed_call(effect), self._state.attempt_began
        self._inputs.append(m.HookDone(self._calls.ask(effect.hook, failed, began, self._context)))

    def _fail_soon(self) -> None:
        self._inputs.append(self._calls.pending.no_connection())

    def _abandon_attempt(self) -> None:
        """Do nothing: no attempt is running while its caller is here."""

    def _not_connected(self) -> h.Input:
        if not self._calls.conductor.is_here():
            return super()._not_connected()
        self._error = self._calls.pending.cannot_wait()  # TH-6: a finalizer's call, which would wait for itself
        return m.AttemptBroken()

    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        self._error = None
        self._connection = entry.connection
        try:
            self._result = attempts.make(entry, effect.seconds, effect.metadata)
        except grpc.RpcError as error:
            self._failed_with(error, entry)
        except Exception as error:  # noqa: BLE001 - see `_not_made`
            self._not_made(error)
        else:
            if self._spans is not None:
                self._end_span("OK")
            self._inputs.append(BEGUN if self._machine.handed_over else OK)
        finally:
            entry.leave()

    def _failed_with(self, error: Any, entry: Entry) -> None:
        self._error = error
        self._end_span(error.code().name)
        input_ = BEGUN if self._machine.handed_over else self._failure(error)
        entry.failed(error)
        while not self._mailbox.empty():  # inputs received in the meantime, such as a commit
            received = self._mailbox.get()
            if received is not None:
                self._inputs.append(received)
        self._inputs.append(input_)

    def _finish(self, effect: m.Finish) -> None:
        if effect is m.AS_ATTEMPT:  # as most calls end; its result or error is known
            return
        if effect.ending is m.Ending.EXHAUSTED:
            self._error = self._exhausted(effect)
        elif effect.ending is m.Ending.TIMED_OUT:
            self._error = InactiveRpcError(call_state(*self._timed_out()[:5]))
        elif effect.ending is m.Ending.CANCELLED:  # by closing the channel, as nothing else cancels it
            self._error = InactiveRpcError(call_state(grpc.StatusCode.CANCELLED, CLOSED_DETAILS, (), ()))
