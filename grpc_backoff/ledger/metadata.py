"""Metadata as a ledger stores it: which values can be sent, and their text form in a row (LG-1, LG-11).

Values are checked against gRPC's rules both when they are submitted and when they are read, because a row written by
other means must not break the claim that reads it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from grpc_backoff.ledger.records import Metadata

_BINARY = "-bin"


def unsendable(key: object, value: object) -> str | None:
    """Return what gRPC expects instead of a key or its value; None if gRPC can send them."""
    if not isinstance(key, str):
        return "keys that are strings"
    if key.endswith(_BINARY):
        return None if isinstance(value, bytes) else "a value of bytes, because the key ends with -bin"
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return None
    return "a value of printable ASCII characters, or a key that ends with -bin"


def encode_metadata(metadata: Metadata) -> str:
    """Return metadata as JSON, with binary values as base64."""
    pairs = [[key, value if isinstance(value, str) else b64encode(value).decode()] for key, value in metadata]
    return json.dumps(pairs)


def decode_metadata(text: str) -> Metadata:
    """Parse metadata from JSON; ValueError, which does not show the content, if it is not valid."""
    try:
        pairs = tuple(
            (key, b64decode(value, validate=True) if key.endswith(_BINARY) else value)
            for key, value in json.loads(text)
        )
    except (ValueError, TypeError, AttributeError):
        raise ValueError("metadata: expected a JSON list of pairs") from None
    for key, value in pairs:
        wanted = unsendable(key, value)
        if wanted is not None:
            raise ValueError(f"metadata={key!r}: expected {wanted}")
    return pairs
