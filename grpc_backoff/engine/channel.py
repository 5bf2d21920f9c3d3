"""The base class of both APIs' channels: their settings, multicallables and listeners, and how they are refreshed.

Channels with the same key (SH-1), which says what is dialled and how, share a schedule.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

import grpc

from grpc_backoff.base.base_errors import OptionError, shown
from grpc_backoff.config.channel_settings import policy_values
from grpc_backoff.config.channel_setup import ChannelSetup, Key, Listener, check_listener
from grpc_backoff.decide.connections.happened import load_events
from grpc_backoff.engine.pending import Connections
from grpc_backoff.grpcio.forks import check_core
from grpc_backoff.grpcio.private import inner_credentials, pems_of, refuse_single_use, register_method

if TYPE_CHECKING:
    from grpc_backoff.config.credentials import CredentialsSource
    from grpc_backoff.config.sources import Effective
    from grpc_backoff.engine.environment import ListenersOfChannel
else:
    Effective = ListenersOfChannel = Any  # for programs that evaluate the annotations of a channel

_digests: WeakKeyDictionary[grpc.ChannelCredentials, Hashable] = WeakKeyDictionary()


def channel_key(
    setup: ChannelSetup,
    credentials: grpc.ChannelCredentials | CredentialsSource | None,
    compression: grpc.Compression | None,
) -> Key | None:
    """Return a channel's key, that of its settings if it is insecure; None if the channel shares nothing with others.

    `credentials` are grpc's, or a source of credentials, which itself is part of the key (PO-10).
    """
    if setup.key is None or (credentials is None and compression is None):
        return setup.key
    try:
        return Key(setup.target, setup.key, None if credentials is None else _security(credentials), compression)
    except TypeError:  # what the program passed has no hash
        return None


def _security(credentials: grpc.ChannelCredentials | CredentialsSource) -> Hashable:
    """Return the part of a key that identifies these credentials.

    If they are more than the PEMs of `ssl_channel_credentials`, this is the identity of grpcio's inner object, because
    after `install` a new outer one is made for each channel. The key does not keep that object alive, but the channels
    do that use it; after them, the schedule soon ends as well.
    """
    if not isinstance(credentials, grpc.ChannelCredentials):
        source: Hashable = credentials.identity
        return source
    known = _digests.get(credentials)
    if known is None:
        inner = inner_credentials(credentials)
        known, pems = id(inner), pems_of(inner)
        if pems is not None:
            from grpc_backoff.config.credentials import digest_of  # noqa: PLC0415 - only channels with TLS need it

            known = digest_of(pems)
        _digests[credentials] = known
    return known


_REFRESHED = "refresh_connection() was called"
_ROTATED = "the files of its credentials have changed"


class BaseChannel:
    """What channels of both APIs have in common.

    The multicallables that a channel creates keep working across any number of connections (CH-2).
    """

    _multicallables: ClassVar[Mapping[str, Any]]
    """Multicallable classes, by the name of the method that creates each."""
    _listeners: ListenersOfChannel
    _connections: Connections
    closing = True  # until the constructor has finished

    def _take(
        self,
        setup: ChannelSetup,
        credentials: grpc.ChannelCredentials | CredentialsSource | None,
        compression: grpc.Compression | None,
        *,
        asyncio: bool = False,
    ) -> None:
        """Begin with these settings, if grpcio's core works in this process."""
        if compression is not None and not hasattr(compression, "__int__"):
            raise OptionError("compression", compression, "a grpc.Compression")
        refuse_single_use(credentials)
        self._generation = check_core(setup.target, asyncio=asyncio)
        self.target = setup.target
        self.call_policies = setup.call_policies
        """The retry policies for the channel's calls, by method."""
        self.policy = setup.policy
        """The channel's connect policy."""
        self._values = setup.values
        has_own = setup.clock is not None or setup.rng is not None  # SH-1: one clock
        self._key = None if has_own else channel_key(setup, credentials, compression)
        """The key of the channel's schedule; None for one of its own."""
        self._source = None if credentials is None or isinstance(credentials, grpc.ChannelCredentials) else credentials
        if self._source is not None:
            from grpc_backoff.config.credentials import load_files_checks  # noqa: PLC0415 - few channels have a source
            from grpc_backoff.engine import several_slots  # noqa: F401, PLC0415 - new credentials replace the connection (PO-10)

            load_files_checks()
        if setup.listeners:
            load_events()

    def __copy__(self) -> Self:
        """Return the channel: another object, once collected, would end the connection that both have."""
        return self

    @property
    def policy_values(self) -> Mapping[str, Effective]:
        """The connect policy's values by name, each with its source (BP-3)."""
        return policy_values(self.target, self._values)

    @property
    def _is_inherited(self) -> bool:
        return self._generation.is_over()

    # Beyond grpc's interface.

    def refresh_connection(self) -> None:
        """Replace the channel's connection while it goes on serving (PO-9).

        New calls use the new connection once it is READY; calls that run on the old one continue there. If the attempt
        fails, the old connection goes on serving, and the attempt is repeated with backoff (PO-3). Use this when the
        program learns from another source that the server has moved. It may be called in any state, from any thread,
        any number of times; two replacements start at least INITIAL_BACKOFF apart. Without a connection, and after
        `close`, it does nothing.
        """
        self._refresh(_REFRESHED)

    def _rotate(self) -> None:
        """Replace every connection, because the files of the credentials have changed (PO-10)."""
        self._refresh(_ROTATED)

    def _refresh(self, why: str) -> None:
        if not self.closing and not self._is_inherited:
            self._connections.refresh(why)

    def reset_connect_backoff(self) -> None:
        """Reset the backoff: a sleeping channel dials at once, and the next gap is INITIAL_BACKOFF again (CB-9).

        Use this when the program learns from another source that the network or the server is back. It may be called in
        any state, from any thread, any number of times; after `close` it does nothing.
        """
        if not self.closing and not self._is_inherited:
            self._connections.reset()

    def add_listener(self, listener: Listener) -> None:
        """Register a listener, to be called with every later event from the connection and from retried calls.

        On an asyncio channel, it is called on the event loop and must not block. On a threaded channel, it is called on
        one of the channel's threads; if it blocks, only later events for this channel's listeners are delayed. Its
        exceptions are logged and otherwise ignored (CH-11).

        Raises:
            OptionError: `listener` is not callable, or is a coroutine function.
        """
        check_listener("listener", listener)
        load_events()
        self._listeners.listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener.

        Raises:
            ValueError: `listener` is not registered.
        """
        if listener not in self._listeners.listeners:
            raise ValueError(f"this listener is not registered: {shown(listener)}")
        self._listeners.listeners.remove(listener)

    # The multicallables.

    def unary_unary(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: object = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with one request and one response."""
        return self._make("unary_unary", method, request_serializer, response_deserializer, _registered_method)

    def unary_stream(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: object = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with one request and a stream of responses."""
        return self._make("unary_stream", method, request_serializer, response_deserializer, _registered_method)

    def stream_unary(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: object = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with a stream of requests and one response."""
        return self._make("stream_unary", method, request_serializer, response_deserializer, _registered_method)

    def stream_stream(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: object = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with a stream of requests and a stream of responses."""
        return self._make("stream_stream", method, request_serializer, response_deserializer, _registered_method)

    def _get_registered_call_handle(self, _method: str) -> int:
        """Return what grpc's simple stubs pass on as `_registered_method`: registration is left to each connection."""
        return 1

    def _make(self, arity: str, method: str | bytes, *signature: object) -> object:
        method = method.decode() if isinstance(method, bytes) else method  # as in grpc
        if signature[-1]:
            register_method(method)
        return self._multicallables[arity](self, method, *signature, policy=self.call_policies.of(method))
