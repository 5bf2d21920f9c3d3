"""One of a channel's RPC methods, for both APIs: its retry policy, and which of its calls grpc would reject.

grpc rejects some calls before it sends anything: wrong metadata, a request that is not bytes. A call that waits for a
connection, or that is retried, must not hide such a mistake behind its wait. So it is recognized when the call is made,
and grpc itself gets the call, on a channel that never connects; the caller then gets grpc's own error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from grpc_backoff.base.base_errors import OptionError, shown
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.decide.calls.call_machine import CallMachine

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from grpc_backoff.engine.channel import BaseChannel
    from grpc_backoff.policy.hedging import CallPolicy, HedgingPolicy, Repeats
else:
    BaseChannel = CallPolicy = Repeats = Any  # for programs that evaluate the annotations of a method, or `retrying`

GivenMetadata = Iterable[tuple[str, str | bytes]]
"""Metadata, as a program gives it: pairs, or a `grpc.aio.Metadata`."""

_IN_KEYS = "0123456789abcdefghijklmnopqrstuvwxyz_.-"
"""The characters that the core accepts in keys of metadata."""
_COMPRESSIONS = tuple(grpc.Compression)


class Arguments(NamedTuple):
    """A call's arguments besides its request, as in grpc's multicallables."""

    timeout: float | None
    metadata: GivenMetadata | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None

    @property
    def are_rejected(self) -> bool:
        """Whether grpc rejects these arguments; the metadata must be a collection that can be read again."""
        return (
            (self.compression and self.compression not in _COMPRESSIONS)
            or (self.credentials is not None and not hasattr(self.credentials, "_credentials"))
            or (self.metadata is not None and not all(map(_is_legal, self.metadata)))
        )


class _Machines(dict[tuple[bool | None, bool], CallMachine]):
    """The machines for a method's calls with one policy, each created when it is first needed.

    A key has the argument `wait_for_ready` of a call, and whether the call is repeatable.
    """

    def __init__(self, target: str, method: str, policy: CallPolicy | None, *, waits: bool) -> None:
        """Begin without machines; `waits` is the `wait_for_ready` of calls without that argument."""
        super().__init__()
        self._of = target, method, policy
        self._waits = waits

    def __missing__(self, kind: tuple[bool | None, bool]) -> CallMachine:
        (target, method, policy), (wait_for_ready, repeatable) = self._of, kind
        waits, by_config = self._waits if wait_for_ready is None else wait_for_ready, wait_for_ready is None
        machine: CallMachine
        if _is_hedging(policy):
            from grpc_backoff.decide.calls.hedging_machine import HedgingMachine  # noqa: PLC0415 - few calls are hedged

            machine = self[kind] = HedgingMachine(target, method, None, waits, by_config, hedging=policy)
        elif policy is not None:
            from grpc_backoff.decide.calls.retry_machine import RetryMachine  # noqa: PLC0415 - it is loaded: see `Method`

            machine = self[kind] = RetryMachine(target, method, policy, waits, by_config, repeatable)
        else:
            machine = self[kind] = CallMachine(target, method, None, waits, by_config, repeatable)
        return machine


def _is_hedging(policy: CallPolicy | None) -> TypeIs[HedgingPolicy]:
    if policy is None:
        return False
    from grpc_backoff.policy.hedging import HedgingPolicy  # noqa: PLC0415 - few calls have a policy

    return isinstance(policy, HedgingPolicy)


def load_retries() -> None:
    """Import what failures of calls with a policy need, before there is one (CH-12)."""
    from grpc_backoff.config import hooks  # noqa: F401, PLC0415
    from grpc_backoff.decide.calls import retry_machine  # noqa: F401, PLC0415 - few programs have a policy
    from grpc_backoff.decide.calls.server_hint import load_hints  # noqa: PLC0415
    from grpc_backoff.engine import several_slots  # noqa: F401, PLC0415 - a retry may seek another connection (RT-15)

    load_hints()


class Method:
    """The base class for multicallables in both APIs."""

    arity: str
    takes_one_request: bool

    def __init__(
        self,
        channel: BaseChannel,
        method: str,
        request_serializer: Callable[[object], bytes] | None,
        response_deserializer: Callable[[bytes], object] | None,
        registered: bool | None,
        *,
        policy: CallPolicy | None = None,
        call_id: str | None = None,
    ) -> None:
        """Take the arguments with which grpc's own multicallable is created on each connection.

        `policy` is the policy for the method's calls, None for no retries; `call_id` identifies the calls in events.
        Calls with a stream of requests are never hedged (HG-8).
        """
        self._method = method.encode()  # which other libraries read; raises grpc's own error unless this is text
        self.channel = channel
        """The channel that the method belongs to."""
        self.method = method
        """The method's path, `/package.Service/Method`."""
        self.serializer = request_serializer
        """The stub's serializer of requests; None if the stub passes requests that are already serialized."""
        self._signature = (request_serializer, response_deserializer, registered)
        self._hedged = _is_hedging(policy)
        if _is_hedging(policy) and not self.takes_one_request:
            channel.call_policies.warn_of_stream(method, policy)
            self._hedged, policy = False, None
        if policy is not None:
            load_retries()
        self._policy = policy
        self._call_id = call_id
        self._config = channel.call_policies.service_config.of(method)
        self._sender: Self | None = None
        target, waits = channel.target, bool(self._config.wait_for_ready)
        self._plain_machines = plain = _Machines(target, method, None, waits=waits)
        self._machines = plain if policy is None else _Machines(target, method, policy, waits=waits)

    def retrying(self, policy: CallPolicy | None, call_id: str | None = None) -> Self:
        """Return a callable for the same method with another policy, or with None for no retries.

        Raises:
            OptionError: calls with a stream of requests are to be hedged.
        """
        if _is_hedging(policy) and not self.takes_one_request:
            raise OptionError("retry", policy, "a retry policy, because calls with a stream of requests are not hedged")
        return type(self)(self.channel, self.method, *self._signature, policy=policy, call_id=call_id)

    def serialized(self, request: object) -> Any:
        """Return a request as the stub would send it; unchanged if the stub has no serializer."""
        return request if self.serializer is None else self.serializer(request)

    def _telling(
        self, hear: Callable[[], object] | None, answered: Callable[[], object] | None
    ) -> tuple[object, object, bool | None]:
        """Return the arguments for a multicallable of grpc's that calls these functions for each message that arrives.

        `hear` is for all messages (LV-1), and `answered` for those of response streams, because other calls are
        answered when they end (CB-7); None for either if it is not wanted.
        """
        receivers = [tell for tell in (hear, answered if self.arity.endswith("stream") else None) if tell is not None]
        if not receivers:
            return self._signature
        _, deserializer, registered = self._signature

        def deserialized(message: bytes) -> object:
            for tell in receivers:
                tell()
            return message if deserializer is None else deserializer(message)

        return self.serializer, deserialized, registered

    def of_bytes(self) -> Self:
        """Return a multicallable for the same method that takes serialized requests."""
        _, deserializer, registered = self._signature
        if self.serializer is None:
            return self
        if self._sender is None:
            self._sender = type(self)(self.channel, self.method, None, deserializer, registered)
        return self._sender

    @abstractmethod
    def sends(self, request: object) -> bool:
        """Return whether grpc sends this request, or reads requests from it."""

    def _rules(self, policy: CallPolicy | None, wait_for_ready: bool | None, *, may_break: bool) -> CallMachine:
        """Return the rules for a call with the method's policy, or with None, and with this argument.

        A wait-for-ready call is repeated if the connection breaks just as the call is assigned to it. A call that has
        to wait first gets a connection that was just observed, so it is spared the cost of being repeatable:
        `may_break` is whether there is a connection.
        """
        waits = bool(self._config.wait_for_ready if wait_for_ready is None else wait_for_ready)
        repeatable = waits and (policy is not None or may_break)
        machines = self._plain_machines if policy is None else self._machines
        return machines[None if wait_for_ready is None else waits, repeatable]

    def _freeze(self, request: object, arguments: Arguments) -> tuple[Self, object] | None:
        """Return a multicallable and its request, which is serialized immediately; None if grpc rejects the call.

        The caller may reuse the request, and the metadata, before there is a connection. A plain call would already
        have been sent.
        """
        sender, frozen, serializer = self, request, self.serializer
        if serializer is not None and self.takes_one_request:
            try:
                frozen = serializer(request)
            except Exception:  # noqa: BLE001 - grpc will get the same error, and handle it
                sender = self
            else:
                sender = self._sender or self.of_bytes()
        return None if arguments.are_rejected or not sender.sends(frozen) else (sender, frozen)


