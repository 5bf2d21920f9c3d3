"""Multicallables that outlive connections (CH-2).

A call takes one of three paths:

* If the channel is READY, the call is fail-fast, and there are no interceptors or retries, the call goes straight to
  grpc's multicallable on the connection (CH-5).
* If the call has to wait or may be repeated, it is a call of this library's own (`call.py`), whose attempts take the
  first path.
* If there are interceptors, which may be added and removed at any time, the call passes through grpc's interceptor
  machinery on a channel that never connects (`interceptor_channel.py`). The last interceptor is this library's own and
  passes the call on to `forward`, which makes it on one of the first two paths. So interceptors run at once, as on a
  plain channel. They see the wait and its failures, can answer without a connection, and cannot make a dead connection
  redial.

A connection is bound to the method when a call first uses it: grpc's multicallable is made on its channel.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, _get_running_loop  # the public function raises without a loop: it is slower
from collections.abc import Callable, Container
from functools import partial
from typing import Any
from weakref import ref

import grpc
import grpc.aio

from grpc_backoff.aio.call import CALL_CLASSES
from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.aio.core_connector import CoreConnection
from grpc_backoff.aio.environment import CallEnvironment
from grpc_backoff.aio.finished import make_failable
from grpc_backoff.aio.interceptor_channel import LISTS, InterceptorChannel, call_through, channel_to_nowhere
from grpc_backoff.aio.loops import refuse_elsewhere
from grpc_backoff.aio.pool import ConnectionPool, Share
from grpc_backoff.base.process import notice_fork
from grpc_backoff.decide.calls.call_machine import Metadata, replaced
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.engine.channel import BaseChannel
from grpc_backoff.engine.method import Arguments, GivenMetadata, Method, is_stream
from grpc_backoff.grpcio.aio_private import READY_NUMBER, core_call
from grpc_backoff.grpcio.forks import refuse_inherited

_CREDENTIALS_NEED_TLS = "Call credentials are only valid on secure channels"


class CallingChannel(BaseChannel):
    """What a method's calls need from their channel; it also has the lists of interceptors that `LISTS` names.

    Attributes:
        loop: the event loop that the channel belongs to.
        calls: the environment that the channel's calls share.
        picks: whether each call asks which connection to take.
    """

    loop: AbstractEventLoop
    calls: CallEnvironment
    picks: bool
    _interceptor_channel: InterceptorChannel
    _pool: ConnectionPool
    _secure: bool
    _connections: Share

    def refuse_elsewhere(self) -> None:
        """Raise WrongLoopError on a loop other than the channel's, or ForkError in the child of a fork."""
        notice_fork()
        if self._generation.over or _get_running_loop() is not self.loop:
            refuse_inherited(self.target, self._generation)
            refuse_elsewhere(self.loop, self.target)

    def refuse_if_closed(self) -> None:
        """Raise grpc's own error if the channel is closed."""
        if self.closing:
            raise grpc.aio.UsageError("Channel is closed.")


