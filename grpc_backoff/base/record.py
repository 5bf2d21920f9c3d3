"""Named tuples that equal only tuples of their own type, and dataclasses; both cost less to define than usual.

The states, inputs and effects of the machines are named tuples, because every call creates several and these are the
cheapest to create. A plain named tuple equals any tuple with the same content; two that are made here are equal only if
their types are the same.

Policies and events are dataclasses.

A program defines more than a hundred of both whenever it starts. `typing.NamedTuple` compiles the annotation of each
field, and `dataclasses.dataclass` the methods of each class, so here the former is `collections.namedtuple` with the
body of a class, and the classes of the latter share the methods that can be shared. To type checkers, both are the
usual ones.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from types import GenericAlias
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - other modules import it from here
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414

    from _typeshed import DataclassInstance
else:

    class _Fields(type):
        """Makes a named tuple of each class that is derived from `NamedTuple`."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            names = body.pop("__annotations__", {})
            if not names and len(bases) == 1:  # a third of all; to derive costs a quarter of `namedtuple`
                return type(name, (_Empty,), {**body, "__slots__": (), "__annotations__": {}})
            defaults = [body.pop(field) for field in names if field in body]
            kind = namedtuple(name, names, defaults=defaults, module=body["__module__"])  # noqa: PYI024
            kind.__annotations__ = names
            if len(bases) > 1:  # `Generic`
                kind.__class_getitem__ = classmethod(GenericAlias)
            for attribute, value in {**_METHODS, **body}.items():
                setattr(kind, attribute, value)
            return kind

    class NamedTuple(metaclass=_Fields):
        """The base class of named tuples, whose classes may have methods and type parameters."""

    def dataclass(**options: bool) -> Callable[[type], type]:
        """Make a dataclass of the stdlib, whose comparison, hash and text form are shared with all others."""

        def make(kind: type) -> type:
            kind = dataclasses.dataclass(eq=False, repr=False, **options)(kind)
            kind.__eq__, kind.__hash__, kind.__repr__ = _equal_fields, _hash_fields, _show_fields
            return kind

        return make


_places: dict[type, dict[str, int]] = {}
"""By class, the places of the fields."""


def _replace(self: NamedTuple, /, **changes: object) -> NamedTuple:
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


def _unequal(self: tuple[object, ...], other: object) -> bool:
    return not _equal(self, other)


def _hash(self: tuple[object, ...]) -> int:
    return hash((type(self), *self))


_METHODS = {"__eq__": _equal, "__ne__": _unequal, "__hash__": _hash, "_replace": _replace}
"""What all named tuples have instead of the methods of `namedtuple`."""
_Empty = type("_Empty", (namedtuple("_Empty", ()),), {**_METHODS, "__slots__": ()})  # noqa: PYI024
"""The base class of those without fields."""


_readers: dict[type, Callable[[object], object]] = {}
"""By class, a function that returns the fields that are compared."""


def _compared(kind: type[DataclassInstance]) -> Callable[[object], object]:
    read = _readers.get(kind)
    if read is None:
        names = [part.name for part in fields(kind) if part.compare]
        read = _readers[kind] = attrgetter(*names) if names else lambda _none: ()
    return read


def _equal_fields(self: DataclassInstance, other: object) -> object:
    if type(self) is not type(other):
        return NotImplemented
    read = _compared(type(self))
    return read(self) == read(other)


def _hash_fields(self: DataclassInstance) -> int:
    return hash(_compared(type(self))(self))


def _show_fields(self: DataclassInstance) -> str:
    shown = [f"{part.name}={getattr(self, part.name)!r}" for part in fields(self) if part.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"
