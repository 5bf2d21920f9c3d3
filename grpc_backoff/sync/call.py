"""Threaded calls that may wait for a connection or be repeated: the threaded shell of `call_machine`.

A call executes its machine's effects and feeds the machine inputs; the machine makes all decisions. There are two
shells: a blocking call does everything in its caller's thread, and sleeps there. Other threads put notifications, for
example that there is a connection, into its mailbox. `future_call.py` has the other shell.
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
from weakref import finalize, ref

import grpc

from grpc_backoff.base import stepping
from grpc_backoff.base.threads import new_queue
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup, CallShell
from grpc_backoff.engine.method import Arguments
from grpc_backoff.grpcio.private import Status
from grpc_backoff.grpcio.sync_private import (
    CLOSED_DETAILS,
    InactiveRpcError,
    SingleThreadedRendezvous,
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
BEGUN, OK = m.Begun(), m.OkStatus()
_OF_CONNECTIONS = (m.ConnectionReady, m.NoConnection)
_WAITING, _DONE = m.CallPhase.WAITING, m.CallPhase.DONE  # up to Python 3.11, access to a member is slow
OK_CODE = grpc.StatusCode.OK

Entry = tuple[CoreConnection, object, Any]
"""A connection that a call has entered, the token that keeps it open until the call leaves, and grpc's own
multicallable on it. This is a plain tuple, because every call on a READY channel creates one."""


class Attempts:
    """Makes the attempts of one call, each of which blocks its thread.

    Attributes:
        enter: enters a connection and returns it; None if there is none. Its argument has the connections that it
            enters only if no other serves; None if the call has just been made.
    """

    __slots__ = ("_arguments", "_replay", "_request", "_style", "enter")

    def __init__(
        self,
        enter: Callable[[Container[object] | None], Entry | None],
        style: str,
        request: Any,
        arguments: Arguments,
        replay: Replay | None = None,
    ) -> None:
        """Take a call's arguments; `style` is the name of a method of grpc's multicallable."""
        self.enter = enter
        self._style = style
        self._request = request
        self._arguments = arguments
        self._replay = replay

    def make(self, entry: Entry, seconds: float | None, instead: m.Metadata) -> Any:
        """Make an attempt with a timeout in seconds; return its result, or raise its error.

        `instead` replaces the caller's metadata with the same keys.
        """
        connection, replay = entry[0], self._replay
        request = self._request if replay is None else replay.attempt()
        try:
            result = self._call(entry, request, seconds, instead)
        except ValueError as error:  # the channel was closed
            raise connection.refusal(error) from None
        finally:
            if replay is not None:
                replay.end(request)
        connection.served = True
        return result

    def _call(self, entry: Entry, request: object, seconds: float | None, instead: m.Metadata) -> Any:
        """Call grpc's own method.

        The call is fail-fast in the core. If the connection breaks just as a wait-for-ready call is assigned to it, the
        core would keep the call waiting for the core's own next attempt, long after this channel is READY again.
        """
        _, metadata, credentials, _, compression = self._arguments
        return getattr(entry[2], self._style)(
            request,
            timeout=seconds,  # by keyword, because tracers that wrap grpc's methods look for keywords
            metadata=m.replaced(metadata, instead) if instead else metadata,
            credentials=credentials,
            wait_for_ready=False,
            compression=compression,
        )

    def committed(self) -> None:
        """Stop keeping requests, because there will be no further attempt."""
        if self._replay is not None:
            self._replay.release()


class BackgroundAttempts(Attempts):
    """Makes attempts that run in the background: futures, and streams of responses."""

    __slots__ = ()

    def make(self, entry: Entry, seconds: float | None, instead: m.Metadata) -> BackgroundCall:
        """Make an attempt as `Attempts.make` does; return grpcio's call object."""
        connection, replay = entry[0], self._replay
        request = self._request if replay is None else replay.attempt()
        connection.streamed = True
        try:
            call: BackgroundCall = self._call(entry, request, seconds, instead)
        except ValueError as error:  # the channel was closed
            refusal = connection.refusal(error)
            if refusal is error:
                raise
            call = failed_call(refusal)
        guard_call(call)
        if replay is not None and not call.add_callback(partial(replay.end, request)):
            replay.end(request)
        return call


class LoneAttempts(BackgroundAttempts):
    """Makes the attempts of a stream that is handed over as soon as one has begun, and stays on its connection."""

    __slots__ = ()

    def make(self, entry: Entry, seconds: float | None, instead: m.Metadata) -> BackgroundCall:
        """Make an attempt as `BackgroundAttempts.make` does, for which its connection has another token."""
        connection, call, token = entry[0], super().make(entry, seconds, instead), object()
        connection.calls.add(token)
        if connection.room is not None:
            connection.room.add(token)
        follow(call, connection, token)
        return call


class SteppedCall(CallShell):
    """The base class of blocking calls and futures: it steps the machine; subclasses execute the effects."""

    _calls: Calls
    exhausted_error = RetriesExhaustedError
    attempt: Any = None

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        self._attempts: Attempts | None = setup.attempts
        super().__init__(setup)

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

    def _keep_no_requests(self) -> None:
        attempts = self._attempts
        if attempts is not None:
            attempts.committed()

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
            entry[0].ended(entry[1])
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
        connection, token, _ = entry
        self._connection = connection
        try:
            self._result = attempts.make(entry, effect.seconds, effect.metadata)
        except grpc.RpcError as error:
            self._failed_with(error, connection, token)
        except Exception as error:  # noqa: BLE001 - see `_not_made`
            self._not_made(error)
        else:
            self._end_span("OK")
            self._inputs.append(BEGUN if self._machine.handed_over else OK)
        finally:
            connection.ended(token)

    def _failed_with(self, error: Any, connection: CoreConnection, token: object) -> None:
        self._error = error
        self._end_span(error.code().name)
        input_ = BEGUN if self._machine.handed_over else self._failure(error)
        connection.failed(error.code(), token, error.details())
        while not self._mailbox.empty():  # inputs received in the meantime, such as a commit
            given_meanwhile = self._mailbox.get()
            if given_meanwhile is not None:
                self._inputs.append(given_meanwhile)
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


def follow(call: Any, connection: CoreConnection, token: object) -> None:
    """Remove a call from its connection once it has ended."""
    # Keep no reference to the call itself, because grpcio cancels a call when nothing refers to it any more.
    state = call._state  # noqa: SLF001 - `code()` of a single-threaded one raises before its end

    def ended() -> None:
        leave(connection, token, state.code, state.details)

    if not call.add_callback(ended):
        ended()
    elif type(call) is SingleThreadedRendezvous:  # its callbacks run only if it is read to its end
        finalize(call, _dropped, ref(connection), token).atexit = False


def _dropped(held: ref[CoreConnection], token: object) -> None:
    """Remove a call that was dropped before its end. Nothing here leads to the call, or it would never be dropped."""
    connection = held()
    if connection is not None and token in connection.calls:
        leave(connection, token, None, "")


def leave(connection: CoreConnection, token: object, code: grpc.StatusCode | None, details: str | bytes | None) -> None:
    """Remove a call that has ended with this status from its connection."""
    if code is OK_CODE:
        connection.served = True
        if (hear := connection.hear) is not None:
            hear()
    else:
        connection.failed(code, token, details)
    connection.ended(token)


def is_main() -> bool:
    """Return whether the calling thread is the main one."""
    return threading.current_thread() is threading.main_thread()


def longest_sleep() -> float:
    """Return the longest time that this thread may sleep at once, in seconds."""
    return _LONGEST_SLEEP_OF_MAIN if is_main() else _LONGEST_SLEEP
