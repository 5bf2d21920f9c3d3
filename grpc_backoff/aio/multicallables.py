"""Multicallables that outlive connections (CH-2), and the interceptors that come after a program's own.

A call goes one of three ways:

* the channel is READY, the call is fail-fast, and there are no interceptors or retries: straight to grpc's
  multicallable on the connection (CH-5);
* it has to wait, or may be repeated: one of our calls (`call.py`), whose attempts go the way above;
* there are interceptors, which may be added and removed at any time: through grpc's interceptor machinery on a channel
  that never connects, the interceptor channel (`front.py`). Its last interceptor is one of ours and makes the call in
  one of the ways above. So interceptors run at once, as on a plain channel, see the wait and its failures, can answer
  without a connection, and cannot make a dead connection redial.
"""

from __future__ import annotations

from asyncio import _get_running_loop  # the public one raises if there is none, which is slower
from collections.abc import AsyncIterable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from grpc_backoff.aio.call import CALLS, MakeEarly, Terms
from grpc_backoff.aio.front import LISTS
from grpc_backoff.aio.requests import EndingRequests
from grpc_backoff.calls.machine import Metadata
from grpc_backoff.channel.method import Arguments, Method, replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc_backoff.aio.channel import Channel
    from grpc_backoff.aio.connection import CallConnection, EarlyConnection
    from grpc_backoff.policy.retry import RetryPolicy

__all__ = ["LAST_INTERCEPTORS", "MULTICALLABLES", "MultiCallable"]

_CREDENTIALS_NEED_TLS = "Call credentials are only valid on secure channels"


class MultiCallable(Method):
    """One method of one channel, across any number of connections."""

    _channel: Channel

    def __init__(
        self,
        channel: Channel,
        method: str,
        request_serializer: Any,
        response_deserializer: Any,
        registered: bool | None,
        *,
        policy: RetryPolicy | None = None,
        call_id: str | None = None,
    ) -> None:
        """See `Method`."""
        super().__init__(
            channel, method, request_serializer, response_deserializer, registered, policy=policy, call_id=call_id
        )
        self._loop = channel.loop
        self._manager = channel._manager
        self._owner = channel._share.key
        self._interceptors = LISTS[self.arity]
        self._connection: CallConnection | None = None
        self._direct: Callable[..., grpc.aio.Call]
        self._on_front: Callable[..., grpc.aio.Call] | None = None
        self._plain = policy is None and not channel._front.always and not self._config.wait_for_ready

    def _on_channel(self, channel: grpc.aio.Channel) -> Callable[..., grpc.aio.Call]:
        made: Callable[..., grpc.aio.Call] = getattr(channel, self.arity)(self._method, *self._signature)
        return made

    def _on_connection(self, connection: EarlyConnection) -> Callable[..., grpc.aio.Call]:
        made = self._on_channel(connection.channel)
        return made if self.takes_one_request else _ending_requests(made)

    # CH-5: the overhead of every call on a READY channel is here, in `__call__` and in `began`, and nowhere else.

    def _ready(self) -> CallConnection | None:
        """Return the connection that calls may use right now, with grpc's multicallable created on it."""
        if _get_running_loop() is not self._loop:
            self._channel.refuse_elsewhere()
        connection = self._connection
        if connection is not None and connection is self._manager.connection and connection.alive():
            return None if self._channel.closing else connection
        return None if self._channel.closing else self._bind()

    def _bind(self) -> CallConnection | None:
        """Create grpc's multicallable on the current connection, and return the connection; None if there is none."""
        connection = self._connection
        if connection is not None and connection is self._manager.connection and connection.alive():
            return connection
        connection = self._channel._share.connection()
        if connection is not None and connection is not self._connection:
            self._direct = self._on_connection(connection)
        self._connection = connection
        return connection

    # The other ways.

    def _dispatch(self, arguments: Arguments) -> Any:
        if _get_running_loop() is not self._loop:
            self._channel.refuse_elsewhere()
        channel = self._channel
        intercepted = channel._front.always or getattr(channel, self._interceptors)
        return self._through_front(arguments) if intercepted else self._make_call(arguments)

    def _through_front(self, arguments: Arguments) -> Any:
        front = self._channel._front
        front.arrange(self.arity, getattr(self._channel, self._interceptors))
        if self._on_front is None:
            self._on_front = self._on_channel(front.channel)
        request, timeout, metadata, credentials, wait_for_ready, compression = arguments
        token = _ROUTE.set(self)  # interceptors run in a task, which inherits this
        try:
            return self._on_front(
                request,
                timeout=timeout,
                metadata=metadata,
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            )
        finally:
            _ROUTE.reset(token)

    def forward(self, details: grpc.aio.ClientCallDetails, request: Any) -> Any:
        """Make the call that the interceptors let through, perhaps with another method's name."""
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        callee = self
        if method != self._method:
            policy = self._channel.call_policies.of(method)
            callee = type(self)(self._channel, method, *self._signature, policy=policy)
        return callee._make_call(
            Arguments(request, details.timeout, details.metadata, details.credentials, details.wait_for_ready, None)
        )

    def _make_call(self, arguments: Arguments) -> Any:
        """Make a call that may have to wait or be repeated; or one on the connection if neither is possible."""
        given = arguments.wait_for_ready
        wait_for_ready = bool(self._config.wait_for_ready if given is None else given)
        connection = self._ready() if self._policy is None else None  # one that is retried looks when it begins
        if connection is not None and not wait_for_ready:
            return self._enter(connection, arguments, arguments.timeout, arguments.metadata)
        channel = self._channel
        channel.refuse_if_closed()
        if arguments.credentials is not None and not channel._secure:
            raise grpc.aio.UsageError(_CREDENTIALS_NEED_TLS)
        # A wait-for-ready call may be assigned to a connection as that breaks, and is then repeated. A call that has
        # waited gets a connection that was just observed, and is spared the cost of being repeatable.
        kept = connection is not None or self._policy is not None
        machine = self._machine(
            self._policy, wait_for_ready, by_config=given is None, repeatable=wait_for_ready and kept
        )
        # The caller may reuse both before there is a connection; a plain call would already have been sent.
        if arguments.metadata is not None:
            arguments = arguments._replace(metadata=grpc.aio.Metadata(*arguments.metadata))
        own: dict[str, Any]
        early: MakeEarly | None = None
        if self.takes_one_request:
            sender, frozen = self._freeze(arguments.request)
            arguments = Arguments(frozen, *arguments[1:])
            make, own = partial(sender._make_attempt, arguments), {"request": frozen}
            if self._policy is None and not wait_for_ready:
                early = partial(sender._make_early, arguments)
        elif machine.handed_over:
            make, own = partial(self._make_attempt, arguments), {"requests": arguments.request}
        else:
            make = partial(self._of_bytes()._make_attempt, arguments._replace(request=None))
            own = {"requests": arguments.request, "serialize": self._signature[0]}
        terms = Terms(channel._calls, machine, make, arguments.timeout, self._config.timeout, self._call_id, early)
        return CALLS[self.arity](terms, **own)

    def _make_attempt(
        self, arguments: Arguments, seconds: float | None, instead: Metadata
    ) -> tuple[grpc.aio.Call, CallConnection] | None:
        """Make an attempt of a call on the current connection, even on a closing channel."""
        connection = self._bind()
        if connection is None:
            return None
        metadata = grpc.aio.Metadata(*replaced(arguments.metadata, instead)) if instead else arguments.metadata
        return self._enter(connection, arguments, seconds, metadata), connection

    def _make_early(self, arguments: Arguments, seconds: float | None) -> grpc.aio.Call | None:
        """Make a call in the attempt in flight, if the target is proven (CB-7)."""
        attempt = self._channel._share.early_connection()
        if attempt is None:
            return None
        self._connection, self._direct = None, self._on_connection(attempt)
        return self._enter(attempt, arguments, seconds, arguments.metadata)

    def _enter(
        self, connection: EarlyConnection, arguments: Arguments, timeout: float | None, metadata: Any
    ) -> grpc.aio.Call:
        """Make grpc's own call on a connection.

        The core must not wait a second time: a call assigned to a connection as it breaks would wait there for the
        core's own next attempt, long after the channel is READY again.
        """
        call = self._direct(
            arguments.request,
            timeout=timeout,
            metadata=metadata,
            credentials=arguments.credentials,
            wait_for_ready=False,
            compression=arguments.compression,
        )
        connection.began(call, self._owner)
        return call


