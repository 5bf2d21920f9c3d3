"""Dials with grpcio's C-core: each attempt is a separate C-core channel, which READY calls then use directly.

`aio/core_connector.py` explains how the core is limited to one attempt, and `dial_machine` decides when to look at the
core and what its states mean. The core is polled here, because a notification would need a thread for each channel, and
closing a channel would wait for it. The conductor polls an attempt when the machine says so, and open connections every
fifth of a second. In addition, each call checks the connection before it enters. Threads enter and leave without a
lock (`RunningCalls`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize, ref

import grpc

from grpc_backoff.base import threads
from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.status import Loss
from grpc_backoff.base.threads import Running
from grpc_backoff.config.core_options import CoreArguments
from grpc_backoff.decide.calls.call_texts import pays, says_goaway, shows_life
from grpc_backoff.decide.connections import dial_machine as m
from grpc_backoff.decide.connections.dial_texts import EXPLAIN_METHOD, EXPLAIN_SERVICE
from grpc_backoff.decide.connections.dial_times import EXPLAIN_TIMEOUT
from grpc_backoff.engine.core_connector import BaseConnector, Tell
from grpc_backoff.engine.core_dial import CoreDial
from grpc_backoff.engine.gate import is_shut
from grpc_backoff.engine.spares import SPARES, SpareChannel
from grpc_backoff.grpcio.private import exclude_service
from grpc_backoff.grpcio.sync_private import (
    Lock,
    SingleThreadedRendezvous,
    close_channel,
    core_channel,
    state_check,
    unavailable,
)
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.peer_calls import ask_peer, watch_health

if TYPE_CHECKING:
    from grpc_backoff.decide.connections.health_machine import Ended
    from grpc_backoff.engine.gate import LivenessReply

exclude_service(EXPLAIN_SERVICE)

_OK = grpc.StatusCode.OK  # up to Python 3.11, access to a member is slow

_FAILS_AFTER = 0.02
"""How long after its condemnation a connection ends its calls, in seconds. Most threads that have just entered it have
made their calls by then."""

NOTABLE = 0.001
"""From how many seconds on the time that a call takes to enter a connection shortens its timeout."""


connections: WeakSet[CoreConnection] = WeakSet()
"""The dials of this process that are complete, and so all of its connections."""


class RunningCalls:
    """The calls that run on one connection, each with a token of its own, and whether more may enter.

    Any number of threads enter and leave it without a lock. A finalizer or a signal handler may make a call at any
    point, so a lock would have to be reentrant, and each call would take it twice. Instead, each change is one atomic
    operation of a set, and the order of two steps makes it safe: a call enters and then looks whether the connection is
    retired; the thread that retires it does so and then looks which calls run. So if both happen at once, at least one
    of the two sees the other. In the same way, a call first leaves and then looks, so that the last call on a retired
    connection is noticed.

    Attributes:
        tokens: the tokens of the calls. `multicallables.py` adds and removes those of the shortest path itself (TH-2).
        retired: whether new calls must use another connection; once true, this stays so.
    """

    __slots__ = ("retired", "tokens")

    def __init__(self) -> None:
        self.tokens: set[object] = set()
        self.retired = False

    def __len__(self) -> int:
        """Return how many calls are running."""
        return len(self.tokens)

    def enter(self, token: object) -> bool:
        """Add a call; return whether it may stay. If not, it has to leave again."""
        self.tokens.add(token)
        return not self.retired

    def leave(self, token: object) -> bool:
        """Remove a call, if it has not left already; return whether the connection is retired and has none left."""
        self.tokens.discard(token)
        return self.retired and not self.tokens

    def retire(self) -> int:
        """Let no more calls enter; return how many still run."""
        self.retired = True
        return len(self.tokens)


class CoreConnection(CoreDial):
    """One dial of a C-core channel, and the connection that it makes.

    Attributes:
        channel: grpcio's own channel, for calls.
        check: returns the state as the integer that grpcio's core uses; raises ValueError once the channel is closed.
        now: the conductor's clock.
        clock_now: the channel's clock, which the program may have supplied; times of calls are on this one.
        fail_fast: the value of `wait_for_ready` that makes grpcio's own calls on this connection fail-fast; False costs
            grpcio microseconds per call.
        calls: the calls that run on this connection.
        used: when a call last ended on it, in seconds on the channel's clock.
        times_calls: whether the ends of calls are to be recorded, with the times when they began (LV-2).
        heard: when the peer last showed that it is alive, by an answer or a message; only noted if it is watched.
        served: whether the server has answered a call (CB-7).
        streamed: whether the connection has carried a call that grpcio serves on a separate thread.
    """

    _connector: CoreConnector

    def __init__(self, owner: CoreConnector, limit: float, tell: Tell[CoreConnection]) -> None:
        """Start to dial; `limit` is the attempt's time limit, in seconds. `tell` is called with the outcome."""
        super().__init__(owner, tell)
        self.fail_fast = False if owner.traits.may_wait else None
        self.clock_now = owner.setup.clock.now
        self.calls = RunningCalls()
        self.times_calls = owner.setup.pooling.quiet_after > 0
        self.heard = -math.inf
        self._condemned = ""
        self._left = False
        self.used = -math.inf
        self.served = False
        self.streamed = False
        self._closing: Running | None = None
        self.channel, made, self._spare_key = owner.channel_for(limit)
        self.check = state_check(self.channel)
        self._lock = Lock(self.channel)
        self._shown = m.IDLE
        self.check(True)
        self.begin(limit, made)
        connections.add(self)  # last, because another thread may fork at any point

    def shown(self) -> int:
        """Return the channel's state, as the integer that grpcio's core uses. Thread-safe."""
        check = self.gated or self.check
        try:
            if not self._connector.home.is_here() or threads.is_main():  # where a signal handler may raise
                return check(False)
            # All channels wait for the conductor, so it waits for the lock for a moment at most. A call that is being
            # begun needs a connection, so the state is still the last one.
            shown = self._lock.read(check)
        except ValueError:  # the channel is closed
            return m.SHUTDOWN
        if shown is not None:
            self._shown = shown
        return self._shown

    # Calls, on the path of each (TH-2).

    def last_used(self) -> float:
        """Return when a call last used the connection, in seconds on the channel's clock: now, if a call is running."""
        return self.clock_now() if self.calls else self.used

    def entered(self, token: object) -> bool:
        """Add a call, identified by its token, if the connection is up and has room; return whether it has entered.

        Thread-safe.
        """
        try:
            if self.calls.enter(token):
                check = self.check
                if check(False) != m.READY:
                    # When the conductor looks, the core may be READY again, for a call of its own.
                    self._left = self._left or check is not is_shut
                elif self.room is None or self.room.enter(token):
                    return True
        except ValueError:  # the channel was closed
            pass
        self.ended(token)
        return False

    def ended(self, token: object) -> None:
        """Remove a finished call; harmless if the call has been removed already. Thread-safe."""
        was_last = self.calls.leave(token)
        if self.room is not None:
            self.room.leave(token)
        self.used = self.clock_now()
        if was_last or (self.calls.retired and self.served and not self._state.served):
            self._connector.home.post(self.look)

    def refusal(self, error: ValueError) -> Exception:
        """Return what a call that has entered raises if grpcio refuses it: if its peer is dead, not that (PO-2)."""
        if not self._condemned or self.shown() != m.SHUTDOWN:
            return error
        refused: Exception = unavailable(self._condemned)
        return refused

    def delivered(self) -> None:
        """Record a message of a response stream. Thread-safe."""
        self.served = True
        if self.calls.retired and not self._state.served:
            self._connector.home.post(self.look)

    def succeeded(self) -> None:
        """Record that a call has ended with OK. Thread-safe."""
        self.served = True
        if self.times_calls:
            self.hear()

    def failed(self, code: grpc.StatusCode | None, details: str | bytes | None, began: float | None = None) -> None:
        """Record a call's failure; if the connection broke at the same time, look at it at once. Thread-safe.

        `began` is when the call began, in seconds on the channel's clock, if the connection is watched.
        """
        name = "" if code is None else code.name
        text = details.decode(errors="replace") if isinstance(details, bytes) else details or ""
        if self._connector.traits.pings:
            self._heed(text)
        if began is not None:
            if name and shows_life(name):
                self.hear()
            else:
                self._connector.home.post(partial(self.unanswered, began, self.heard))
        if name and pays(name, text):
            self.served = True
            return
        self._dropped = self._dropped or (name != "" and shows_life(name))
        self._refused = self._refused or says_goaway(name, text)
        if self.calls.retired:
            return
        if not self.alive():
            self._seen_ended = min(self._seen_ended, self.now())
        elif self.served or not self._refused:
            return
        self._connector.home.post(self.look)

    # The end of the connection. Called on the conductor.

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while it is up, or while the cause is still being determined."""
        if self._loss is None:
            self.look()
        return self._loss

    def retire(self) -> None:
        """Accept no new calls and close once the running ones have ended, as a graceful GOAWAY allows (CH-6)."""
        self.calls.retire()
        self.feed(m.Retire())
        self.look()

    def leave_alone(self) -> None:
        """Accept no calls and do not touch the core at all, because it belongs to another process."""
        self.calls.retire()
        self.gated = None
        self._state = self._state._replace(phase=m.DialPhase.CLOSED)
        self.check = _is_anothers

    def close(self) -> Running | None:
        """Close the connection with all its calls; return what is still closing it, if anything is."""
        used = self.calls.retire() > 0 or self.streamed or self._condemned != ""
        self._abandon_connection(used=used)
        return self._closing

    # Liveness. Called on the conductor.

    @property
    def running(self) -> int:
        """How many calls are in progress."""
        return len(self.calls)

    def quiet(self) -> float:
        """Return for how many seconds nothing has arrived from the peer; infinity if nothing has, or if unwatched."""
        return self.clock_now() - self.heard

    def hear(self) -> None:
        """Note that something has arrived from the peer."""
        self.heard = self.clock_now()

    def ask(self, within: float, tell: Callable[[LivenessReply], object]) -> None:
        """Ask whether the peer is alive; see `GatedConnection.ask` (LV-1)."""
        post, self.streamed = self._connector.home.post, True
        ask_peer(self.channel, within, self.clock_now, lambda reply: post(partial(tell, reply)))

    def listen(self, request: bytes, hear: Callable[[bytes | Ended], object]) -> Callable[[], object]:
        """Begin a health Watch; see `GatedConnection.listen` (RO-1)."""
        post, self.streamed = self._connector.home.post, True
        return watch_health(self.channel, request, lambda answer: post(partial(hear, answer)))

    def fail(self, details: str) -> None:
        """End every call with UNAVAILABLE, because the peer is dead (PO-2)."""
        self._condemned = details
        self._connector.home.call_at(self.now() + _FAILS_AFTER, self.close)

    # Driving the machine.

    def look(self) -> None:
        """Step the machine with what the core shows. Called on the conductor."""
        unused, left = self.clock_now() - self.last_used(), self._left
        self._left = False
        self.feed(m.Looked(self.shown(), self.running, unused, self.served, self._refused, self._dropped, left))

    def _has_ended(self) -> None:
        self.calls.retire()

    def _notify_on(self, _shown: int) -> None:
        self._connector.home.poll(self)  # whatever the state

    def _explain(self) -> None:
        ask: Callable[..., object] = self.channel.unary_unary(EXPLAIN_METHOD)
        explained = m.Explained("OK", "")
        try:
            ask(self._connector.traits.question, wait_for_ready=False, timeout=EXPLAIN_TIMEOUT)  # it fails at once
        except grpc.RpcError as error:
            explained = m.Explained(error.code().name, error.details() or "")
        self.feed(explained)

    def _dispose(self, *, spare: bool) -> None:
        self._connector.home.stop_polling(self)
        if spare and self._spare_key is not None:
            self.check = _is_given_up
            spare_channel = SpareChannel(self.channel, self._state.since, state_check, close_channel)
            SPARES.keep(self._spare_key, spare_channel)
        elif self.calls or self.streamed:
            self._closing = _close_elsewhere(self.channel, self._condemned)
        else:
            close_channel(self.channel)


class Entry:
    """A call, or one attempt of it, on a connection; it is itself the token by which the connection counts it.

    Attributes:
        connection: the connection.
        method: grpc's own multicallable on it.
    """

    __slots__ = ("__weakref__", "_began", "_since", "connection", "method")

    def __init__(self, connection: CoreConnection, method: Any, since: float) -> None:
        """Take the call's connection and method; `since` is when it began to enter, on the machine's clock."""
        self.connection = connection
        self.method = method
        self._began = connection.clock_now() if connection.times_calls else None
        self._since = since

    def left_of(self, timeout: float | None) -> float | None:
        """Return what is left of a timeout, in seconds, which counts from when the call began to enter."""
        return left_of(timeout, self._since)

    def beside(self) -> Entry:
        """Return an entry for the same attempt, which outlives this one; there is room for it in any case."""
        other = Entry(self.connection, self.method, self._since)
        self.connection.calls.enter(other)
        if self.connection.room is not None:
            self.connection.room.add(other)
        return other

    def failed(self, error: Any) -> None:
        """Record how the call has failed, before it leaves."""
        self.connection.failed(error.code(), error.details(), self._began)

    def leave(self) -> None:
        """Leave the connection; harmless if the call has left already. Thread-safe."""
        self.connection.ended(self)

    def ended(self, code: grpc.StatusCode | None, details: str | bytes | None) -> None:
        """Leave the connection, because the call has ended with this status. Thread-safe."""
        if code is _OK:
            self.connection.succeeded()
        else:
            self.connection.failed(code, details, self._began)
        self.leave()

    def follow(self, call: Any) -> None:
        """Leave the connection once grpcio's `call` has ended."""
        # Keep no reference to the call itself, because grpcio cancels a call when nothing refers to it any more.
        state = call._state  # noqa: SLF001 - `code()` of a single-threaded one raises before its end

        def ended() -> None:
            self.ended(state.code, state.details)

        if not call.add_callback(ended):
            ended()
        elif type(call) is SingleThreadedRendezvous:  # its callbacks run only if it is read to its end
            finalize(call, _dropped, ref(self)).atexit = False


