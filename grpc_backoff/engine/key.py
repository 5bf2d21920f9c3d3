"""The key of a schedule (SH-1): what is dialled, and how. Channels with the same key share a schedule."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import grpc

from grpc_backoff.config.channel_settings import Key
from grpc_backoff.grpcio.private import inner_credentials, pems_of

if TYPE_CHECKING:
    from grpc_backoff.config.channel_settings import ChannelSetup
    from grpc_backoff.config.credentials import CredentialsSource

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
