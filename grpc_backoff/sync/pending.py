"""One channel's queue of pending calls.

A call adds itself from its own thread and then asks the conductor for a connection. The conductor answers each call
that has asked, and notifies all pending calls of each connection and each failure. Calls that ask at about the same
time are answered together, because each message to the conductor may cost a switch between threads. The calls are in a
dictionary, whose single operations are atomic, without a lock, because a finalizer can make a call wherever the garbage
collector happens to run.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import grpc

from grpc_backoff.calls.machine import CancelRequested, ConnectionReady, Input, Missed, NoConnection, NotConnected
from grpc_backoff.connection.events import ConnectionStatus, Stage, State
from grpc_backoff.connection.no_connection import explain
from grpc_backoff.sync.errors import NoConnectionError

_LOG = logging.getLogger(__name__)
_READY = ConnectionReady()


class PendingCall(Protocol):
    """A pending call."""

    def feed(self, given: Input) -> None:
        """Feed an input to the call's machine. Thread-safe; never blocks."""
        ...

    def abandon(self) -> None:
        """End the call in the child of a fork."""
        ...


class Manager(Protocol):
    """What pending calls need from the connection's manager."""

    @property
    def state(self) -> State:
        """The channel's current state."""
        ...

    def status(self) -> ConnectionStatus:
        """Return the channel's status."""
        ...

    def want(self) -> None:
        """Ask for a connection. Called on the conductor."""
        ...


class PendingCalls:
    """One channel's pending calls, in order of arrival."""

    def __init__(self, target: str, post: Callable[[Callable[[], object]], None]) -> None:
        """Start empty. `post` passes work to the conductor; `manager` is set before the first call arrives."""
        self.manager: Manager
        self._target = target
        self._post = post
        self._resolved = False
        self._waiting: dict[PendingCall, None] = {}
        self._asking: deque[PendingCall] = deque()

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return len(self._waiting)

    # Called from the calls' threads.

    def not_connected(self) -> NotConnected:
        """Return the machine's input for an attempt that finds no connection."""
        return NotConnected(failing=self.manager.state is State.TRANSIENT_FAILURE, resolved=self._resolved)

    def no_connection(self) -> NoConnection:
        """Return the machine's input for a pending call when a dial fails."""
        return NoConnection(resolved=self._resolved)

    def add(self, call: PendingCall) -> None:
        """Store the call until it is removed, and ask for a connection."""
        self._waiting[call] = None
        self._asking.append(call)
        # Each call posts, even if others already ask: a flag that says so would be set before the work is posted, and
        # a finalizer that runs in between would wait for ever.
        self._post(self._ask)

    def discard(self, call: PendingCall) -> None:
        """Remove a call that has a connection or has ended."""
        self._waiting.pop(call, None)

    def error(self, code: grpc.StatusCode) -> NoConnectionError:
        """Return the error of a call that got no connection (CH-4)."""
        status = self.manager.status()
        details = explain(self._target, status, waited=code is grpc.StatusCode.DEADLINE_EXCEEDED)
        return NoConnectionError(code, details=details, status=status)

    def cannot_wait(self) -> NoConnectionError:
        """Return the error of a call that cannot wait on the thread that makes its own connection (TH-6)."""
        details = f"no connection to {self._target}, and a finalizer that runs on the channel's own thread cannot wait"
        return NoConnectionError(grpc.StatusCode.UNAVAILABLE, details=details, status=self.manager.status())

    # Called on the conductor.

    def _ask(self) -> None:
        """Ask for a connection for all calls that have asked by now, and answer them at once."""
        if not self._asking:
            return  # an earlier one has answered them all
        self.manager.want()
        for _ in range(len(self._asking)):  # no more than these, because an answered call may ask again
            call = self._asking.popleft()
            if call in self._waiting:
                self._answer(call)

    def _answer(self, call: PendingCall) -> None:
        state = self.manager.state
        if state is State.READY:
            self._feed(call, _READY)
        elif state is State.TRANSIENT_FAILURE:
            # SH-3: a call that asks for a connection while the key is in backoff gets the backoff's failure at once.
            self._note_resolved()
            self._feed(call, self.no_connection())

    def _note_resolved(self) -> None:
        error = self.manager.status().last_error
        self._resolved = self._resolved or (error is not None and error.stage is not Stage.RESOLVE)

    def release(self) -> None:
        """Start all pending calls, as long as the connection stays up."""
        self._resolved = True
        for call in tuple(self._waiting):
            self._feed(call, _READY if self.manager.state is State.READY else Missed())

    def fail(self) -> None:
        """Notify the pending calls of a failed dial, which only wait-for-ready calls survive (CH-3)."""
        self._note_resolved()
        for call in tuple(self._waiting):
            self._feed(call, self.no_connection())

    def abandon(self) -> None:
        """End the calls in the child of a fork."""
        for call in tuple(self._waiting):
            call.abandon()

    # Thread-safe.

    def cancel(self) -> None:
        """Cancel every pending call, because the channel is closing."""
        for call in tuple(self._waiting):
            self._feed(call, CancelRequested())

    def _feed(self, call: PendingCall, given: Input) -> None:
        """Feed an input to a call's machine; an exception removes the call, but must not keep the others waiting."""
        try:
            call.feed(given)
        except Exception:  # noqa: BLE001 - a clock or a source of jitter, which the program may supply
            _LOG.exception("a step of a pending call raised")
            self.discard(call)
