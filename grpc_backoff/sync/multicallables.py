"""Multicallables that outlive connections (CH-2).

A call goes one of two ways:

* the channel is READY, the call is fail-fast, and there are no retries: straight to grpc's multicallable on the
  connection, in the caller's thread (TH-2);
* it has to wait, or may be repeated: one of our calls (`call.py`), whose attempts go the way above.

Interceptors need no support here: `grpc.intercept_channel` puts them in front.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.calls.machine import CallMachine, Metadata
from grpc_backoff.channel.method import Arguments, Method, replaced
from grpc_backoff.sync.call import BlockingCall, Entry, FutureCall, Terms
from grpc_backoff.sync.core import CoreConnection
from grpc_backoff.sync.grpcio import inherited_deadline
from grpc_backoff.sync.rendezvous import FutureRendezvous, StreamRendezvous
from grpc_backoff.sync.replay import Replay

if TYPE_CHECKING:
    from grpc_backoff.policy.retry import RetryPolicy
    from grpc_backoff.sync.channel import Channel

__all__ = ["MULTICALLABLES", "MultiCallable"]


_BLOCKING_WAYS = ("__call__", "with_call")


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
        self._plain = policy is None and not self._config.wait_for_ready
        self._binding = threading.RLock()
        # Together: a reader in another thread must not see one without the other.
        self._bound: tuple[CoreConnection, Any] | None = None

    # The path of a call on a READY channel.

    def enter(self) -> Entry | None:
        """Enter the current connection; None if there is none."""
        bound = self._bound
        if bound is not None:
            connection, method = bound
            token = object()
            if connection.entered(token):
                return connection, token, method
        return self._enter_anew() if self._bind(bound) else None

    def _enter_anew(self) -> Entry | None:
        bound, token = self._bound, object()
        return (bound[0], token, bound[1]) if bound is not None and bound[0].entered(token) else None

    def _bind(self, before: tuple[CoreConnection, Any] | None) -> bool:
        """Create grpc's multicallable on the current connection; return whether that is a different one."""
        connection = self._channel.connection()
        if connection is None or (before is not None and connection is before[0]):
            return False
        with self._binding:
            if self._bound is None or self._bound[0] is not connection:
                self._bound = connection, getattr(connection.channel, self.arity)(self._method, *self._signature)
        return True

    def _follow(self, entry: Entry, way: str, arguments: Arguments) -> Any:
        """Make a call that runs in the background, on a connection that it has entered."""
        connection, token, _ = entry
        try:
            call = _Attempts(self, way, arguments).make(entry, arguments.timeout, ())
        except BaseException:
            connection.ended(token)
            raise
        _follow(call, connection, token)
        return call

    # The other path.

    def _slowly(self, way: str, arguments: Arguments, *, blocking: bool) -> Any:
        """Make a call that may have to wait or be repeated; `way` is its name in grpc's multicallable."""
        channel, given = self._channel, arguments.wait_for_ready
        channel.refuse()
        wait_for_ready = bool(self._config.wait_for_ready if given is None else given)
        # The end of a single-threaded stream is known only when its reader reaches it: such a stream waits for its
        # connection, and is not repeated.
        single = not blocking and channel.single_threaded and self.arity == "unary_stream"
        policy = None if single else self._policy
        # A wait-for-ready call may be assigned to a connection as that breaks, and is then repeated. A call that has
        # waited gets a connection that was just observed, and is spared the cost of being repeatable.
        repeatable = wait_for_ready and not single and (policy is not None or channel.connection() is not None)
        machine = self._machine(policy, wait_for_ready, by_config=given is None, repeatable=repeatable)
        # The caller may reuse both before there is a connection; a plain call would already have been sent.
        if arguments.metadata is not None:
            arguments = arguments._replace(metadata=tuple(arguments.metadata))
        sender, arguments, replay = self._kept(arguments, machine)
        attempts = _Attempts(sender, way, arguments, replay, single=single)
        timeout, limit = _least(arguments.timeout, _inherited()), self._config.timeout
        terms = Terms(channel.calls, machine, attempts, timeout, limit, self._call_id, arguments.request)
        if blocking or single:
            blocked = BlockingCall(terms)
            if replay is not None:
                replay.overfull = blocked.commit
            return blocked.run()
        call = FutureCall(terms)
        if replay is not None:
            replay.overfull = call.commit
        made: Any = FutureRendezvous(call) if way == "future" else StreamRendezvous(call)
        call.start()
        return made

    def _kept(self, arguments: Arguments, machine: CallMachine) -> tuple[MultiCallable, Arguments, Replay | None]:
        """Return the multicallable and the arguments with which the requests can be sent as often as necessary."""
        if self.takes_one_request:
            sender, request = self._freeze(arguments.request)
            return sender, arguments._replace(request=request), None
        if machine.handed_over:
            return self, arguments, None
        replay = Replay(arguments.request, self._signature[0], self._channel.calls.replay_limit)
        return self._of_bytes(), arguments._replace(request=None), replay


