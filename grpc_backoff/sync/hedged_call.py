"""Hedged calls that block their callers.

Such a call needs no other thread unless it sends a second copy, but the main thread's calls are made by a worker
(`workers.py`).
"""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls import hedging_machine as h
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.engine.losers import Copies, Losers, wait_for_next_copy
from grpc_backoff.grpcio.private import Status
from grpc_backoff.grpcio.sync_private import Events, error_of, failure_of, response_of, without_thread
from grpc_backoff.sync import workers
from grpc_backoff.sync.attempts import Attempts
from grpc_backoff.sync.call import OK_CODE, BlockingCall, SteppedCall
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.core_connector import CoreConnection, Entry

if TYPE_CHECKING:
    from grpc_backoff.grpcio.shapes import BackgroundCall


class Hedged(SteppedCall):
    """What hedged calls have in common."""

    _losers: Losers[BackgroundCall] | None = None
    _copy_connections: tuple[CoreConnection, ...] = ()

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._copies: Copies[BackgroundCall] = {}

    @property
    def _avoided(self) -> tuple[CoreConnection, ...]:
        return self._copy_connections  # of all copies, so that each goes to another server if there are several

    def _begin(self, effect: m.Begin) -> None:
        if self._copy_connections and self._is_held():
            return
        super()._begin(effect)
        if effect.wake is not None and self._copy_connections:
            self._arm(effect.wake)

    def _is_held(self) -> bool:
        """Return whether the copy that is about to begin must wait (HG-11), and tell the machine."""
        live = self._state.copies.live
        wait = wait_for_next_copy(self._calls, self._copy_connections, self._next_connection) if live else 0.0
        if wait:
            self._inputs.append(h.CopyHeld(wait))
        return wait > 0

    def _next_connection(self) -> CoreConnection | None:
        entry = None if self._attempts is None else self._attempts.enter(self._avoided)
        if entry is None:
            return None
        entry.leave()
        return entry.connection

    def _sent(self, attempt: BackgroundCall, connection: CoreConnection) -> int:
        """Record a copy that is on a connection, and tell the machine; return its number."""
        copies: h.Copies = self._state.copies
        self._copy_connections += (connection,)
        self._copies[copies.sent] = attempt, connection
        if copies.starting:
            self._inputs.append(h.CopyBegun())
        return copies.sent

    def _end_copy(self, attempt: BackgroundCall, entry: Entry) -> Status | None:
        """Let a copy that has ended leave its connection; return its status, or None if that is OK."""
        status = failure_of(attempt)
        if status is None:
            entry.ended(OK_CODE, None)
        else:
            entry.ended(status.code, status.details)
            self._calls.note(status)
        return status

    def _outcome(
        self, number: int, attempt: BackgroundCall, connection: CoreConnection, status: Status | None
    ) -> h.Input:
        """Return the machine's input for a copy that has ended."""
        if status is None:
            return h.CopyAnswered(number)
        if status.cancelled:
            return m.CancelRequested()  # for example, because the channel was closed
        self._connection = connection
        return h.CopyFailed(number, self._failure(attempt))

    def _carry_out(self, effect: h.Effect) -> None:
        if isinstance(effect, h.Choose):
            self._choose(effect.copy, effect.at)
            self._finish(effect.end)
        else:
            super()._carry_out(effect)

    @abstractmethod
    def _choose(self, number: int | None, at: float | None) -> None:
        """Go on as this copy, or as none, and leave the others until the time `at`; see `Choose`."""

    def _leave_losers(self, at: float | None) -> None:
        """Leave all copies that are not chosen to end by themselves until the time `at`."""
        copies, self._copies, self._copy_connections = self._copies, {}, ()
        if copies:
            self._losers = Losers(self._calls, copies)
            self._calls.conductor.post(partial(self._losers.leave, at))