def is_stream(requests: object) -> bool:
    """Return whether requests can be read from this object; if not, grpc ends the call at once."""
    return any(hasattr(requests, name) for name in ("__next__", "__iter__", "__aiter__", "__getitem__"))


def _is_legal(pair: Iterable[object]) -> bool:
    """Return whether grpc accepts this as a pair of metadata."""
    try:
        key, value = pair
        if not (key := _text(key)) or key.strip(_IN_KEYS):
            return False
        if key.endswith("-bin"):
            return isinstance(value, bytes)
        value = _text(value)
        return bool(value.isascii() and value.isprintable())
    except (AttributeError, TypeError, ValueError):  # not a pair, or not text
        return False


def _text(value: object) -> Any:
    """Return a metadata key or value as text; an object that is neither bytes nor None is returned unchanged."""
    return value.decode("latin-1") if isinstance(value, bytes) else "" if value is None else value


MultiCallableT = TypeVar("MultiCallableT")


def retrying(multicallable: MultiCallableT, retry: Repeats, *, call_id: str | None = None) -> MultiCallableT:
    """Return a stub's method with a retry policy of its own, instead of the channel's (BP-2).

    This works for stubs on both kinds of channel. On a threaded channel, call the method without `await`::

        reply = await retrying(stub.Place, "retry: 5, delay: 1s, backoff: exponential, timeout: 5s")(order)

    Args:
        multicallable: a method of a stub on one of this library's channels.
        retry: a retry or hedging policy, a policy name, or a policy string. It replaces the channel's whole policy.
        call_id: identifies the calls in events, log lines and hooks, for example by an order's number; if None, an id
            is generated for each call.

    Raises:
        TypeError: `multicallable` is not such a method.
        grpc_backoff.OptionError: a `ValueError`: the policy is unknown, or has an invalid value; or it is a hedging
            policy, and the method takes a stream of requests.
    """
    if not isinstance(multicallable, Method):
        raise TypeError(f"multicallable={shown(multicallable)}: expected a method of a stub on a grpc_backoff channel")
    from grpc_backoff.config.methods import read_policy  # noqa: PLC0415 - it needs whatever a text may say

    return multicallable.retrying(read_policy("retry", retry, multicallable.channel.call_policies.config), call_id)
