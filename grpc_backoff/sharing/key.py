"""The key of a schedule (SH-1): what is dialled, and how. Channels with the same key dial by one schedule."""

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
    """What two channels have in common that dial the same thing in the same way.

    Its parts are the target as it was given; None for insecure, a digest of the PEMs for TLS, and other credentials by
    their identity; the connect policy; the options of grpcio's that reach the core; and the compression. Tables are
    asked for it several times for each channel, so its hash is computed once.
    """

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        """Take the parts, the target first.

        Raises:
            TypeError: a part has no hash.
        """
        self._parts = parts
        self._hash = hash(parts)

    def __eq__(self, other: object) -> bool:
        """Compare all parts."""
        return isinstance(other, Key) and self._hash == other._hash and self._parts == other._parts

    def __hash__(self) -> int:
        """Return what was computed."""
        return self._hash

    def __repr__(self) -> str:
        """Show nothing of credentials, nor of options, which can hold secrets."""
        return f"Key({self._parts[0]!r})"


def key_of(
    target: str,
    credentials: grpc.ChannelCredentials | None,
    policy: ConnectPolicy,
    options: Sequence[tuple[Any, Any]],
    compression: grpc.Compression | None,
) -> Key | None:
    """Return a channel's key; None where it shares with nobody.

    That is so with a pool of subchannels of its own, as in grpcio, and where an option has a value that cannot be
    compared with another channel's. The order of options says nothing, nor does one that stands behind another of its
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
    """Return what tells these credentials from others.

    grpcio keeps the PEMs of `ssl_channel_credentials` where they can be read, though not by a public name. Where a
    release has them elsewhere, or they are more than PEMs (a signer of the program's own), they are themselves.
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
    """Stands for credentials of which nothing can be known; equal to itself alone."""

    __slots__ = ("__weakref__",)

    def __init__(self, _credentials: grpc.ChannelCredentials) -> None:
        """Keep nothing of them: the table of schedules is not to keep them alive."""
