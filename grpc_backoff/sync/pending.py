"""One channel's queue of pending calls.

A call adds itself from its own thread and then asks the conductor for a connection, unless one is being made already.
The conductor answers each call that has asked and notifies all pending calls of each connection and each failure. Calls
that ask at about the same time are answered together, because each message to the conductor may cost a switch between
threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from grpc_backoff.base.status import State
from grpc_backoff.base.threads import new_queue
from grpc_backoff.config.target import shown_target
from grpc_backoff.decide.calls.call_machine import NotConnected
from grpc_backoff.decide.connections.connection_machine import ASKED_JUST_NOW
from grpc_backoff.engine import pending
from grpc_backoff.engine.pending import READY, AnyCall
from grpc_backoff.grpcio import call_errors
from grpc_backoff.sync.call_errors import NoConnectionError

if TYPE_CHECKING:
    from grpc_backoff.sync.pool import ConnectionPool


class PendingCalls(pending.PendingCalls):
    """One channel's pending calls, in order of arrival."""

    pool: ConnectionPool
    no_connection_error = NoConnectionError

    def __init__(self, target: str, post: Callable[[Callable[[], object]], None], *, proxied: bool = False) -> None:
        """Start empty; `post` passes work to the conductor. `proxied` is as in `explain`."""
        super().__init__(target, proxied=proxied)
        self._post = post
        self._called: dict[AnyCall, None] = {}
        """The calls that were told of room and whose threads have not taken it yet."""
        self._asking: SimpleQueue[AnyCall] = new_queue()  # a deque would take five times the memory
        self._asked = -math.inf
        """When the conductor last asked the pool for a connection, in seconds on the channel's clock."""

    # Called from the calls' threads.

    def not_connected(self, *, waited: bool = True) -> NotConnected:
        """Return the machine's input for an attempt that finds no connection, and has `waited` for one or not."""
        pool = self.pool
        failing = pool.is_failing
        if not waited:  # so it has missed no connection
            return NotConnected(failing=failing, resolved=self._resolved, lasting=self._lasting)
        paid = pool.is_paid or pool.waits_for_room  # then it has missed no connection
        return NotConnected(failing, self._resolved, pool.made, paid, self._lasting)

    def add(self, call: AnyCall) -> None:
        """Ask for a connection and keep the call until it is removed."""
        self._called.pop(call, None)
        super().add(call)
        # Only now: whatever the attempt leads to, this call hears of it.
        if self.pool.state is State.CONNECTING and self.pool.now() - self._asked < ASKED_JUST_NOW:
            return
        self._asking.put(call)
        # Each call posts, even if others already ask: a flag that says so would be set before the work is posted, and
        # a finalizer that runs in between would wait for ever.
        self._post(self._ask)

    def discard(self, call: AnyCall) -> None:
        """Remove a call that has a connection or has ended."""
        super().discard(call)
        self._called.pop(call, None)  # the last one would keep the channel alive (CB-10)

    def cannot_wait(self) -> call_errors.NoConnectionError:
        """Return the error of a call that cannot wait on the thread that makes its own connection (TH-6)."""
        target = shown_target(self._target)
        details = f"no connection to {target}, and a finalizer that runs on the channel's own thread cannot wait"
        return self._made(grpc.StatusCode.UNAVAILABLE, details, self.pool.status())

    # Called on the conductor.

    def _ask(self) -> None:
        """Ask for a connection for all calls that have asked by now and answer them at once."""
        if self._asking.empty():
            return  # an earlier one has answered them all
        state = self.pool.want()
        self._asked = self.pool.now()
        asking = [self._asking.get() for _ in range(self._asking.qsize())]  # an answered call may ask again
        if self.pool.waits_for_room:
            self.pool.fill()
            return
        for call in asking:
            if call in self._waiting:
                self._answer(call, state)

    def _answer(self, call: AnyCall, state: State) -> None:
        if state is State.READY:
            if self.pool.takes_calls:  # otherwise, the peer has to answer first (LV-1)
                self._feed(call, READY)
        elif state is State.TRANSIENT_FAILURE:
            # SH-3: a call that asks for a connection while the key is in backoff gets the backoff's failure at once.
            self._note_error()
            self._feed(call, self.no_connection())

    def release(self, most: float = math.inf) -> None:
        """Start pending calls, all or the first `most` of them; one whose connection is lost by then waits again."""
        self._resolved = True
        if most < math.inf:
            for call in tuple(self._called):
                if call not in self._waiting:
                    self._called.pop(call, None)
            most -= len(self._called)
        for call in tuple(self._waiting):
            if call in self._called:
                continue
            if most <= 0:
                return
            if most < math.inf:
                most -= 1
                self._called[call] = None
            self._feed(call, READY)

    def abandon(self) -> None:
        """End the calls in the child of a fork."""
        for call in tuple(self._waiting):
            call.abandon()