class MultiCallable(Method):
    """One method of one channel, across any number of connections."""

    channel: CallingChannel

    def __init__(self, channel: CallingChannel, method: str, *signature: Any, **keywords: Any) -> None:
        super().__init__(channel, method, *signature, **keywords)
        self._loop = channel.loop
        self._owner = channel._connections.key
        self._interceptors = LISTS[self.arity]
        self._intercepted: Callable[..., grpc.aio.Call] | None = None
        self._connection: CoreChannel | None = None
        """The connection that was bound last."""
        self._direct: Callable[..., grpc.aio.Call]
        """The method on that connection."""
        self._straight: CoreChannel | None = None
        """The same connection, if the next call may enter it without asking for one (CH-5)."""
        self._several: dict[CoreChannel, Callable[..., grpc.aio.Call]] = {}
        """The method on the connections among which each call picks (PO-6, PO-8)."""
        if not self.takes_one_request:
            from grpc_backoff.aio import ending_requests, request_streams  # noqa: PLC0415 - few methods have a stream of them

            self._ending = ending_requests.ending_requests
            self._call_class = request_streams.CALL_CLASSES[self.arity]
        elif self._hedged:
            from grpc_backoff.aio.hedging import HEDGED_CALL_CLASSES  # noqa: PLC0415 - few methods are hedged

            self._call_class = HEDGED_CALL_CLASSES[self.arity]
        else:
            self._call_class = CALL_CLASSES[self.arity]
        config, always = self._config, channel._interceptor_channel.always
        self._plain = self._policy is None and not always and not config.wait_for_ready and config.timeout is None

    def _make_call(self, request: object, arguments: Arguments) -> object:
        """Make a call through the interceptors if there are any."""
        channel = self.channel
        channel.refuse_elsewhere()  # a fork's child may run on a copy of the loop
        through, interceptors = channel._interceptor_channel, getattr(channel, self._interceptors)
        if not (through.always or interceptors):
            return self._begin(request, arguments)
        through.arrange(self.arity, interceptors)
        if self._intercepted is None:
            self._intercepted = self._on_channel(through.channel)
        return call_through(self._intercepted, request, arguments, self.forward)

    def forward(self, details: grpc.aio.ClientCallDetails, request: object) -> object:
        """Make the call that the interceptors have passed on; they may have changed its method."""
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        callee = self
        if method != self.method:
            callee = getattr(self.channel, self.arity)(method, *self._signature)
        arguments = Arguments(details.timeout, details.metadata, details.credentials, details.wait_for_ready, None)
        return callee._begin(request, arguments)

    def _begin(self, request: object, arguments: Arguments) -> object:
        """Make a call directly on the connection, or as one that may wait or be repeated."""
        channel, waits, policy = self.channel, arguments.wait_for_ready, self._policy
        wait_for_ready = bool(self._config.wait_for_ready if waits is None else waits)
        timeout, limit = arguments.timeout, self._config.timeout
        channel.refuse_if_closed()
        if policy is None and not wait_for_ready and limit is None:
            connection = self.connection()
            if connection is not None:
                return self._enter(connection, request, arguments)
        if arguments.credentials is not None and not channel._secure:
            raise grpc.aio.UsageError(_CREDENTIALS_NEED_TLS)
        machine = self._rules(policy, waits, may_break=policy is None and channel._pool.has_connection)
        if arguments.metadata is not None:  # which the caller may reuse
            arguments = arguments._replace(metadata=grpc.aio.Metadata(*arguments.metadata))
        frozen = self._freeze(request, arguments)
        if frozen is None:
            return self._reject(request, arguments)
        if policy is None and not wait_for_ready:
            channel._connections.want()  # before the call is made, while the peer answers
        sender, request = frozen
        setup = CallSetup(channel.calls, machine, sender, timeout, limit, self._call_id, request, arguments)
        return self._call_class(setup)

    def sends(self, request: object) -> bool:
        """Return whether grpc sends this request; for None, or if the serializer fails, it sends an empty message."""
        if self.takes_one_request:
            return self.serializer is not None or request is None or type(request) is bytes
        return request is None or is_stream(request)

    def _reject(self, request: object, arguments: Arguments) -> object:
        """Make a call that grpc rejects before it sends anything, so that the caller gets grpc's own error."""
        method = self._on_channel(channel_to_nowhere(self.channel._interceptor_channel.credentials))
        # A stream waits for ready, because otherwise the lack of a connection could fail it first.
        return method(request, **arguments._replace(wait_for_ready=not self.takes_one_request)._asdict())

    # Attempts.

    def make_attempt(
        self,
        request: object,
        arguments: Arguments,
        seconds: float | None,
        metadata: Metadata,
        avoid: Container[object] | None = None,
    ) -> tuple[grpc.aio.Call, CoreChannel] | None:
        """Make an attempt with a timeout in seconds, even on a closing channel.

        `metadata` replaces the caller's with the same keys. A connection to avoid is used only if no other one serves;
        None stands for a call that has just been made.

        Return grpc's own call and the connection on which it was made, or None if there is no connection.
        """
        connection = self._straight
        if connection is None or connection.retired or connection.check(False) != READY_NUMBER:
            connection = self.connection(avoid)
            if connection is None:
                return None
        sent = grpc.aio.Metadata(*replaced(arguments.metadata, metadata)) if metadata else arguments.metadata
        _, _, credentials, waits, compression = arguments
        return self._enter(connection, request, Arguments(seconds, sent, credentials, waits, compression)), connection

    def connection(self, avoid: Container[object] | None = None) -> CoreChannel | None:
        """Return the current connection, bound to the method; None if there is none; `avoid` as in `make_attempt`."""
        channel, connection = self.channel, self._connection
        if connection is not None and not channel.picks:
            # After the first answer, it is bound once more.
            is_bound = connection is self._straight or not connection.served
            if is_bound and not connection.retired and connection.check(False) == READY_NUMBER:
                return connection
        connection = channel._connections.connection(avoid) if channel._pool.has_connection else None
        if connection is None:
            self._connection = self._straight = None
        elif connection is not self._connection or connection.served:
            direct = self._several.get(connection) or self._bind_to(connection)
            self._direct, self._connection = direct, connection
            # With several connections, each call asks which one to take (PO-6, PO-8).
            self._straight = connection if connection.served and not channel.picks else None
        return connection

    def _bind_to(self, connection: CoreChannel) -> Callable[..., grpc.aio.Call]:
        timed = connection if isinstance(connection, CoreConnection) and connection.times_calls else None
        # First: it raises if the method's name is invalid.
        receivers = connection.hear if timed else None, None if connection.served else connection.note_answer
        made: Any = self._on_channel(connection.channel, *receivers)
        # A bound method, because calling an object by its `__call__` would first collect the keywords in a dictionary.
        direct = made.__call__ if self.takes_one_request else self._ending(made)
        if timed is not None:
            direct = _timed(direct, timed, self.channel.calls.now)
        if self.channel.picks and connection.served:
            self._several = {other: method for other, method in self._several.items() if not other.retired}
            self._several[connection] = direct
        return direct

    def _on_channel(
        self,
        channel: grpc.aio.Channel,
        hear: Callable[[], object] | None = None,
        answered: Callable[[], object] | None = None,
    ) -> Callable[..., grpc.aio.Call]:
        """Return the method on a channel of grpc's own; the functions are those of `_telling`."""
        made: Callable[..., grpc.aio.Call] = getattr(channel, self.arity)(self.method, *self._telling(hear, answered))
        return made

    def _enter(self, connection: CoreChannel, request: object, arguments: Arguments) -> grpc.aio.Call:
        """Make grpc's own call on the connection that was bound last; there, it is always fail-fast.

        If the connection breaks just as a wait-for-ready call is assigned to it, the core would keep the call waiting
        for the core's own next attempt, long after this channel is READY again.
        """
        call = self._direct(
            request,
            timeout=arguments.timeout,
            metadata=arguments.metadata,
            credentials=arguments.credentials,
            wait_for_ready=False,
            compression=arguments.compression,
        )
        connection.began(call, self._owner)
        return call


