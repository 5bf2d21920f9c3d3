"""Dials with grpcio's C-core: each attempt is a separate C-core channel, which READY calls then use directly.

`aio/core.py` explains how the core is limited to one attempt; both APIs share the options for this
(`connection/core_options.py`). The difference is that the core is polled here, because a watch would need a thread for
each channel, and closing a channel would wait for its watch. The conductor polls an attempt often, especially at first,
and all open connections every fifth of a second. In addition, each call checks the connection before it enters.

A connection counts its calls without a lock: `calls` is a set, and adding to a set is atomic. The thread that removes
the last call from a retired connection makes the conductor close it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import grpc

from grpc_backoff.calls.core_words import Link
from grpc_backoff.config.pairs import first_values
from grpc_backoff.connection.connector import Loss
from grpc_backoff.connection.core_options import CORE_LIMIT_SLACK, attempt_options, resolver_configures, spreads_calls
from grpc_backoff.connection.core_reason import reason_in, stage_of
from grpc_backoff.connection.events import Failure
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.sync.conductor import Conductor, Timer
from grpc_backoff.sync.grpcio import IDLE, READY, TRANSIENT_FAILURE, close_channel, core_channel, exclude_service

Options = Sequence[tuple[str, Any]]

_FIRST_LOOK = 0.001
"""How long after its start an attempt is first polled, in seconds. Later pauses are a fraction of its age."""
_LOOK_SHARE = 0.125
_RAREST_LOOK = 0.02
"""The longest pause between two polls of an attempt, in seconds. Polls are aligned, so one wake-up serves many
attempts."""
_BEGINS_WITHIN = 0.25
"""How long the core may take to start an attempt, in seconds. If the core is still IDLE then, it has connected and
disconnected."""
_SETTLE = 0.005
"""How long a new connection is observed before calls may use it, in seconds, if the previous one was not short-lived.
"""
_SHORT_LIFE = 0.1
"""The lifetime below which a connection counts as short-lived, in seconds. The connection that follows a short-lived
one is observed for this long."""
_CALLS_ARE_REFUSED_WITHIN = 0.1
"""How long a GOAWAY can still end calls after the end of the connection was noticed, in seconds."""
_CALLS_BREAK_WITHIN = 0.02
"""How soon the calls of a broken connection have ended, in seconds. Calls that run longer have survived a GOAWAY."""
_IDLE_SHARE = 0.9
"""The fraction of the idle timeout after which a lost connection is assumed to have been idle."""
_EXPLAIN_TIMEOUT = 0.25
_NO_ANSWER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
"""The status codes with which a call can end without an answer from the server."""
_BROKEN = "the peer closed it, or the network failed"
_EXPLAIN_SERVICE = "grpc_backoff.WhyIsThereNoConnection"
_EXPLAIN_METHOD = f"/{_EXPLAIN_SERVICE}/Ask"
_MORE_THAN_THE_RETRY_BUFFER = bytes(256 * 1024 + 1)

exclude_service(_EXPLAIN_SERVICE)


class CoreConnection:
    """One connection of a C-core channel, from SETTINGS to its end.

    Attributes:
        channel: grpcio's own channel, for calls.
        check: returns the core's number for the state; raises ValueError once the channel is closed.
        now: the conductor's clock.
        fail_fast: the value of `wait_for_ready` that makes grpcio's own calls on this connection fail-fast.
        calls: a token for each call in progress on this connection.
        used: when a call last ended on it, in seconds on the conductor's clock.
        retired: whether new calls must use another connection.
        served: whether the server has answered a call, with any status (CB-8).
        streamed: whether the connection has carried a call that grpcio serves on a separate thread.
    """

    __slots__ = (
        "__weakref__",
        "_closing",
        "_limit",
        "_loss",
        "_owner",
        "_seen_ended",
        "_shown",
        "_since",
        "_unasked_until",
        "calls",
        "channel",
        "check",
        "fail_fast",
        "now",
        "retired",
        "served",
        "streamed",
        "used",
    )

    def __init__(self, channel: Any, since: float, owner: CoreConnector, limit: float) -> None:
        """Store the arguments. SETTINGS arrived at `since`; `limit` was the attempt's time limit, in seconds."""
        self.channel = channel
        self.check: Callable[[bool], int] = channel._channel.check_connectivity_state  # noqa: SLF001 - see `grpcio.py`
        self.now = owner.conductor.now
        self.fail_fast = owner.fail_fast
        self.calls: set[object] = set()
        self.used = -math.inf
        self.retired = False
        self.served = False
        self.streamed = False
        self._since = since
        self._owner = owner
        self._limit = limit
        self._closing = False
        self._seen_ended = math.inf
        self._unasked_until = math.inf
        self._shown = IDLE
        self._loss: Loss | None = None

    def state(self) -> int | None:
        """Return the core's number for the current state; None once the channel is closed."""
        try:
            return self.check(False)
        except ValueError:
            return None

    def alive(self) -> bool:
        """Return whether the connection is up in the core right now. Thread-safe."""
        return self.state() == READY

    def last_used(self) -> float:
        """Return when a call last used the connection, in seconds on the channel's clock: now, if a call is running."""
        return self._owner.conductor.now() if self.calls else self.used

    # Calls. All the overhead of a call on a READY channel is here and in `multicallables.py` (TH-2).

    def entered(self, token: object) -> bool:
        """Add a call, identified by its token, if the connection is up; return whether it is. Thread-safe."""
        calls = self.calls
        calls.add(token)  # before the check, because a thread that retires the connection checks afterwards
        try:
            if not self.retired and self.check(False) == READY:
                return True
        except ValueError:  # the channel was closed
            pass
        self.ended(token)
        return False

    def ended(self, token: object) -> None:
        """Remove a finished call; harmless if the call has been removed already. Thread-safe."""
        self.calls.discard(token)
        self.used = self._owner.conductor.now()
        if self.retired and not self.calls:
            self._owner.conductor.post(self._drained)

    def failed(self, code: grpc.StatusCode | None) -> None:
        """Record a call's failure; if the connection broke at the same time, notify the manager at once."""
        if code not in _NO_ANSWER:
            self.served = True
        elif not self.retired and not self.alive():
            self._see_ended()
            self._owner.conductor.post(self._owner.lost)

    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends."""
        state = self.state()
        if state == TRANSIENT_FAILURE:
            return Link.UNREACHABLE
        if state == READY:
            return Link.OPEN
        self._see_ended()
        recently = self._owner.conductor.now() - self._seen_ended < _CALLS_ARE_REFUSED_WITHIN
        return Link.BROKEN if recently else Link.OPEN

    def _see_ended(self) -> None:
        self._seen_ended = min(self._seen_ended, self._owner.conductor.now())

    # The end of the connection. Called on the conductor.

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while it is up, or while the cause is still being determined."""
        if self._loss is None and not self.alive():
            self._see_ended()
            now = self._owner.conductor.now()
            on_probation = self._seen_ended - self._since < self._owner.policy.stable_after
            if not on_probation or self.served:
                self._loss = self._describe()
            elif now - self._seen_ended >= _CALLS_BREAK_WITHIN:
                # CB-8: the core does not distinguish a GOAWAY from a broken connection, but calls survive only a
                # GOAWAY.
                outlived = len(self.calls) > 0 and self.state() == IDLE
                self._loss = Loss(_BROKEN, graceful=outlived, served=self.served)
        return self._loss

    def _describe(self) -> Loss:
        unused = self._owner.conductor.now() - max(self.last_used(), self._since)
        if unused >= _IDLE_SHARE * self._owner.policy.idle_timeout:
            return Loss("it reached the idle timeout", graceful=True)  # the core closes it then (CB-14)
        return Loss(_BROKEN, served=self.served)

    def retire(self) -> None:
        """Accept no new calls, and close once the running ones have ended, as a graceful GOAWAY allows (CH-6)."""
        if self.retired:
            return
        self._owner.note_life(self._owner.conductor.now() - self._since)
        self.retired = True
        if self.calls:
            self._owner.conductor.watch(self)
        self._look_for_redial()
        if not self.calls:
            self._drained()

    def look(self) -> None:
        """Check whether the core has redialled for a call that was assigned just as the connection ended (CB-7)."""
        if self.retired and self.calls:
            self._look_for_redial()
        elif self.retired:
            self._drained()

    def _look_for_redial(self) -> None:
        state, before, now = self.state(), self._shown, self._owner.conductor.now()
        if state is None:
            return
        if (state != IDLE and before == IDLE) or (state == TRANSIENT_FAILURE and now >= self._unasked_until):
            self._owner.redialled()
        if state == TRANSIENT_FAILURE and (before != TRANSIENT_FAILURE or now >= self._unasked_until):
            self._unasked_until = (
                now + self._limit + CORE_LIMIT_SLACK
            )  # the core dials without a change of state when its backoff is over
        self._shown = state

    def _drained(self) -> None:
        if self._closing:
            return
        self._look_for_redial()
        self._owner.conductor.unwatch(self)
        self._owner.forget(self)
        self._closing = True
        _close_elsewhere(self.channel)

    def leave_alone(self) -> None:
        """Accept no calls, and do not touch the core at all, because it belongs to another process."""
        self.retired = self._closing = True
        self.check = _is_anothers

    def close(self) -> threading.Thread | None:
        """Close the connection with all its calls; return the thread that is still closing it, if there is one."""
        self.retired = self._closing = True
        self._owner.conductor.unwatch(self)
        if self.calls or self.streamed:
            return _close_elsewhere(self.channel)
        close_channel(self.channel)
        return None


