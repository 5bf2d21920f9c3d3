"""Named tuples that equal only tuples of their own type, and dataclasses; both cost less to define than usual.

The states, inputs and effects of the machines are named tuples, because every call creates several and these are the
cheapest to create. A plain named tuple equals any tuple with the same content; records of two types never do.

Policies and events are dataclasses.

A program defines more than a hundred of both whenever it starts. `typing.NamedTuple` compiles the annotation of each
field, `collections.namedtuple` a constructor, and `dataclasses.dataclass` the methods of each class. So here the
constructor of a named tuple is that of another one of the same size, with its own names, and the dataclasses share the
methods that can be shared. To type checkers, both are the usual ones.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from types import FunctionType, GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar

RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - other modules import it from here
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414
else:

    class _Tuple(tuple):
        """What a named tuple has besides its fields and its constructor."""

        __slots__ = ()

        def __repr__(self) -> str:
            shown = map("{}={!r}".format, self._fields, self)
            return f"{type(self).__name__}({', '.join(shown)})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, /, **changes: Any) -> Any:
            return _replace(self, **changes)

    @lru_cache
    def _of_size(size: int) -> type:
        return namedtuple("_OfSize", [f"field_{place}" for place in range(size)])  # noqa: PYI024

    def _constructor(kind: str, names: tuple[str, ...], defaults: tuple[Any, ...]) -> FunctionType:
        """Return the constructor of a named tuple: that of any other of the same size, with other parameters."""
        usual = _of_size(len(names)).__new__
        code = usual.__code__.replace(co_varnames=("_cls", *names))
        made = FunctionType(code, usual.__globals__, "__new__", defaults)
        made.__qualname__ = f"{kind}.__new__"
        return made

    class _Fields(type):
        """Makes a named tuple of each class that is derived from `NamedTuple`."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            names = tuple(body.setdefault("__annotations__", {}))
            defaults = {field: body[field] for field in names if field in body}
            getters = [vars(_of_size(len(names)))[f"field_{place}"] for place in range(len(names))]
            body |= dict(zip(names, getters, strict=True))
            body |= {"__slots__": (), "_fields": names, "_field_defaults": defaults, "__match_args__": names}
            if len(bases) > 1:  # `Generic`
                body["__class_getitem__"] = classmethod(GenericAlias)
            return type(name, (_Tuple,), {**body, "__new__": _constructor(name, names, tuple(defaults.values()))})

    class NamedTuple(metaclass=_Fields):
        """The base class of named tuples, whose classes may have methods and type parameters."""

    def dataclass(**options: bool) -> Callable[[type], type]:
        """Make a dataclass of the stdlib, whose comparison, hash and text form are shared with all others."""

        def make(kind: type) -> type:
            kind = dataclasses.dataclass(eq=False, repr=False, **options)(kind)
            kind.__eq__, kind.__hash__, kind.__repr__ = _equal_fields, _hash_fields, _show_fields
            return kind

        return make


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
