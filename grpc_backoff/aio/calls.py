"""Multicallables that outlive connections (CH-2), and the interceptors that stand behind a user's own.

A call goes one of four ways:

* the channel is READY and nobody intercepts: straight to grpc's multicallable on the connection (CH-5);
* there is no connection: a waiting call (`gate.py`) that makes the real one later;
* its method has a retry policy, or it may enter a connection as it breaks and is to wait for the next one then: a
  retried call (`retrying.py`), each try of which goes one of the two ways above;
* somebody intercepts: through grpc's interceptor machinery on a channel that never connects, the front. Its last
  interceptor is one of ours and makes the call one of the ways above. So interceptors run at once, as on a plain
  channel, see the wait and its failures, can answer without any connection, and cannot make a dead connection dial.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio

from grpc_backoff.aio.gate import WAITING_CALLS, WaitingCall
from grpc_backoff.aio.requests import EndingRequests
from grpc_backoff.aio.retried_calls import RETRIED_CALLS
from grpc_backoff.aio.styles import StreamRequest
from grpc_backoff.connection.events import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc_backoff.aio.channel import Channel
    from grpc_backoff.aio.retrying import Pairs
    from grpc_backoff.connection.core import CoreConnection
    from grpc_backoff.policy.retry import RetryPolicy

__all__ = ["MULTICALLABLES", "MultiCallable", "last_interceptors"]

_CREDENTIALS_NEED_TLS = "Call credentials are only valid on secure channels"


class MultiCallable:
    """One method of one channel, over any number of connections."""

    arity: str
    takes_one_request: bool

    def __init__(
        self,
        channel: Channel,
        method: str,
        request_serializer: Any,
        response_deserializer: Any,
        registered: bool | None,
        *,
        intercepted: bool,
        policy: RetryPolicy | None = None,
    ) -> None:
        """Remember what grpc's own multicallable is made from; one is made for each connection.

        `policy` is how its calls are retried, None for not at all.
        """
        self._channel = channel
        self._manager = channel.manager
        self._method = method
        self._signature = (request_serializer, response_deserializer, registered)
        self._connection: CoreConnection | None = None
        self._direct: Callable[..., grpc.aio.Call]
        self._sender: MultiCallable | None = None
        front = channel.front if intercepted else None
        self._front = None if front is None else self._on_channel(front)
        self._policy = policy
        self._config = channel.service_config.of(method)
        self._plain = policy is None and not intercepted and not self._config.wait_for_ready

    def _on_channel(self, channel: grpc.aio.Channel) -> Callable[..., grpc.aio.Call]:
        made: Callable[..., grpc.aio.Call] = getattr(channel, self.arity)(self._method, *self._signature)
        return made

    def _on_connection(self, connection: CoreConnection) -> Callable[..., grpc.aio.Call]:
        made = self._on_channel(connection.channel)
        return made if self.takes_one_request else _ending_requests(made)

    def retrying(self, policy: RetryPolicy) -> Self:
        """Return a callable for the same method whose calls are retried in another way."""
        intercepted = self._front is not None
        return type(self)(self._channel, self._method, *self._signature, intercepted=intercepted, policy=policy)

    @property
    def channel(self) -> Channel:
        """The channel that it belongs to."""
        return self._channel

    def _dispatch(
        self,
        request: Any,
        timeout: float | None,
        metadata: Any,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> Any:
        way = self._go if self._front is None else self._through_front
        return way(request, timeout, metadata, credentials, wait_for_ready, compression)

    def _go(
        self,
        request: Any,
        timeout: float | None,
        metadata: Any,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> Any:
        patient = bool(self._config.wait_for_ready if wait_for_ready is None else wait_for_ready)
        # A patient call may enter a connection as that breaks. One that has waited enters what was just looked at, and
        # is spared the price of being repeatable.
        if self._policy is None and not (patient and self._bind()):
            return self._send(request, timeout, metadata, credentials, wait_for_ready, compression)
        return self._retry(request, timeout, metadata, credentials, patient, compression)

    def _through_front(
        self,
        request: Any,
        timeout: float | None,
        metadata: Any,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> Any:
        assert self._front is not None, "made for interceptors only"
        token = _ROUTE.set(self)  # the interceptors run in a task, which inherits this
        try:
            return self._front(
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
        """Make the call that the interceptors let through, perhaps under another method's name."""
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        callee = self
        if method != self._method:
            policy = self._channel.call_policies.of(method)
            callee = type(self)(self._channel, method, *self._signature, intercepted=False, policy=policy)
        return callee._go(  # noqa: SLF001 - the same class
            request, details.timeout, details.metadata, details.credentials, details.wait_for_ready, None
        )

    def _send(
        self,
        request: Any,
        timeout: float | None,
        metadata: Any,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> Any:
        # CH-5: what every call on a READY channel pays for stands here and in `began`, and nowhere else.
        connection = self._connection
        if (
            connection is None
            or connection is not self._manager.connection
            or not connection.alive()
            or self._channel.closing
        ):
            connection = None if self._channel.closing else self._bind()
            if connection is None:
                return self._wait(request, timeout, metadata, credentials, wait_for_ready, compression)
        call = self._direct(
            request,
            timeout=timeout,
            metadata=metadata,
            credentials=credentials,
            wait_for_ready=False,  # the waiting is ours, see `_wait`
            compression=compression,
        )
        connection.began(call)
        return call

    def _bind(self) -> CoreConnection | None:
        """Make grpc's multicallable on the connection that stands now, and return that; None if there is none."""
        connection = self._manager.live_connection()
        if connection is not None and connection is not self._connection:
            self._direct = self._on_connection(connection)
        self._connection = connection
        return connection

    def _wait(
        self,
        request: Any,
        timeout: float | None,
        metadata: Any,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> grpc.aio.Call:
        channel = self._channel
        channel.refuse_if_closed()
        if credentials is not None and not channel.secure:
            raise grpc.aio.UsageError(_CREDENTIALS_NEED_TLS)
        config = self._config
        patient = bool(config.wait_for_ready if wait_for_ready is None else wait_for_ready)
        # The caller may use both again before there is a connection; a plain call would be on its way by then.
        metadata = None if metadata is None else grpc.aio.Metadata(*metadata)
        sender, frozen = self._freeze(request)

        def begin(remaining: float | None) -> grpc.aio.Call | None:
            # On a channel that is closing too. The core is not to wait a second time: a call that enters a connection
            # as it breaks would wait in there for the core's own next attempt, long after the channel is READY again.
            connection = sender._bind()  # noqa: SLF001 - the same class
            if connection is None:
                return None
            call = sender._direct(  # noqa: SLF001
                frozen,
                timeout=remaining,
                metadata=metadata,
                credentials=credentials,
                wait_for_ready=False,
                compression=compression,
            )
            connection.began(call)
            return call

        call = WAITING_CALLS[self.arity](channel.gate, begin, timeout, limit=config.timeout, patient=patient)
        if isinstance(call, StreamRequest):
            call.takes_writes = request is None
        self._manager.want()
        if not patient and self._manager.state is State.TRANSIENT_FAILURE:
            call.fail_soon()  # CH-3
        return call

    def _retry(
        self,
        request: Any,
        timeout: float | None,
        metadata: Any,
        credentials: grpc.CallCredentials | None,
        patient: bool,
        compression: grpc.Compression | None,
    ) -> grpc.aio.Call:
        metadata = None if metadata is None else grpc.aio.Metadata(*metadata)
        sender, frozen = self._freeze(request) if self.takes_one_request else (self._of_bytes(), None)

        entered: CoreConnection | None = None

        def make(seconds: float | None, instead: Pairs) -> grpc.aio.Call:
            nonlocal entered
            pairs = _replaced(metadata, instead) if instead else metadata
            call: grpc.aio.Call = sender._send(  # noqa: SLF001 - the same class
                frozen, seconds, pairs, credentials, patient, compression
            )
            entered = None if isinstance(call, WaitingCall) else sender._connection  # noqa: SLF001
            return call

        def found_none() -> bool:
            return entered is not None and entered.redialled_in_vain()

        common = self._channel.retries, self._policy, self._method, make, timeout, self._config.timeout
        kind = RETRIED_CALLS[self.arity]
        if self.takes_one_request:
            return kind(*common, found_none=found_none if patient else None)
        serialize = self._signature[0] or _as_it_is
        return kind(*common, serialize, request, found_none=found_none if patient else None)

    def _of_bytes(self) -> MultiCallable:
        """Return the multicallable that sends the same method's requests as bytes."""
        serializer, deserializer, registered = self._signature
        if serializer is None:
            return self
        if self._sender is None:
            self._sender = type(self)(self._channel, self._method, None, deserializer, registered, intercepted=False)
        return self._sender

    def _freeze(self, request: Any) -> tuple[MultiCallable, Any]:
        """Return one request as the bytes that it is now, and the multicallable that sends bytes."""
        serializer = self._signature[0]
        if serializer is None or not self.takes_one_request:
            return self, request
        try:
            frozen = serializer(request)
        except Exception:  # noqa: BLE001 - it will raise again in grpc's hands, which know what follows from it
            return self, request
        return self._of_bytes(), frozen


def _ending_requests(method: Callable[..., grpc.aio.Call]) -> Callable[..., grpc.aio.Call]:
    def call(requests: Any, **how: Any) -> grpc.aio.Call:
        if not isinstance(requests, AsyncIterable):
            return method(requests, **how)
        ending = EndingRequests(requests)
        made = method(ending, **how)
        ending.end_with(made)
        return made

    return call


def _as_it_is(request: bytes) -> bytes:
    return request


def _replaced(metadata: grpc.aio.Metadata | None, instead: Pairs) -> grpc.aio.Metadata:
    """Return the metadata with these pairs in the place of others under the same keys."""
    keys = {key for key, _ in instead}
    return grpc.aio.Metadata(*(pair for pair in metadata or () if pair[0] not in keys), *instead)


_ROUTE: ContextVar[MultiCallable] = ContextVar("grpc_backoff_route")


class _UnaryUnary(MultiCallable, grpc.aio.UnaryUnaryMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "unary_unary"
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
    ) -> grpc.aio.UnaryUnaryCall[Any, Any]:
        """Call the method; see `grpc.aio.UnaryUnaryMultiCallable`."""
        call: grpc.aio.UnaryUnaryCall[Any, Any] = (self._dispatch if wait_for_ready or not self._plain else self._send)(
            request, timeout, metadata, credentials, wait_for_ready, compression
        )
        return call


class _UnaryStream(MultiCallable, grpc.aio.UnaryStreamMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "unary_stream"
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
    ) -> grpc.aio.UnaryStreamCall[Any, Any]:
        """Call the method; see `grpc.aio.UnaryStreamMultiCallable`."""
        call: grpc.aio.UnaryStreamCall[Any, Any] = (
            self._dispatch if wait_for_ready or not self._plain else self._send
        )(request, timeout, metadata, credentials, wait_for_ready, compression)
        return call


class _StreamUnary(MultiCallable, grpc.aio.StreamUnaryMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "stream_unary"
    takes_one_request = False

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamUnaryCall[Any, Any]:
        """Call the method; see `grpc.aio.StreamUnaryMultiCallable`."""
        call: grpc.aio.StreamUnaryCall[Any, Any] = (
            self._dispatch if wait_for_ready or not self._plain else self._send
        )(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)
        return call


class _StreamStream(MultiCallable, grpc.aio.StreamStreamMultiCallable):  # type: ignore[type-arg] # generic at run time since 1.7x only
    arity = "stream_stream"
    takes_one_request = False

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamStreamCall[Any, Any]:
        """Call the method; see `grpc.aio.StreamStreamMultiCallable`."""
        call: grpc.aio.StreamStreamCall[Any, Any] = (
            self._dispatch if wait_for_ready or not self._plain else self._send
        )(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)
        return call


MULTICALLABLES: dict[str, type[MultiCallable]] = {
    kind.arity: kind for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
}
"""The class of a multicallable by the name of the channel method that makes it."""


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


def last_interceptors() -> list[grpc.aio.ClientInterceptor]:
    """Return the front's last interceptors, one for each arity: grpc files one object under one arity only."""
    return [_LastUnaryUnary(), _LastUnaryStream(), _LastStreamUnary(), _LastStreamStream()]