def _ending_requests(method: Callable[..., grpc.aio.Call]) -> Callable[..., grpc.aio.Call]:
    def call(requests: Any, **how: Any) -> grpc.aio.Call:
        if not isinstance(requests, AsyncIterable):
            return method(requests, **how)
        ending = EndingRequests(requests)
        made = method(ending, **how)
        ending.end_with(made)
        return made

    return call


_ROUTE: ContextVar[MultiCallable] = ContextVar("grpc_backoff_route")


class _OneRequest(MultiCallable):
    takes_one_request = True

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method; see the multicallables of `grpc.aio`."""
        roundabout = wait_for_ready or not self._plain or getattr(self._channel, self._interceptors)
        connection = None if roundabout else self._ready()
        if connection is None:
            return self._dispatch(Arguments(request, timeout, metadata, credentials, wait_for_ready, compression))
        call = self._direct(
            request,
            timeout=timeout,
            metadata=metadata,
            credentials=credentials,
            wait_for_ready=False,
            compression=compression,
        )
        connection.began(call, self._owner)
        return call


class _RequestStream(MultiCallable):
    takes_one_request = False

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method; see the multicallables of `grpc.aio`."""
        roundabout = wait_for_ready or not self._plain or getattr(self._channel, self._interceptors)
        connection = None if roundabout else self._ready()
        arguments = Arguments(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)
        return (
            self._dispatch(arguments) if connection is None else self._enter(connection, arguments, timeout, metadata)
        )


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
"""The class of a multicallable, by the name of the channel method that creates it."""


class _LastUnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return _ROUTE.get().forward(client_call_details, request)


class _LastUnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return _ROUTE.get().forward(client_call_details, request)


class _LastStreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return _ROUTE.get().forward(client_call_details, request_iterator)


class _LastStreamStream(grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return _ROUTE.get().forward(client_call_details, request_iterator)


LAST_INTERCEPTORS: dict[str, grpc.aio.ClientInterceptor] = {
    "unary_unary": _LastUnaryUnary(),
    "unary_stream": _LastUnaryStream(),
    "stream_unary": _LastStreamUnary(),
    "stream_stream": _LastStreamStream(),
}
"""The last interceptor of each arity: grpc registers an object under one arity only."""
