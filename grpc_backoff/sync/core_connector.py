"""Dials with grpcio's C-core: each attempt is a separate C-core channel, which READY calls then use directly.

`aio/core_connector.py` explains how the core is limited to one attempt, and `dial_machine` decides when to look at the
core and what its states mean. The core is polled here, because a notification would need a thread for each channel, and
closing a channel would wait for it. The conductor polls an attempt when the machine says so, and open connections every
fifth of a second. In addition, each call checks the connection before it enters.

A connection counts its calls without a lock: `calls` is a set, and adding to a set is atomic. The thread that removes
the last call from a retired connection makes the conductor close it.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc

from grpc_backoff.base import threads
from grpc_backoff.base.status import Loss
from grpc_backoff.base.threads import Running
from grpc_backoff.decide.calls.call_texts import (
    LIVENESS_METHOD,
    LIVENESS_SERVICE,
    WATCH_METHOD,
    pays,
    proxy_header,
    says_goaway,
    shows_life,
)
from grpc_backoff.decide.connections import dial_machine as m
from grpc_backoff.decide.connections.dial_texts import EXPLAIN_METHOD, EXPLAIN_SERVICE
from grpc_backoff.decide.connections.dial_times import EXPLAIN_TIMEOUT
from grpc_backoff.engine.core_connector import BaseConnector, MadeWith, Tell
from grpc_backoff.engine.core_dial import CoreDial
from grpc_backoff.engine.gate import LivenessReply, is_shut
from grpc_backoff.engine.spares import SPARES, SpareChannel
from grpc_backoff.grpcio.private import exclude_service
from grpc_backoff.grpcio.sync_private import close_channel, core_channel, noticing_headers, state_check, unavailable
from grpc_backoff.sync.conductor import Conductor

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.decide.connections.health_machine import Ended

exclude_service(EXPLAIN_SERVICE)


_FAILS_AFTER = 0.02
"""How long after its condemnation a connection ends its calls, in seconds. Most threads that have just entered it have
made their calls by then."""


class CallTimes(dict[object, float]):
    """The calls in progress on a connection that is watched, with the times when they began (LV-2).

    It has the methods of a set that connections use. `heard` is when the peer last showed that it is alive, by an
    answer or a message.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self.heard = -math.inf
        self._now = now

    def hear(self) -> None:
        """Note that something has arrived from the peer."""
        self.heard = self._now()

    def add(self, token: object) -> None:
        """Add a call that begins now."""
        self[token] = self._now()

    def discard(self, token: object) -> None:
        """Remove a call; harmless if it has been removed already."""
        self.pop(token, None)


