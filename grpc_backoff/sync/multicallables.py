"""Multicallables that outlive connections (CH-2).

A call takes one of two paths:

* If the channel is READY, the call is fail-fast, and there are no retries, the call goes straight to grpc's
  multicallable on the connection, in the caller's thread (TH-2).
* If the call has to wait or may be repeated, it is a call of this library's own (`call.py`), whose attempts take the
  first path.

Interceptors need no support here, because `grpc.intercept_channel` puts them in front.

A connection is bound to the method when a call first uses it: grpc's multicallable is made on its channel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import grpc

from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.process import notice_fork
from grpc_backoff.decide.connections.dial_machine import READY
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.engine.channel import BaseChannel
from grpc_backoff.engine.method import Arguments, GivenMetadata, Method, is_stream
from grpc_backoff.grpcio.forks import refuse_inherited
from grpc_backoff.grpcio.sync_private import (
    CLOSED_TEXT,
    FailedStream,
    InactiveRpcError,
    channel_to_nowhere,
    end_broken_once_dropped,
    inherited_deadline,
)
from grpc_backoff.sync.attempts import Attempts, BackgroundAttempts, LoneAttempts, Style
from grpc_backoff.sync.call import BlockingCall
from grpc_backoff.sync.call_errors import ForkError
from grpc_backoff.sync.core_connector import NOTABLE, CoreConnection, Entry, enter, left_of
from grpc_backoff.sync.environment import CallEnvironment
from grpc_backoff.sync.future_call import FutureCall, FutureRendezvous, StreamRendezvous
from grpc_backoff.sync.pool import ConnectionPool

if TYPE_CHECKING:
    from grpc_backoff.policy.hedging import CallPolicy


class CallingChannel(BaseChannel):
    """What a method's calls need from their channel.

    Attributes:
        calls: the environment that the channel's calls share.
        picks: whether each call asks which connection to take.
        single_threaded: whether response streams are served only by the threads that read them.
        times_calls: whether its connections note when their calls begin (LV-2).
    """

    calls: CallEnvironment
    picks: bool
    single_threaded: bool
    times_calls: bool
    _pool: ConnectionPool

    def connection(self, avoid: Container[object] | None = None) -> CoreConnection | None:
        """Return the connection for the next call, one to avoid only if no other serves; None if there is none."""
        notice_fork()
        return None if self.closing or self._generation.over else self._pool.connection(avoid)

    def refuse(self) -> None:
        """Raise grpcio's ValueError if the channel is closed, or ForkError if it was created before a fork."""
        if self.closing:
            raise ValueError(CLOSED_TEXT)
        notice_fork()
        if self._generation.over:
            refuse_inherited(self.target, self._generation, ForkError)


