"""Frozen records and values that are cheap to define, which every import pays for.

`record` is for what stays inside: the machines' states, inputs and effects are named tuples, which are also cheaper to
make, and every call makes some. A plain named tuple equals any other tuple with the same content; a record does not.

`value` is for what programs hold in their hands: a dataclass in all respects, but its comparison, hash and text are not
compiled for each class. Python 3.11 takes two thirds as long again to compile those as for all else of a dataclass.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as value
else:
    import dataclasses

    def value(**options: bool) -> Callable[[type], type]:
        """Make a dataclass; the options are those of `dataclasses.dataclass`."""
        make = dataclasses.dataclass(eq=False, repr=False, **options)
        return lambda kind: _compared(make(kind))

    def _compared(kind: type) -> type:
        parts = dataclasses.fields(kind)
        content = _content([part.name for part in parts if part.compare])
        shown = [part.name for part in parts if part.repr]

        def equal(self: object, other: object) -> bool:
            return content(self) == content(other) if type(self) is type(other) else NotImplemented

        def text(self: object) -> str:
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

        kind.__eq__ = equal
        kind.__hash__ = lambda self: hash(content(self))
        kind.__repr__ = kind.__dict__.get("__repr__", text)
        return kind

    def _content(names: list[str]) -> Callable[[object], object]:
        return attrgetter(*names) if names else lambda _: ()


__all__ = ["record", "value"]

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
