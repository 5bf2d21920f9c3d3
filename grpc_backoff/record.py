"""Cheap frozen records for the machines: named tuples that equal only their own kind.

A frozen dataclass with slots takes three to eight times as long to define, which every import pays, and longer to make,
which every call pays. A plain named tuple equals any other tuple with the same content.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["record"]

RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])


def record(kind: RecordT) -> RecordT:
    """Have a class of named tuples tell its own kind from others."""
    kind.__eq__ = _equal  # type: ignore[method-assign]
    kind.__ne__ = _unequal  # type: ignore[method-assign, assignment]
    kind.__hash__ = _hash  # type: ignore[method-assign]
    return kind


def _equal(self: tuple[Any, ...], other: object) -> bool:
    return type(self) is type(other) and tuple.__eq__(self, other)


def _unequal(self: tuple[Any, ...], other: object) -> bool:
    return not _equal(self, other)


def _hash(self: tuple[Any, ...]) -> int:
    return hash((type(self), *self))