class CoreAttempt:
    """One attempt, from its start to its outcome. Only used on the conductor's thread."""

    def __init__(self, owner: CoreConnector, limit: float, tell: Callable[[CoreConnection | Failure], None]) -> None:
        """Start dialling; `limit` is the attempt's time limit, in seconds."""
        self._owner = owner
        self._limit = limit
        self._tell = tell
        self._started = owner.conductor.now()
        self._moved = False
        self._since = math.inf
        self._until = math.inf
        self._over = False
        self._channel: Any = owner.make_channel(limit)
        self._core: Any = self._channel._channel  # noqa: SLF001 - see `grpcio.py`
        self._core.check_connectivity_state(True)
        self._timer: Timer | None = None
        self._again(self._started + _FIRST_LOOK)

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been polled yet."""
        return not self._over and self._core.check_connectivity_state(False) in (READY, TRANSIENT_FAILURE)

    def abandon(self) -> None:
        """Abandon the attempt; the core closes its socket at its own limit, if not before."""
        if not self._over:
            self._end()
            close_channel(self._channel)

    def _again(self, when: float) -> None:
        self._timer = self._owner.conductor.call_at(when, self._look)

    def _end(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self._owner.conductor.now()
        state = self._core.check_connectivity_state(False)
        self._moved = self._moved or state != IDLE or now - self._started >= _BEGINS_WITHIN
        if self._since < math.inf:
            self._look_at_connection(state, now)
        elif state == READY:
            # After a short-lived connection, wait long enough to see this one break too, even on a busy machine.
            look = _SHORT_LIFE if self._owner.last_life < _SHORT_LIFE else _SETTLE
            self._since, self._until = now, now + min(look, max(0.0, self._started + self._limit - now) / 2)
            self._again(min(self._until, now + _RAREST_LOOK))
        elif state == TRANSIENT_FAILURE:
            self._fail()
        elif state == IDLE and self._moved:
            self._succeed(now)  # it connected and lost the connection again between two polls
        else:
            self._again(_next_look(self._started, now))

    def _look_at_connection(self, state: int, now: float) -> None:
        if state == READY and now < self._until:
            self._again(min(self._until, now + _RAREST_LOOK))
        else:
            self._succeed(self._since)

    def _succeed(self, since: float) -> None:
        self._end()
        connection = CoreConnection(self._channel, since, self._owner, self._limit)
        self._owner.open.add(connection)
        self._owner.made(connection)
        self._tell(connection)

    def _fail(self) -> None:
        self._end()
        failure = self._explain()
        close_channel(self._channel)
        self._tell(failure)

    def _explain(self) -> Failure:
        """Return the reason why the channel failed, which can only be read from the error of a call made on it.

        The call fails at once and never leaves the process. If there is a service config, the call's request is larger
        than the retry buffer, because a retry policy would otherwise retry the call.
        """
        request = _MORE_THAN_THE_RETRY_BUFFER if self._owner.has_service_config else b""
        reason = "the core gave no reason"
        try:
            self._channel.unary_unary(_EXPLAIN_METHOD)(request, wait_for_ready=False, timeout=_EXPLAIN_TIMEOUT)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                reason = reason_in(error.details() or reason)
        return Failure(stage_of(reason), reason)


class CoreConnector:
    """Creates one C-core channel for each attempt."""

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        options: Options,
        compression: grpc.Compression | None,
        policy: ConnectPolicy,
        conductor: Conductor,
    ) -> None:
        """Store the arguments for every attempt's channel; `options` are grpcio's own."""
        self._how = target, credentials, tuple(options), compression
        self.policy = policy
        self.conductor = conductor
        named = first_values(self._how[2])
        self._spreads = spreads_calls(target, named)
        self.has_service_config = "grpc.service_config" in named
        self.fail_fast = False if resolver_configures(target, named) else None
        """The value of `wait_for_ready` that makes grpcio's own calls fail-fast; False costs grpcio microseconds per
        call."""
        self.last_life = math.inf
        self.open: set[CoreConnection] = set()
        self.made: Callable[[CoreConnection], None] = _ignore
        """Called on the conductor with each new connection."""
        self.lost: Callable[[], None] = _ignore
        """Called on the conductor when a call has noticed that its connection has ended."""
        self.redialled: Callable[[], None] = _ignore
        """Called on the conductor each time that the core has redialled by itself (CB-7)."""

    def connect(self, limit: float, tell: Callable[[CoreConnection | Failure], None]) -> CoreAttempt:
        """Start one attempt; when it ends, call `tell` on the conductor with its outcome, unless it was abandoned."""
        return CoreAttempt(self, limit, tell)

    def make_channel(self, limit: float) -> Any:
        """Return a channel that makes one attempt with a time limit of `limit` seconds."""
        target, credentials, options, compression = self._how
        timing = attempt_options(self.policy, limit, spreads=self._spreads)
        return core_channel(
            target, credentials, (("grpc.use_local_subchannel_pool", 1), *timing, *options), compression
        )

    def note_life(self, seconds: float) -> None:
        """Record how many seconds the last connection lasted."""
        self.last_life = seconds

    def forget(self, connection: CoreConnection) -> None:
        """Stop tracking a connection that is being closed."""
        self.open.discard(connection)

    def retire(self) -> None:
        """Close every connection when its last call ends."""
        for connection in tuple(self.open):
            connection.retire()

    def close(self) -> list[threading.Thread]:
        """Close every connection with its calls; return the threads that are still closing them."""
        connections, self.open = self.open, set()
        return [thread for thread in [connection.close() for connection in connections] if thread is not None]


def _next_look(started: float, now: float) -> float:
    pause = max(_FIRST_LOOK, (now - started) * _LOOK_SHARE)
    return now + pause if pause < _RAREST_LOOK else (math.floor(now / _RAREST_LOOK) + 1) * _RAREST_LOOK


def _close_elsewhere(channel: Any) -> threading.Thread:
    """Close a core channel in a separate thread, because closing waits for its calls and for user callbacks."""
    thread = threading.Thread(target=close_channel, args=(channel,), name="grpc-backoff-close", daemon=True)
    with contextlib.suppress(RuntimeError):  # the interpreter is about to exit
        Context().run(thread.start)
    return thread


def _is_anothers(_try_to_connect: bool) -> int:
    raise ValueError("the channel was created before a fork")


def _ignore(*_: object) -> None:
    pass