class MultiCallable(Method):
    """One method of one channel, across any number of connections."""

    channel: CallingChannel

    def __init__(self, channel: CallingChannel, method: str, *signature: Any, **keywords: Any) -> None:
        """Take the arguments of `Method`."""
        super().__init__(channel, method, *signature, **keywords)
        self._binding = threading.RLock()
        # Keep both in one tuple, because a reader in another thread must never see a connection with another one's
        # multicallable.
        self._bound: tuple[CoreConnection, Any] | None = None
        self._notes = False
        """Whether any of grpc's multicallables notes the messages of response streams."""
        self._several: dict[CoreConnection, object] = {}
        """grpc's multicallables on the connections among which each call picks (PO-6, PO-8); replaced, not changed."""
        if self._hedged:
            from grpc_backoff.sync import hedging  # noqa: PLC0415 - few methods are hedged

            self._hedging = hedging
        if not self.takes_one_request:
            from grpc_backoff.sync.replay import Replay  # noqa: PLC0415 - few methods have a stream of requests

            self._make_replay = Replay
        self._plain = self._policy is None and not self._config.wait_for_ready and self._config.timeout is None
        self._inline = self._plain and not channel.times_calls
        """Whether a blocking call may enter its connection without a record of when it began (LV-2)."""

    # Entering a connection.

    def enter(self, avoid: Container[object] | None = None) -> Entry | None:
        """Enter a connection, one to avoid only if no other serves, and return it; None if there is none."""
        before, since = self._bound, monotonic()
        entry = None if before is None else enter(*before, since)
        if entry is None:
            bound = self._bind(before, avoid)
            entry = None if bound is None else enter(*bound, since)
        return entry

    def _bind(
        self, before: tuple[CoreConnection, object] | None, avoid: Container[object] | None
    ) -> tuple[CoreConnection, object] | None:
        """Return the current connection with grpc's multicallable on it; None if there is no new connection."""
        connection = self.channel.connection(avoid)
        if connection is not None and self.channel.picks:
            return connection, self._several.get(connection) or self._bind_several(connection)
        if connection is None or (before is not None and connection is before[0]):
            return None
        with self._binding:
            bound = self._bound
            if bound is None or bound[0] is not connection:
                bound = self._bound = connection, self._on(connection)
            return bound  # and not `self._bound`, which `note_no_more` may have cleared

    def _bind_several(self, connection: CoreConnection) -> object:
        """Return grpc's multicallable on one of several connections and keep it; forget those on retired ones."""
        with self._binding:
            kept = {connection: method for connection, method in self._several.items() if not connection.calls.retired}
            kept[connection] = method = self._on(connection)
            self._several = kept
        return method

    def _on(self, connection: CoreConnection) -> object:
        notes = not connection.served
        self._notes |= notes
        # grpc's calls keep these functions, and programs may keep calls (CB-10).
        note = partial(_note, ref(self), ref(connection)) if notes else None
        hear = partial(_hear, ref(connection)) if connection.times_calls else None
        return getattr(connection.channel, self.arity)(self.method, *self._telling(hear, note))

    def note_no_more(self) -> None:
        """Make grpc's multicallables anew, because a message has been noted. Thread-safe."""
        if self._notes:
            self._notes, self._bound, self._several = False, None, {}

    # The path of a call on a READY channel.

    def _in_background(self, style: Style, request: object, arguments: Arguments) -> object:
        """Make a call that runs in the background."""
        since = monotonic()
        entry = self.enter() if self._plain and not arguments.wait_for_ready else None
        if entry is None:
            return self._begin_in_background(style, request, _left(arguments, since))
        try:
            call = BackgroundAttempts(self.enter, style, request, arguments).make(entry, arguments.timeout, ())
            entry.follow(call)
            if style == "__call__":
                end_broken_once_dropped(call)
        except BaseException:
            entry.leave()
            raise
        return call

    # The other path.

    def _begin_blocking(self, style: Style, request: object, arguments: Arguments) -> object:
        """Make a call that blocks this thread while it waits or is repeated."""
        channel, policy, hedges = self.channel, self._policy, self._hedged
        channel.refuse()
        conductor = channel.calls.conductor
        if hedges and (conductor.is_here() or not conductor.is_served()):
            # No other thread runs the conductor's timers: this is a finalizer that runs on the conductor (TH-6), or no
            # thread can be started (TH-5).
            policy, hedges = None, False
        arguments = _lasting(arguments)
        if hedges:
            setup = self._setup(BackgroundAttempts, "future", policy, request, arguments)
        else:
            setup = self._setup(Attempts, style, policy, request, arguments)
        if setup is None:
            return self._reject(style, request, arguments)
        if not hedges:
            return BlockingCall(setup).run()
        response, call = self._hedging.run(setup)
        return (response, call) if style == "with_call" else response

    def _begin_in_background(self, style: Style, request: object, arguments: Arguments) -> object:
        """Make a call that runs in the background while it waits or is repeated."""
        channel = self.channel
        channel.refuse()
        arguments = _lasting(arguments)
        if channel.single_threaded and self.arity == "unary_stream":
            # The end of such a stream is known only when its reader reaches it, so it waits for its connection here,
            # but is not repeated.
            setup = self._setup(LoneAttempts, style, None, request, arguments)
            if setup is None:
                return self._reject(style, request, arguments)
            try:
                return BlockingCall(setup).run()
            except InactiveRpcError as error:
                return FailedStream(error)
        channel.calls.conductor.require()
        setup = self._setup(BackgroundAttempts, style, self._policy, request, arguments)
        if setup is None:
            return self._reject(style, request, arguments)
        call: FutureCall = self._hedging.CALLS[self.arity](setup) if self._hedged else FutureCall(setup)
        made: object = FutureRendezvous(call) if style == "future" else StreamRendezvous(call)
        call.start()
        return made

    def _setup(
        self, kind: type[Attempts], style: Style, policy: CallPolicy | None, request: Any, arguments: Arguments
    ) -> CallSetup[Attempts] | None:
        """Return the arguments of a call that may wait or be repeated; None if grpc rejects it."""
        may_break = policy is None and kind is not LoneAttempts and self.channel._pool.has_connection
        machine = self._rules(policy, arguments.wait_for_ready, may_break=may_break)
        frozen = self._freeze(request, arguments)
        if frozen is None:
            return None
        sender, request = frozen
        calls, replay = self.channel.calls, None
        if not self.takes_one_request and not machine.handed_over:
            replay = self._make_replay(request, self.serializer, calls.replay_limit)
            sender, request = self.of_bytes(), None
        attempts = kind(sender.enter, style, request, arguments, replay)
        timeout, limit = _bounded(arguments.timeout), self._config.timeout
        return CallSetup(calls, machine, attempts, timeout, limit, self._call_id, request)

    def sends(self, request: object) -> bool:
        """Return whether grpc sends this request, or reads requests from it."""
        if self.takes_one_request:
            return self.serializer is None and type(request) is bytes
        return is_stream(request)

    def _reject(self, style: Style, request: object, arguments: Arguments) -> object:
        """Make a call that grpc rejects before it sends anything, so that the caller gets grpc's own error."""
        # A stream waits for ready, because otherwise the lack of a connection could fail it first.
        method = getattr(channel_to_nowhere(), self.arity)(self.method, *self._signature)
        return getattr(method, style)(
            request, **arguments._replace(wait_for_ready=not self.takes_one_request)._asdict()
        )


