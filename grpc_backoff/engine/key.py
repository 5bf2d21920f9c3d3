"""The key of a schedule (SH-1): what is dialled, and how. Channels with the same key share a schedule."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import grpc

from grpc_backoff.config.core_options import first_values
from grpc_backoff.grpcio.private import inner_credentials, pems_of

if TYPE_CHECKING:
    from grpc_backoff.config.channel_settings import ChannelSetup
    from grpc_backoff.config.credentials import CredentialsSource

LOCAL_POOL = "grpc.use_local_subchannel_pool"

_digests: WeakKeyDictionary[grpc.ChannelCredentials, Hashable] = WeakKeyDictionary()


class Key:
    """Identifies what a channel dials, and how. Channels with equal keys share a schedule.

    The parts are the target as given; the credentials (None for an insecure channel, a digest of the PEMs for TLS, or
    else the identity of grpcio's object); the connect policy; the options that are passed on to grpcio's core; and the
    compression. A key is looked up several times for each channel, so its hash is computed once.
    """

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        """Store the parts; the first one is the target.

        Raises:
            TypeError: a part is not hashable.
        """
        self._parts = parts
        self._hash = hash(parts)

    def __eq__(self, other: object) -> bool:
        """Compare all parts."""
        return isinstance(other, Key) and self._hash == other._hash and self._parts == other._parts

    def __hash__(self) -> int:
        """Return the stored hash."""
        return self._hash

    def __repr__(self) -> str:
        """Return a representation without credentials and options, which may contain secrets."""
        return f"Key({self._parts[0]!r})"


def channel_key(
    setup: ChannelSetup,
    credentials: grpc.ChannelCredentials | CredentialsSource | None,
    compression: grpc.Compression | None,
) -> Key | None:
    """Return a channel's key, derived only once for all insecure channels that share their settings.

    To look it up by the settings themselves, as `lru_cache` does, takes 40 times as long, because it hashes them.
    """
    keys = setup.keys if credentials is None else {}
    if compression not in keys:
        policy = setup.policy, setup.pooling
        keys[compression] = key_of(setup.target, credentials, policy, setup.core_options, compression)
    key: Key | None = keys[compression]
    return key


def key_of(
    target: str,
    credentials: grpc.ChannelCredentials | CredentialsSource | None,
    policy: Hashable,
    options: Sequence[tuple[str | bytes, object]],
    compression: grpc.Compression | None,
) -> Key | None:
    """Return a channel's key; None if the channel shares nothing with others.

    It shares nothing if it has a separate pool of subchannels, as in grpcio, or if the value of one of its options
    cannot be hashed. `credentials` are grpc's, or a source of credentials, which itself is part of the key (PO-10).
    `policy` is how the channel connects, and how many connections it has. The order of the options does not matter; if
    a name occurs twice, only the first option counts (CH-9).
    """
    held = first_values(options)
    if held.get(LOCAL_POOL):
        return None
    try:
        security = None if credentials is None else _security(credentials)
        return Key(target, security, policy, frozenset(held.items()), compression)
    except TypeError:
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
