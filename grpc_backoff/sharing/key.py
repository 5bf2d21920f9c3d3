"""The key of a schedule (SH-1): what is dialled, and how. Channels with the same key share a schedule."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import grpc

from grpc_backoff.config.pairs import first_values
from grpc_backoff.policy.connect import ConnectPolicy

__all__ = ["Key", "key_of"]

_LOCAL_POOL = "grpc.use_local_subchannel_pool"
_PEMS = ("_pem_root_certificates", "_private_key", "_certificate_chain")

_digests: WeakKeyDictionary[grpc.ChannelCredentials, Hashable] = WeakKeyDictionary()


class Key:
    """Identifies what is dialled, and how: channels with equal keys dial the same thing in the same way.

    Its parts are the target as given; None for insecure channels, a digest of the PEMs for TLS, or the identity of
    other credentials; the connect policy; the options that are passed on to grpcio's core; and the compression. It is
    looked up several times for each channel, so its hash is computed once.
    """

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        """Store the parts, the target first.

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
        """Omit credentials and options, which may contain secrets."""
        return f"Key({self._parts[0]!r})"


def key_of(
    target: str,
    credentials: grpc.ChannelCredentials | None,
    policy: ConnectPolicy,
    options: Sequence[tuple[Any, Any]],
    compression: grpc.Compression | None,
) -> Key | None:
    """Return a channel's key; None if it shares with no other channel.

    That is the case with a separate pool of subchannels, as in grpcio, and if an option's value cannot be compared with
    that of another channel. The order of options does not matter, nor does an option that follows another with the same
    name (CH-9).
    """
    held = first_values(options)
    if held.get(_LOCAL_POOL):
        return None
    try:
        security = None if credentials is None else _security(credentials)
        return Key(target, security, policy, frozenset(held.items()), compression)
    except TypeError:
        return None


def _security(credentials: grpc.ChannelCredentials) -> Hashable:
    """Return the part of a key that identifies these credentials.

    grpcio keeps the PEMs of `ssl_channel_credentials` in a readable, though private, attribute. If a release keeps them
    elsewhere, or the credentials are more than PEMs (such as a custom signer), their identity is used.
    """
    known = _digests.get(credentials)
    if known is None:
        known = _digests[credentials] = _digest(credentials) or _Identity(credentials)
    return known


def _digest(credentials: grpc.ChannelCredentials) -> Hashable | None:
    inner: Any = getattr(credentials, "_credentials", None)
    if type(inner).__name__ != "SSLChannelCredentials" or getattr(inner, "_private_key_signer", None) is not None:
        return None
    pems: list[bytes | None] = [getattr(inner, name, None) for name in _PEMS]
    if not all(hasattr(inner, name) for name in _PEMS):
        return None
    import hashlib  # noqa: PLC0415 - only channels with TLS need it

    digest = hashlib.sha256()
    for pem in pems:
        digest.update(b"-" if pem is None else b"%d:" % len(pem) + pem)
    return digest.digest()


class _Identity:
    """Represents credentials about which nothing is known; equal only to itself."""

    __slots__ = ("__weakref__",)

    def __init__(self, _credentials: grpc.ChannelCredentials) -> None:
        """Keep no reference: the table of schedules must not keep credentials alive."""
