"""A channel's options as grpcio takes them: pairs of a key and a value, of which the first with a key holds (CH-9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Pairs", "first_values", "key_text"]

Pairs = tuple[tuple[Any, Any], ...]


def first_values(options: Iterable[tuple[str | bytes, Any]]) -> dict[str, Any]:
    """Return the value that holds for each key."""
    values: dict[str, Any] = {}
    for key, value in options:
        values.setdefault(key_text(key), value)
    return values


def key_text(key: str | bytes) -> str:
    """Return a key as text; grpcio takes bytes as well."""
    return key.decode(errors="replace") if isinstance(key, bytes) else key