def left_of(timeout: float | None, since: float) -> float | None:
    """Return what is left of a timeout, in seconds, which counts from the time `since` on the machine's clock.

    A call that enters looks at the core's state, and waits for the lock that another call holds while it begins. If the
    core repeats that call, this is until its deadline (CB-16).
    """
    if timeout is None:
        return None
    passed = monotonic() - since
    return timeout if passed < NOTABLE else timeout - passed


def enter(connection: CoreConnection, method: object, since: float) -> Entry | None:
    """Enter a connection with a call of this method; return None if it takes no call at the moment."""
    entry = Entry(connection, method, since)
    return entry if connection.entered(entry) else None


def _dropped(held: ref[Entry]) -> None:
    """Let a call leave that was dropped before its end; until it leaves, its connection keeps the entry."""
    entry = held()
    if entry is not None and entry in entry.connection.calls.tokens:
        entry.ended(None, "")


class CoreConnector(BaseConnector[CoreConnection]):
    """Creates one C-core channel for each attempt."""

    home: Conductor

    def dial(self, limit: float, tell: Tell[CoreConnection]) -> CoreConnection:
        """Start one attempt; see `BaseConnector.dial`."""
        return CoreConnection(self, limit, tell)

    def make_channel(self, arguments: CoreArguments) -> grpc.Channel:
        """Return a new channel of the core for one attempt."""
        target, options, compression = arguments
        return core_channel(target, self.credentials, options, compression)

    def close(self) -> list[Running]:
        """Close every connection with its calls; return what is still closing them."""
        return [closing for closing in [connection.close() for connection in tuple(self.open)] if closing is not None]


def _close_elsewhere(channel: grpc.Channel, condemned: str) -> Running | None:
    """Close a core channel in a separate thread, because closing waits for its calls and for user callbacks.

    Where no thread can be started, close it here, unless those who end its calls will never run again.
    """
    try:
        return threads.start(partial(close_channel, channel, condemned), "grpc-backoff-close")
    except RuntimeError:
        if not sys.is_finalizing():
            close_channel(channel, condemned)
        return None


def _is_given_up(_try_to_connect: bool) -> int:
    raise ValueError("the channel was closed")


def _is_anothers(_try_to_connect: bool) -> int:
    raise ValueError("the channel was created before a fork")