def _timed(
    method: Callable[..., grpc.aio.Call], connection: CoreConnection, now: Callable[[], float]
) -> Callable[..., grpc.aio.Call]:
    """Return a method whose calls tell their connection when they have ended, and can be failed (LV-2, PO-2)."""

    def call(request: object, **keywords: object) -> grpc.aio.Call:
        began = now()
        made = method(request, **keywords)
        made.add_done_callback(partial(connection.timed_call_ended, began))
        make_failable(made)
        return made

    return call


class _OneRequest(MultiCallable):
    takes_one_request = True

    def __call__(
        self,
        request: object,
        *,
        timeout: float | None = None,
        metadata: GivenMetadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method; see the multicallables of `grpc.aio`."""
        # CH-5: all the overhead of a call on a READY channel is here and in `CoreChannel.ended`. `connection` and
        # `began` are inlined, because their code drops out of the processor's caches while a call waits for its answer,
        # so each function that the next call runs through would cost a microsecond or two.
        channel, connection = self.channel, self._straight
        if (
            connection is None
            or wait_for_ready
            or not self._plain
            or getattr(channel, self._interceptors)
            or _get_running_loop() is not self._loop
            or channel.closing
            or connection.retired
            or connection.check(False) != READY_NUMBER
        ):
            return self._make_call(request, Arguments(timeout, metadata, credentials, wait_for_ready, compression))
        call = self._direct(
            request,
            timeout=timeout,
            metadata=metadata,
            credentials=credentials,
            wait_for_ready=False,
            compression=compression,
        )
        connection.running += 1
        connection.owners[ref(call, connection.forget)] = self._owner
        core_call(call).add_done_callback(connection.ended)
        return call


class _RequestStream(MultiCallable):
    takes_one_request = False

    def __call__(
        self,
        request_iterator: object = None,
        timeout: float | None = None,
        metadata: GivenMetadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method; see the multicallables of `grpc.aio`."""
        return self._make_call(request_iterator, Arguments(timeout, metadata, credentials, wait_for_ready, compression))


class _UnaryUnary(_OneRequest, grpc.aio.UnaryUnaryMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "unary_unary"


class _UnaryStream(_OneRequest, grpc.aio.UnaryStreamMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "unary_stream"


class _StreamUnary(_RequestStream, grpc.aio.StreamUnaryMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "stream_unary"


class _StreamStream(_RequestStream, grpc.aio.StreamStreamMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "stream_stream"


MULTICALLABLES: dict[str, type[MultiCallable]] = {
    kind.arity: kind for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
}
"""Multicallable classes, by the name of the channel method that creates each."""
