"""A channel's options in grpcio's form: pairs of a key and a value, where the first pair with a key wins (CH-9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Pairs", "TypedPairs", "first_values", "key_text", "typed_pairs"]

Pairs = tuple[tuple[Any, Any], ...]
TypedPairs = tuple[tuple[str | bytes, type, str | bytes | int], ...]
"""Options with the types of their values: 1, 1.0 and True compare equal, but not every reader treats them alike."""

_PLAIN = (str, bytes, int, bool, float)


def first_values(options: Iterable[tuple[str | bytes, Any]]) -> dict[str, Any]:
    """Return the effective value of each key."""
    values: dict[str, Any] = {}
    for key, value in options:
        values.setdefault(key_text(key), value)
    return values


def typed_pairs(options: Iterable[Any]) -> TypedPairs | None:
    """Return options in hashable form; None if one is not a plain value or not a pair in a tuple."""
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