def _note(to_method: ref[MultiCallable], to_connection: ref[CoreConnection]) -> None:
    """Record a message of a response stream; later calls of the method need not do so."""
    connection, method = to_connection(), to_method()
    if connection is not None:
        connection.delivered()
    if method is not None:
        method.note_no_more()


def _hear(to_connection: ref[CoreConnection]) -> None:
    """Note that something has arrived from the peer."""
    connection = to_connection()
    if connection is not None:
        connection.hear()


def _lasting(arguments: Arguments) -> Arguments:
    """Return arguments with metadata that can be read again, and that the caller does not change; see `_freeze`."""
    return arguments if arguments.metadata is None else arguments._replace(metadata=tuple(arguments.metadata))


def _left(arguments: Arguments, since: float) -> Arguments:
    """Return a call's arguments with what is left of its timeout, which counts from the time `since`; see `left_of`."""
    timeout = left_of(arguments.timeout, since)
    return arguments if timeout is arguments.timeout else arguments._replace(timeout=timeout)


def _bounded(timeout: float | None) -> float | None:
    """Return the timeout, or the time remaining on the inbound call being served, whichever is less."""
    deadline = inherited_deadline()
    if deadline is None:
        return timeout
    left = deadline - time.time()
    return left if timeout is None else min(timeout, left)