class _Attempts:
    """Makes the attempts of one call."""

    __slots__ = ("_arguments", "_multicallable", "_replay", "_single", "_way")

    def __init__(
        self,
        multicallable: MultiCallable,
        way: str,
        arguments: Arguments,
        replay: Replay | None = None,
        *,
        single: bool = False,
    ) -> None:
        self._multicallable = multicallable
        self._way = way
        self._arguments = arguments
        self._replay = replay
        self._single = single

    def enter(self) -> Entry | None:
        return self._multicallable.enter()

    def make(self, entry: Entry, seconds: float | None, instead: Metadata) -> Any:
        connection, _, method = entry
        request, _, metadata, credentials, _, compression = self._arguments
        if self._replay is not None:
            request = self._replay.attempt()
        if instead:
            metadata = replaced(metadata, instead)
        if self._way not in _BLOCKING_WAYS or self._multicallable.arity.endswith("stream"):
            connection.streamed = True
        # The core must not wait a second time: a call assigned to a connection as it breaks would wait there for the
        # core's own next attempt, long after the channel is READY again.
        call = getattr(method, self._way)(request, seconds, metadata, credentials, False, compression)
        if self._single:  # its caller already holds the call
            token = object()
            connection.calls.add(token)
            _follow(call, connection, token)
        return call

    def committed(self) -> None:
        if self._replay is not None:
            self._replay.release()


def _follow(call: Any, connection: CoreConnection, token: object) -> None:
    """Remove a call from its connection once it has ended."""
    # Not the call itself: grpcio cancels a call that its caller drops, so nothing else may reference it.
    state = call._state  # noqa: SLF001 - `code()` of a single-threaded one raises before its end

    def ended() -> None:
        code = state.code
        if code is grpc.StatusCode.OK:
            connection.served = True
        else:
            connection.failed(code)
        connection.ended(token)

    if not call.add_callback(ended):
        ended()


def _inherited() -> float | None:
    """Return the seconds left of the call being served here, if there is one."""
    deadline = inherited_deadline()
    return None if deadline is None else deadline - time.time()


def _least(*spans: float | None) -> float | None:
    return min((span for span in spans if span is not None), default=None)


class _OneResponse(MultiCallable):
    """The methods of a callable with one response; see the multicallables of `grpc`."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method, and return the response."""
        entry = self.enter() if self._plain and not wait_for_ready else None
        if entry is None:
            arguments = Arguments(request, timeout, metadata, credentials, wait_for_ready, compression)
            return self._slowly("__call__", arguments, blocking=True)
        connection, token, method = entry
        try:
            response = method(request, timeout, metadata, credentials, False, compression)
        except grpc.RpcError as error:
            connection.failed(error.code())
            raise
        else:
            connection.served = True
            return response
        finally:
            connection.ended(token)

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method, and return the response and the call."""
        entry = self.enter() if self._plain and not wait_for_ready else None
        if entry is None:
            arguments = Arguments(request, timeout, metadata, credentials, wait_for_ready, compression)
            return self._slowly("with_call", arguments, blocking=True)
        connection, token, method = entry
        try:
            answer = method.with_call(request, timeout, metadata, credentials, False, compression)
        except grpc.RpcError as error:
            connection.failed(error.code())
            raise
        else:
            connection.served = True
            return answer
        finally:
            connection.ended(token)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method, and return the call, which runs in the background."""
        arguments = Arguments(request, timeout, metadata, credentials, wait_for_ready, compression)
        entry = self.enter() if self._plain and not wait_for_ready else None
        if entry is None:
            return self._slowly("future", arguments, blocking=False)
        return self._follow(entry, "future", arguments)


class _ManyResponses(MultiCallable):
    """The method of a callable with a stream of responses; see the multicallables of `grpc`."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Call the method, and return the call, which iterates over the responses."""
        arguments = Arguments(request, timeout, metadata, credentials, wait_for_ready, compression)
        entry = self.enter() if self._plain and not wait_for_ready else None
        if entry is None:
            return self._slowly("__call__", arguments, blocking=False)
        return self._follow(entry, "__call__", arguments)


class _UnaryUnary(_OneResponse, grpc.UnaryUnaryMultiCallable):  # type: ignore[type-arg]
    arity = "unary_unary"
    takes_one_request = True


class _UnaryStream(_ManyResponses, grpc.UnaryStreamMultiCallable):  # type: ignore[type-arg]
    arity = "unary_stream"
    takes_one_request = True


class _StreamUnary(_OneResponse, grpc.StreamUnaryMultiCallable):  # type: ignore[type-arg]
    arity = "stream_unary"
    takes_one_request = False

    def __call__(self, request_iterator: Any, *how: Any, **named: Any) -> Any:  # type: ignore[override] # as in grpc
        return super().__call__(request_iterator, *how, **named)

    def with_call(self, request_iterator: Any, *how: Any, **named: Any) -> Any:  # type: ignore[override] # as in grpc
        return super().with_call(request_iterator, *how, **named)

    def future(self, request_iterator: Any, *how: Any, **named: Any) -> Any:  # type: ignore[override] # as in grpc
        return super().future(request_iterator, *how, **named)


class _StreamStream(_ManyResponses, grpc.StreamStreamMultiCallable):  # type: ignore[type-arg]
    arity = "stream_stream"
    takes_one_request = False

    def __call__(self, request_iterator: Any, *how: Any, **named: Any) -> Any:  # type: ignore[override] # as in grpc
        return super().__call__(request_iterator, *how, **named)


MULTICALLABLES: dict[str, type[MultiCallable]] = {
    kind.arity: kind for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
}
"""The class of a multicallable, by the name of the channel method that creates it."""
