"""Named tuples that equal only tuples of their own type.

The states, inputs and effects of the machines are named tuples, because every call creates several and these are the
cheapest to create. A plain named tuple equals any tuple with the same content; records of two types never do.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from typing import Any, TypeVar

RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])


def record(kind: RecordT) -> RecordT:
    """Make the tuples of this class unequal to tuples of other classes."""
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