class _OneResponse(MultiCallable):
    """The methods of a callable with one response; see the multicallables of `grpc`."""

    def __call__(
        self,
        request: object,
        timeout: float | None = None,
        metadata: GivenMetadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method and return the response."""
        bound = self._bound
        if bound is None or wait_for_ready or not self._inline:
            arguments = Arguments(timeout, metadata, credentials, wait_for_ready, compression)
            return self._blocking("__call__", request, arguments)
        # `entered` and `ended`, inlined: while a call waits for its answer, their code drops out of the
        # processor's caches, so each function that the next call runs through would cost several microseconds (TH-2).
        connection, method = bound
        token, calls, since = object(), connection.calls, monotonic()
        entered = False
        try:
            calls.tokens.add(token)
            entered = not calls.retired and connection.check(False) == READY
            if timeout is not None and (passed := monotonic() - since) >= NOTABLE:  # `left_of`, inlined
                timeout -= passed
            if entered:
                response = method(
                    request,
                    timeout=timeout,  # by keyword, because tracers that wrap grpc's methods look for keywords
                    metadata=metadata or (),  # never None, because some add pairs to what there is
                    credentials=credentials,
                    wait_for_ready=connection.fail_fast,
                    compression=compression,
                )
                connection.served = True
                return response
        except grpc.RpcError as error:
            connection.failed(error.code(), error.details())
            raise
        except ValueError as error:  # the channel was closed
            if entered:
                raise connection.refusal(error) from None
        finally:
            calls.tokens.discard(token)
            connection.used = connection.clock_now()
            if calls.retired:
                connection.ended(token)
        arguments = Arguments(timeout, metadata, credentials, wait_for_ready, compression)
        return self._blocking("__call__", request, arguments)

    def with_call(
        self,
        request: object,
        timeout: float | None = None,
        metadata: GivenMetadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method and return the response and the call."""
        arguments = Arguments(timeout, metadata, credentials, wait_for_ready, compression)
        return self._blocking("with_call", request, arguments)

    def _blocking(self, style: Style, request: object, arguments: Arguments) -> object:
        """Make a call that blocks this thread."""
        since = monotonic()
        entry = self.enter() if self._plain and not arguments.wait_for_ready else None
        if entry is None:
            return self._begin_blocking(style, request, _left(arguments, since))
        connection = entry.connection
        try:
            timeout, metadata, credentials, _, compression = arguments
            answer = getattr(entry.method, style)(
                request,
                timeout=entry.left_of(timeout),
                metadata=metadata or (),
                credentials=credentials,
                wait_for_ready=connection.fail_fast,
                compression=compression,
            )
        except grpc.RpcError as error:
            entry.failed(error)
            raise
        except ValueError as error:  # the channel was closed
            raise connection.refusal(error) from None
        else:
            connection.served = True
            return answer
        finally:
            entry.leave()

    def future(
        self,
        request: object,
        timeout: float | None = None,
        metadata: GivenMetadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method in the background and return the call."""
        arguments = Arguments(timeout, metadata, credentials, wait_for_ready, compression)
        return self._in_background("future", request, arguments)


class _ManyResponses(MultiCallable):
    """The method of a callable with a stream of responses; see the multicallables of `grpc`."""

    def __call__(
        self,
        request: object,
        timeout: float | None = None,
        metadata: GivenMetadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method and return the call, which is an iterator over the responses."""
        arguments = Arguments(timeout, metadata, credentials, wait_for_ready, compression)
        return self._in_background("__call__", request, arguments)


class _UnaryUnary(_OneResponse, grpc.UnaryUnaryMultiCallable):  # type: ignore[type-arg]
    arity = "unary_unary"
    takes_one_request = True


class _UnaryStream(_ManyResponses, grpc.UnaryStreamMultiCallable):  # type: ignore[type-arg]
    arity = "unary_stream"
    takes_one_request = True


class _StreamUnary(_OneResponse, grpc.StreamUnaryMultiCallable):  # type: ignore[type-arg]
    arity = "stream_unary"
    takes_one_request = False

    def __call__(self, request_iterator: object, *arguments: Any, **named: Any) -> object:  # type: ignore[override] # as in grpc
        return super().__call__(request_iterator, *arguments, **named)

    def with_call(self, request_iterator: object, *arguments: Any, **named: Any) -> object:  # type: ignore[override] # as in grpc
        return super().with_call(request_iterator, *arguments, **named)

    def future(self, request_iterator: object, *arguments: Any, **named: Any) -> object:  # type: ignore[override] # as in grpc
        return super().future(request_iterator, *arguments, **named)


class _StreamStream(_ManyResponses, grpc.StreamStreamMultiCallable):  # type: ignore[type-arg]
    arity = "stream_stream"
    takes_one_request = False

    def __call__(self, request_iterator: object, *arguments: Any, **named: Any) -> object:  # type: ignore[override] # as in grpc
        return super().__call__(request_iterator, *arguments, **named)


MULTICALLABLES: dict[str, type[MultiCallable]] = {
    kind.arity: kind for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
}
"""Multicallable classes, by the name of the channel method that creates each."""