class CoreConnection(CoreDial):
    """One dial of a C-core channel, and the connection that it makes.

    Attributes:
        channel: grpcio's own channel, for calls.
        check: returns the state as the integer that grpcio's core uses; raises ValueError once the channel is closed.
        now: the conductor's clock.
        clock_now: the channel's clock, which the program may have supplied; times of calls are on this one.
        fail_fast: the value of `wait_for_ready` that makes grpcio's own calls on this connection fail-fast.
        calls: a token for each call in progress on this connection; with the times when they began, if it is watched.
        used: when a call last ended on it, in seconds on the channel's clock.
        retired: whether new calls must use another connection.
        served: whether the server has answered a call (CB-7).
        streamed: whether the connection has carried a call that grpcio serves on a separate thread.
    """

    _connector: CoreConnector

    def __init__(self, owner: CoreConnector, limit: float, tell: Tell[CoreConnection]) -> None:
        """Start to dial; `limit` is the attempt's time limit, in seconds. `tell` is called with the outcome."""
        super().__init__(owner, tell)
        self.fail_fast = owner.fail_fast
        self.clock_now = owner.clock.now
        self._times = CallTimes(self.clock_now) if owner.times_calls else None
        # A set itself, because the methods of a class derived from it would cost each call more (TH-2).
        self.calls: set[object] | CallTimes = set() if self._times is None else self._times
        self._condemned = ""
        self._left = False
        self.used = -math.inf
        self.retired = False
        self.served = False
        self.streamed = False
        self._closing: Running | None = None
        self.channel, made, self._spare_key = owner.channel_for(limit)
        self.check = state_check(self.channel)
        self.check(True)
        self.begin(limit, made)

    def shown(self) -> int:
        """Return the channel's state, as the integer that grpcio's core uses. Thread-safe."""
        try:
            return (self.held or self.check)(False)
        except ValueError:  # the channel is closed
            return m.SHUTDOWN

    # Calls. All the overhead of a call on a READY channel is here and in `multicallables.py` (TH-2).

    def last_used(self) -> float:
        """Return when a call last used the connection, in seconds on the channel's clock: now, if a call is running."""
        return self.clock_now() if self.calls else self.used

    def entered(self, token: object) -> bool:
        """Add a call, identified by its token, if the connection is up; return whether it is. Thread-safe."""
        calls = self.calls
        calls.add(token)  # before the check, because a thread that retires the connection checks afterwards
        try:
            if not self.retired:
                check = self.check
                if check(False) == m.READY:
                    return True
                # When the conductor looks, the core may be READY again, for a call of its own.
                self._left = self._left or check is not is_shut
        except ValueError:  # the channel was closed
            pass
        self.ended(token)
        return False

    def has_room(self, token: object) -> bool:
        """Return whether a call that has entered may stay (PO-14); if not, it is removed. Thread-safe."""
        if self.room is None or self.room.enter(token):
            return True
        self.ended(token)
        return False

    def ended(self, token: object) -> None:
        """Remove a finished call; harmless if the call has been removed already. Thread-safe."""
        self.calls.discard(token)
        if self.room is not None:
            self.room.leave(token)
        self.used = self.clock_now()
        if self.retired and (not self.calls or (self.served and not self._state.served)):
            self._connector.conductor.post(self.look)

    def refusal(self, error: ValueError) -> Exception:
        """Return what a call that has entered raises if grpcio refuses it: if its peer is dead, not that (PO-2)."""
        if not self._condemned or self.shown() != m.SHUTDOWN:
            return error
        refused: Exception = unavailable(self._condemned)
        return refused

    def delivered(self) -> None:
        """Record a message of a response stream. Thread-safe."""
        self.served = True
        if self.retired and not self._state.served:
            self._connector.conductor.post(self.look)

    def failed(self, code: grpc.StatusCode | None, token: object = None, details: str | bytes | None = "") -> None:
        """Record a call's failure; if the connection broke at the same time, look at it at once. Thread-safe."""
        times, name = self._times, "" if code is None else code.name
        text = details.decode(errors="replace") if isinstance(details, bytes) else details or ""
        if self._connector.derived.pings:
            self._heed(text)
        if times is not None:
            if name and shows_life(name):
                times.hear()
            elif (began := times.pop(token, None)) is not None:
                self._connector.conductor.post(partial(self.unanswered, began, times.heard))
        if name and pays(name, text):
            self.served = True
            return
        self._dropped = self._dropped or (name != "" and shows_life(name))
        self._refused = self._refused or says_goaway(name, text)
        if self.retired:
            return
        if not self.alive():
            self._seen_ended = min(self._seen_ended, self.now())
        elif self.served or not self._refused:
            return
        self._connector.conductor.post(self.look)

    # The end of the connection. Called on the conductor.

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while it is up, or while the cause is still being determined."""
        if self._loss is None:
            self.look()
        return self._loss

    def retire(self) -> None:
        """Accept no new calls and close once the running ones have ended, as a graceful GOAWAY allows (CH-6)."""
        self.retired = True
        self.feed(m.Retire())
        self.look()

    def leave_alone(self) -> None:
        """Accept no calls and do not touch the core at all, because it belongs to another process."""
        self.retired, self.held = True, None
        self._state = self._state._replace(phase=m.DialPhase.CLOSED)
        self.check = _is_anothers

    def close(self) -> Running | None:
        """Close the connection with all its calls; return what is still closing it, if anything is."""
        self.retired = True  # first: a call that enters at the same time counts, or does not enter
        self._abandon_connection(used=self.calls or self.streamed or self._condemned)
        return self._closing

    # Liveness. Called on the conductor.

    @property
    def running(self) -> int:
        """How many calls are in progress."""
        return len(self.calls)

    def quiet(self) -> float:
        """Return for how many seconds nothing has arrived from the peer; infinity if nothing has, or if unwatched."""
        return math.inf if self._times is None else self.clock_now() - self._times.heard

    @property
    def hear(self) -> Callable[[], None] | None:
        """What notes each message that arrives; None if the peer is not watched."""
        return None if self._times is None else self._times.hear

    def ask(self, within: float, tell: Callable[[LivenessReply], object]) -> None:
        """Ask whether the peer is alive; see `GatedConnection.ask` (LV-1)."""
        exclude_service(LIVENESS_SERVICE)
        post, self.streamed = self._connector.conductor.post, True
        began, sent = self.clock_now(), list[float]()

        def ended(call: Any) -> None:
            waited = sent[0] - began if sent else math.inf
            metadata = [*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())]
            post(partial(tell, LivenessReply(call.code().name, waited, proxy_header(metadata))))

        try:
            ask = noticing_headers(self.channel.unary_unary(LIVENESS_METHOD), lambda: sent.append(self.clock_now()))
            call = ask.future(b"", timeout=within, wait_for_ready=False)
        except (ValueError, RuntimeError):  # the channel is closed, or there are too many threads
            post(partial(tell, LivenessReply(grpc.StatusCode.CANCELLED.name)))
            return
        call.add_done_callback(ended)

    def listen(self, request: bytes, hear: Callable[[bytes | Ended], object]) -> Callable[[], object]:
        """Begin a health Watch; see `GatedConnection.listen` (RO-1)."""
        exclude_service(LIVENESS_SERVICE)
        post, self.streamed = self._connector.conductor.post, True
        begin: Callable[..., Any] = self.channel.unary_stream(WATCH_METHOD)
        call = begin(request, wait_for_ready=False)
        listening = partial(_listen, call, lambda answer: post(partial(hear, answer)))
        with contextlib.suppress(RuntimeError):  # the interpreter is about to exit
            threads.start(listening, "grpc-backoff-health")
        return cast("Callable[[], object]", call.cancel)

    def fail(self, details: str) -> None:
        """End every call with UNAVAILABLE, because the peer is dead (PO-2)."""
        self._condemned = details
        self._connector.conductor.call_at(self.now() + _FAILS_AFTER, self.close)

    # Driving the machine.

    def look(self) -> None:
        """Step the machine with what the core shows. Called on the conductor."""
        unused, left = self.clock_now() - self.last_used(), self._left
        self._left = False
        self.feed(m.Looked(self.shown(), self.running, unused, self.served, self._refused, self._dropped, left))

    def _stepped(self) -> None:
        self.retired = self.retired or m.has_ended(self._state)

    def _notify_on(self, _shown: int) -> None:
        self._connector.conductor.watch(self)  # which looks from time to time, whatever the state

    def _ask(self) -> None:
        ask: Callable[..., object] = self.channel.unary_unary(EXPLAIN_METHOD)
        explained = m.Explained("OK", "")
        try:
            ask(self._connector.derived.question, wait_for_ready=False, timeout=EXPLAIN_TIMEOUT)  # it fails at once
        except grpc.RpcError as error:
            explained = m.Explained(error.code().name, error.details() or "")
        self.feed(explained)

    def _close(self, *, spare: bool) -> None:
        self._connector.conductor.unwatch(self)
        if spare and self._spare_key is not None:
            self.check = _is_given_up
            spare_channel = SpareChannel(self.channel, self._state.since, state_check, close_channel)
            SPARES.keep(self._spare_key, spare_channel)
        elif self.calls or self.streamed:
            self._closing = _close_elsewhere(self.channel, self._condemned)
        else:
            close_channel(self.channel)


class CoreConnector(BaseConnector[CoreConnection]):
    """Creates one C-core channel for each attempt."""

    def __init__(self, *arguments: Any, clock: Clock, conductor: Conductor) -> None:
        """Take the arguments of `BaseConnector`, the channel's clock, and the conductor."""
        super().__init__(*arguments, home=conductor)
        self.clock = clock
        self.conductor = conductor
        self.fail_fast = False if self.derived.resolver_configures else None
        """The value of `wait_for_ready` that makes grpcio's own calls fail-fast; False costs grpcio microseconds per
        call."""
        self.times_calls = False
        """Whether connections note when their calls begin (LV-2)."""

    def dial(self, limit: float, tell: Tell[CoreConnection]) -> CoreConnection:
        """Start one attempt; see `BaseConnector.dial`."""
        return CoreConnection(self, limit, tell)

    def make_channel(self, made_with: MadeWith) -> grpc.Channel:
        """Return a new channel of the core for one attempt."""
        target, options, compression = made_with
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


def _listen(call: Any, tell: Callable[[bytes | Ended], None]) -> None:
    """Read a Watch, in a thread of its own."""
    from grpc_backoff.decide.connections.health_machine import Ended  # noqa: PLC0415 - few channels watch health

    with contextlib.suppress(grpc.RpcError):
        for message in call:
            tell(message)
    tell(Ended(call.code().name, call.details() or ""))


def _is_given_up(_try_to_connect: bool) -> int:
    raise ValueError("the channel was closed")


def _is_anothers(_try_to_connect: bool) -> int:
    raise ValueError("the channel was created before a fork")
