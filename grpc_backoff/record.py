"""Named tuples that equal only tuples of their own type, and dataclasses that cost less to define.

The states, inputs and effects of the machines are named tuples, because every call creates several and these are the
cheapest to create. A plain named tuple equals any tuple with the same content; records of two types never do.

Policies and events are dataclasses. Each method that `dataclass` generates is compiled at every start of a program, so
those that a plain channel needs share these.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

DataclassT = TypeVar("DataclassT", bound=type[Any])
RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])


def record(kind: RecordT) -> RecordT:
    """Make the tuples of this class unequal to tuples of other classes, and cheaper to change."""
    kind.__eq__ = _equal  # type: ignore[method-assign]
    kind.__ne__ = _unequal  # type: ignore[method-assign, assignment]
    kind.__hash__ = _hash  # type: ignore[method-assign]
    kind._replace = _replace  # type: ignore[attr-defined]
    return kind


_places: dict[type[Any], dict[str, int]] = {}
"""By class, the places of the fields."""


def _replace(self: Any, /, **changes: Any) -> Any:
    """Return a copy with these fields changed; the one of `namedtuple` takes twice as long, or more with many fields.

    Raises:
        KeyError: the class has no such field.
    """
    kind, values = type(self), list(self)
    places = _places.get(kind)
    if places is None:
        places = _places[kind] = {name: place for place, name in enumerate(self._fields)}
    for name, value in changes.items():
        values[places[name]] = value
    return tuple.__new__(kind, values)


def _equal(self: tuple[object, ...], other: object) -> bool:
    return type(self) is type(other) and tuple.__eq__(self, other)


def _unequal(self: tuple[Any, ...], other: object) -> bool:
    return not _equal(self, other)


def _hash(self: tuple[Any, ...]) -> int:
    return hash((type(self), *self))


def by_fields(kind: DataclassT) -> DataclassT:
    """Give a dataclass, and those derived from it, the comparison, the hash and the text form that they usually have.

    They must be made with `eq=False, repr=False`.
    """
    kind.__eq__ = _equal_fields  # type: ignore[assignment]
    kind.__hash__ = _hash_fields  # type: ignore[assignment]
    kind.__repr__ = _show_fields  # type: ignore[assignment]
    return kind


_readers: dict[type[Any], Callable[[Any], Any]] = {}
"""By class, a function that returns the fields that are compared."""


def _compared(kind: type[Any]) -> Callable[[Any], Any]:
    read = _readers.get(kind)
    if read is None:
        names = [part.name for part in fields(kind) if part.compare]
        read = _readers[kind] = attrgetter(*names) if names else lambda _none: ()
    return read


def _equal_fields(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    read = _compared(type(self))
    return read(self) == read(other)


def _hash_fields(self: Any) -> int:
    return hash(_compared(type(self))(self))


def _show_fields(self: Any) -> str:
    shown = [f"{part.name}={getattr(self, part.name)!r}" for part in fields(self) if part.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"
