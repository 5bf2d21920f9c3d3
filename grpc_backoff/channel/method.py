"""One of a channel's RPC methods, for both APIs: its retry policy, and the serialization of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import grpc

from grpc_backoff.calls.machine import CallMachine, Metadata
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.record import record

if TYPE_CHECKING:
    from grpc_backoff.config.methods import Retry


@record
class Arguments(NamedTuple):
    """A call's arguments besides its request, as in grpc's multicallables."""

    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _Machines(dict[tuple[bool, bool, bool, bool], CallMachine]):
    """The machines for one method's calls, each created when it is first needed; one serves all calls of its kind.

    A key says whether the calls are retried, and has the machine's `wait_for_ready`, `by_config` and `repeatable`.
    """

    def __init__(self, target: str, method: str, policy: RetryPolicy | None) -> None:
        super().__init__()
        self._of = target, method, policy

    def __missing__(self, kind: tuple[bool, bool, bool, bool]) -> CallMachine:
        (target, method, policy), (retried, *flags) = self._of, kind
        machine = self[kind] = CallMachine(target, method, policy if retried else None, *flags)
        return machine


class Method:
    """The base class for multicallables in both APIs."""

    arity: str
    takes_one_request: bool

    def __init__(
        self,
        channel: Any,
        method: str,
        request_serializer: Any,
        response_deserializer: Any,
        registered: bool | None,
        *,
        policy: RetryPolicy | None = None,
        call_id: str | None = None,
    ) -> None:
        """Store the arguments with which grpc's own multicallable is created on each connection.

        `policy` is the retry policy for the method's calls, None for no retries; `call_id` identifies the calls in
        events.
        """
        self._channel = channel
        self._method = method
        self._signature = (request_serializer, response_deserializer, registered)
        self._policy = policy
        self._call_id = call_id
        self._config = channel.call_policies.service_config.of(method)
        self._sender: Self | None = None
        self._machines = _Machines(channel.target, method, policy)

    def retrying(self, policy: RetryPolicy | None, call_id: str | None = None) -> Self:
        """Return a callable for the same method with another retry policy, or with None for no retries."""
        return type(self)(self._channel, self._method, *self._signature, policy=policy, call_id=call_id)

    @property
    def channel(self) -> Any:
        """The channel that the method belongs to."""
        return self._channel

    @property
    def method(self) -> str:
        """The method's path, `/package.Service/Method`."""
        return self._method

    def serialized(self, request: Any) -> Any:
        """Return a request as the stub would send it; unchanged if the stub has no serializer."""
        serializer = self._signature[0]
        return request if serializer is None else serializer(request)

    @property
    def serializer(self) -> Any:
        """The stub's serializer of requests; None if the stub passes requests that are already serialized."""
        return self._signature[0]

    def of_bytes(self) -> Self:
        """Return a multicallable for the same method that takes serialized requests."""
        serializer, deserializer, registered = self._signature
        if serializer is None:
            return self
        if self._sender is None:
            self._sender = type(self)(self._channel, self._method, None, deserializer, registered)
        return self._sender

    def _freeze(self, request: Any) -> tuple[Self, Any]:
        """Return a multicallable and its request, which is serialized immediately unless its serializer fails."""
        serializer = self._signature[0]
        if serializer is None:
            return self, request
        try:
            frozen = serializer(request)
        except Exception:  # noqa: BLE001 - grpc will get the same error, and handle it
            return self, request
        return self._sender or self.of_bytes(), frozen


def replaced(metadata: Any, instead: Metadata) -> tuple[Any, ...]:
    """Return a call's metadata with these pairs in place of any pairs that have the same keys."""
    keys = {key for key, _ in instead}
    return (*(pair for pair in metadata or () if pair[0] not in keys), *instead)


MultiCallableT = TypeVar("MultiCallableT")


def retrying(multicallable: MultiCallableT, retry: Retry, *, call_id: str | None = None) -> MultiCallableT:
    """Return a stub's method with a retry policy of its own, instead of the channel's (BP-2).

    This works for stubs on both kinds of channel. On a threaded channel, call the method without `await`::

        reply = await retrying(stub.Place, "retry: 5, delay: 1s, backoff: exponential, timeout: 5s")(order)

    Args:
        multicallable: a method of a stub on one of this library's channels.
        retry: a policy, a policy name, or a policy string. It replaces the channel's whole policy.
        call_id: identifies the calls in events, log lines and hooks, for example by an order's number; if None, an id
            is generated for each call.

    Raises:
        TypeError: `multicallable` is not such a method.
        grpc_backoff.OptionError: a `ValueError`: the policy is unknown, or has an invalid value.
    """
    if not isinstance(multicallable, Method):
        kind = type(multicallable)
        raise TypeError(
            f"multicallable={kind.__module__}.{kind.__name__}: expected a method of a stub on a grpc_backoff channel"
        )
    return multicallable.retrying(multicallable.channel.call_policies.named(retry), call_id)