class _OwnCopy:
    """The copy that the thread of a blocking call serves.

    If it loses, the conductor serves it from then on, even if its channel is closed, until it has ended.

    Attributes:
        events: its events.
        ended: called once at its end; returns the machine's input.
    """

    def __init__(self, attempt: BackgroundCall, ended: Callable[[], h.Input], conductor: Conductor) -> None:
        self.events = Events(attempt)
        self.ended = ended
        self._conductor = conductor

    def pass_on(self) -> None:
        """Let the conductor serve it. Called on the conductor."""
        self._conductor.join(self)
        self._conductor.poll(self)

    def look(self) -> None:
        """See whether it has ended. Called on the conductor."""
        if self.events.look():
            self._conductor.stop_polling(self)
            self._conductor.leave(self)
            self.ended()


class HedgedBlockingCall(Hedged, BlockingCall):
    """A call that blocks its caller's thread, which also serves one copy. grpcio's thread serves the others."""

    _own: _OwnCopy | None = None
    """The copy that the caller's thread serves, as long as that runs."""

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._lock = threading.Lock()
        """Held while a thread makes the input for the failure of a copy."""

    def run(self) -> Any:
        """Make the call; return the response and grpcio's call, or raise the call's error."""
        try:
            return super().run()
        finally:
            interrupted = self._state.phase is not m.CallPhase.DONE  # for example, by KeyboardInterrupt
            own, self._own = self._own, None
            if interrupted:
                self._leave_losers(None)
            if own is not None and interrupted:
                own.events.drop()
                own.ended()
            elif own is not None:
                self._calls.conductor.post(own.pass_on)

    def run_for_main(self) -> Any:
        """Make the call as `run` does, but in another thread, because this is the main one (TH-6)."""

        def end() -> None:  # by the conductor, because the next signal may be as sudden
            self._calls.conductor.post(lambda: self.feed(m.CancelRequested()))

        return workers.run(partial(self._context.run, self.run), end)

    def feed(self, input_: h.Input | None) -> None:
        """Pass an input to the call's thread, also while it serves a copy. None makes it look at the clock."""
        self._mailbox.put(input_)
        own = self._own
        if own is not None:
            own.events.rouse()

    def _receive(self) -> h.Input:
        input_ = self._serve()
        if isinstance(input_, h.CopyFailed):
            self._connection = self._copy_connections[input_.copy - 1]  # another copy may have failed since
        return input_

    def _serve(self) -> h.Input:
        while (own := self._own) is not None:
            if self._mailbox.empty() and own.events.handle():
                self._own = None
                return own.ended()
            with contextlib.suppress(Empty):
                received = self._mailbox.get_nowait()
                if received is not None:
                    return received
            if self._wake is not None and self._calls.now() >= self._wake:
                self._wake = None
                return m.CallTimerFired()
        return super()._receive()

    def _arm(self, at: float) -> None:
        """Let the conductor rouse a thread that serves a copy, because it sleeps in grpcio."""
        if self._own is None:
            super()._arm(at)
            return
        self._cancel_timer()
        self._wake = at
        self._timer = self._calls.call_at(at, partial(self.feed, None))

    def _attempt_on(self, entry: Entry, attempts: Attempts, effect: m.Begin) -> None:
        serves = self._own is None
        if serves:
            entry.method = without_thread(entry.method)
        attempt = self._made(attempts.make, entry, effect)
        if attempt is None:
            return
        ended = partial(self._ended, self._state.copies.sent, attempt, entry)
        if serves:
            self._own = _OwnCopy(attempt, ended, self._calls.conductor)
        self._sent(attempt, entry.connection)
        if not serves and not attempt.add_callback(lambda: self.feed(ended())):
            self.feed(ended())

    def _ended(self, number: int, attempt: BackgroundCall, entry: Entry) -> h.Input:
        """Return the machine's input for a copy that has just ended. Called on the thread that serves it."""
        status = self._end_copy(attempt, entry)
        if self._losers is not None:
            self._losers.ended(number)
        if status is None:
            return h.CopyAnswered(number)
        with self._lock:
            return self._outcome(number, attempt, entry.connection, status)

    def _choose(self, number: int | None, at: float | None) -> None:
        self._error = None  # an earlier copy's
        if number is not None:
            attempt = self._copies.pop(number)[0]
            if failure_of(attempt) is None:
                self._result = response_of(attempt), attempt
            else:
                self._error = error_of(attempt)
        self._leave_losers(at)

    def _break_off(self, error: Exception) -> None:
        self._leave_losers(None)
        super()._break_off(error)
