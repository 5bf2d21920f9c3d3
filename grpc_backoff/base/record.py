"""Named tuples that equal only tuples of their own type, and dataclasses; both cost less to define than usual.

The states, inputs and effects of the machines are named tuples, because every call creates several and these are the
cheapest to create. A plain named tuple equals any tuple with the same content; records of two types never do.

Policies and events are dataclasses.

A program defines more than a hundred of both whenever it starts. `typing.NamedTuple` compiles the annotation of each
field, and `dataclasses.dataclass` compiles the methods of each class, so here the former is `collections.namedtuple`
with the body of a class, and the classes of the latter share their methods. To type checkers, both are the usual ones.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar

RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - other modules import it from here
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414
else:

    class _Fields(type):
        """Makes a named tuple of each class that is derived from `NamedTuple`."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            names = body.pop("__annotations__", {})
            defaults = [body.pop(field) for field in names if field in body]
            kind = namedtuple(name, names, defaults=defaults, module=body["__module__"])  # noqa: PYI024
            kind.__annotations__ = names
            if len(bases) > 1:  # `Generic`
                kind.__class_getitem__ = classmethod(GenericAlias)
            for attribute, value in body.items():
                setattr(kind, attribute, value)
            return kind

    class NamedTuple(metaclass=_Fields):
        """The base class of named tuples, whose classes may have methods and type parameters."""

    def dataclass(*, slots: bool = False, kw_only: bool = False, **_frozen: bool) -> Callable[[type], type]:
        """Make a dataclass, which is always frozen, and compares, hashes and shows itself as usual."""

        def make(kind: type) -> type:
            kind = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(kind)
            for name, method in _METHODS.items():
                if name not in vars(kind):
                    setattr(kind, name, method)
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


_plans: dict[type[Any], tuple[list[str], set[str], dict[str, tuple[Any, Any]]]] = {}
"""By class, the fields that arguments without names set; those without a default; and for all, default and factory."""


def _plan(kind: type[Any]) -> tuple[list[str], set[str], dict[str, tuple[Any, Any]]]:
    parts = {part.name: (part.default, part.default_factory) for part in fields(kind)}
    positional = [part.name for part in fields(kind) if not part.kw_only]
    return positional, {name for name, either in parts.items() if either == (MISSING, MISSING)}, parts


def _fill(self: Any, /, *values: Any, **named: Any) -> None:
    kind = type(self)
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = _plan(kind)
    positional, required, parts = plan
    by_name = {**dict(zip(positional, values, strict=False)), **named}
    if len(by_name) != len(values) + len(named) or not required <= by_name.keys() <= parts.keys():
        try:
            kind.__signature__.bind(*values, **named)
        except TypeError as error:
            raise TypeError(f"{kind.__qualname__}: {error}") from None
    for name, (default, factory) in parts.items():
        _set(self, name, by_name[name] if name in by_name else factory() if default is MISSING else default)
    check = getattr(self, "__post_init__", None)
    if check is not None:
        check()


_set = object.__setattr__


def _refuse(_self: Any, name: str, *_value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, part.name) for part in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for part, value in zip(fields(self), state, strict=True):
        _set(self, part.name, value)


class _Signature:
    """What `inspect.signature`, and so `help`, says about the class."""

    def __get__(self, _instance: object, kind: type[Any]) -> Any:
        from inspect import Parameter, Signature  # noqa: PLC0415 - loaded already, by asyncio and `dataclasses`

        parameters = [
            Parameter(
                part.name,
                Parameter.KEYWORD_ONLY if part.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=next(
                    (default for default in (part.default, part.default_factory) if default is not MISSING),
                    Parameter.empty,
                ),
                annotation=part.type,
            )
            for part in fields(kind)
        ]
        return Signature(sorted(parameters, key=lambda parameter: parameter.kind), return_annotation=None)


_METHODS = {
    "__init__": _fill,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__eq__": _equal_fields,
    "__hash__": _hash_fields,
    "__repr__": _show_fields,
    "__getstate__": _state,
    "__setstate__": _restore,
    "__signature__": _Signature(),
}
