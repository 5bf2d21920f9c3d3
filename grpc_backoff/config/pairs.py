"""A channel's options in grpcio's form: pairs of a key and a value, with the first pair for a key in effect (CH-9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Pairs = tuple[tuple[Any, Any], ...]
TypedPairs = tuple[tuple[str | bytes, type, str | bytes | int], ...]
"""Options with the types of their values, because 1, 1.0 and True compare equal but may be read differently."""

_PLAIN = (str, bytes, int, bool, float)


def first_values(options: Iterable[tuple[str | bytes, Any]]) -> dict[str, Any]:
    """Return the value that applies to each key: the one in its first pair."""
    values: dict[str, Any] = {}
    for key, value in options:
        values.setdefault(key_text(key), value)
    return values


def typed_pairs(options: Iterable[Any]) -> TypedPairs | None:
    """Return options in hashable form; None if one of them is not a tuple of a key and a plain value."""
    typed = []
    for pair in options:
        if type(pair) is not tuple or len(pair) != 2:  # noqa: PLR2004 - a pair
            return None
        key, value = pair
        if type(key) not in (str, bytes) or type(value) not in _PLAIN:
            return None
        typed.append((key, type(value), value))
    return tuple(typed)


def key_text(key: str | bytes) -> str:
    """Return a key as text; grpcio also accepts bytes."""
    return key.decode(errors="replace") if isinstance(key, bytes) else key
