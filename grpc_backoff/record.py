"""Frozen records and values that are cheap to define, which every import pays for.

`record` is for what stays inside: the machines' states, inputs and effects are named tuples, which are also cheaper to
make, and every call makes some. A plain named tuple equals any other tuple with the same content; a record does not. It
also replaces fields in half the time.

`value` is for what programs hold in their hands: a dataclass in all respects, but nothing is compiled when it is
defined. Compiling its methods is most of what a dataclass costs, and most programs make values of a few kinds only. So
the constructor is compiled when the first value is made, and the other methods are closures.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as value
    from inspect import Signature
    from typing import NamedTuple
else:
    import dataclasses
    from collections import _tuplegetter
    from functools import cache
    from types import CodeType, FunctionType

    class _Kind(type):
        """Makes a class of named tuples of what its body says; `typing` takes ten times as long for it."""

        def __new__(kind: type, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            parts = {field: _tuplegetter(at, None) for at, field in enumerate(fields)}
            own = {"__new__": _maker(name, fields, tuple(defaults.values())), "_field_defaults": defaults}
            own |= {"__slots__": (), "__match_args__": fields, "_fields": fields}
            return type.__new__(kind, name, bases, {**body, **own, **parts})

    @cache
    def _code(count: int) -> CodeType:
        """Return the code that makes a tuple of so many arguments; the fields' names are put into it for each class."""
        names = "".join(f"_{at}, " for at in range(count))
        return eval(f"lambda _cls, {names}: new(_cls, ({names}))").__code__  # noqa: S307 - of numbers alone

    def _maker(name: str, fields: tuple[str, ...], defaults: tuple[object, ...]) -> Callable[..., tuple[object, ...]]:
        code = _code(len(fields)).replace(
            co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__"
        )
        return FunctionType(code, {"new": tuple.__new__}, "__new__", defaults)

    class NamedTuple(tuple, metaclass=_Kind):
        """What `typing.NamedTuple` is, made in a tenth of the time."""

        __slots__ = ()

        def __repr__(self) -> str:
            """Return the text of a named tuple."""
            return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"

        def __getnewargs__(self) -> tuple[object, ...]:
            """Return what copies are made of."""
            return tuple(self)

        def _asdict(self) -> dict[str, object]:
            return dict(zip(self._fields, self, strict=True))

    def value(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a frozen dataclass with slots; the options are those of `dataclasses.dataclass`."""
        assert frozen, "a value is"
        make = dataclasses.dataclass(init=False, eq=False, repr=False, slots=slots, kw_only=kw_only)
        return lambda kind: _finished(_made(kind, make))

    def _made(kind: type, make: Callable[[type], type]) -> type:
        """Make a dataclass that dataclasses compiles nothing for, and takes for a frozen one nevertheless."""
        ours = [base.__dataclass_params__ for base in kind.__mro__ if "__dataclass_params__" in vars(base)]
        for params in ours:
            params.frozen = False  # or they would not go together
        kind = make(kind)
        for params in (*ours, kind.__dataclass_params__):
            params.frozen = True
        return kind

    def _finished(kind: type) -> type:
        parts = dataclasses.fields(kind)
        _compare(kind, _content([part.name for part in parts if part.compare]))
        _show(kind, [part.name for part in parts if part.repr])
        _freeze(kind, [part.name for part in parts])
        kind.__init__ = _first_init(kind)
        kind.__signature__ = _SIGNATURE
        return kind

    def _compare(kind: type, content: Callable[[object], object]) -> None:
        def equal(self: object, other: object) -> bool:
            return content(self) == content(other) if type(self) is type(other) else NotImplemented

        kind.__eq__ = equal
        kind.__hash__ = lambda self: hash(content(self))

    def _show(kind: type, names: list[str]) -> None:
        def text(self: object) -> str:
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        kind.__repr__ = kind.__dict__.get("__repr__", text)

    def _freeze(kind: type, names: list[str]) -> None:
        def refuse_set(self: object, name: str, new: object) -> None:
            if type(self) is kind or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(kind, self).__setattr__(name, new)

        def refuse_delete(self: object, name: str) -> None:
            if type(self) is kind or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(kind, self).__delattr__(name)

        kind.__setattr__, kind.__delattr__ = refuse_set, refuse_delete
        kind.__getstate__, kind.__setstate__ = _state, _restore

    def _state(self: object) -> list[object]:
        return [getattr(self, part.name) for part in dataclasses.fields(self)]

    def _restore(self: object, state: list[object]) -> None:
        for part, of_it in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, part.name, of_it)

    def _first_init(kind: type) -> Callable[..., None]:
        """Return a constructor that has the real one compiled, and leaves its place to that."""

        def init(self: object, *arguments: object, **named: object) -> None:
            if kind.__init__ is init:
                kind.__init__ = _compiled_init(kind)
            kind.__init__(self, *arguments, **named)

        init.kind = kind
        return init

    def _compiled_init(kind: type) -> Callable[..., None]:
        parts = [
            (
                part.name,
                part.type,
                dataclasses.field(
                    default=part.default, default_factory=part.default_factory, init=part.init, kw_only=part.kw_only
                ),
            )
            for part in dataclasses.fields(kind)
        ]
        also = {"__post_init__": kind.__post_init__} if hasattr(kind, "__post_init__") else {}
        twin = dataclasses.make_dataclass(
            kind.__qualname__.rpartition(".")[2], parts, namespace=also, frozen=True, eq=False, repr=False
        )
        return twin.__init__

    class _Signature:
        """Tells `inspect.signature` of a kind's constructor, compiled or not."""

        def __get__(self, _instance: object, owner: type) -> Signature:
            from inspect import signature  # noqa: PLC0415 - for editors and tests

            kind = getattr(owner.__init__, "kind", None)
            if kind is not None:
                kind.__init__ = _compiled_init(kind)
            told = signature(owner.__init__)
            return told.replace(parameters=list(told.parameters.values())[1:])

    _SIGNATURE = _Signature()

    def _content(names: list[str]) -> Callable[[object], object]:
        return attrgetter(*names) if names else lambda _: ()


__all__ = ["NamedTuple", "record", "value"]

RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])


def record(kind: RecordT) -> RecordT:
    """Have a class of named tuples tell its own kind from others, and replace fields sooner."""
    kind.__eq__ = _equal  # type: ignore[method-assign]
    kind.__ne__ = _unequal  # type: ignore[method-assign, assignment]
    kind.__hash__ = _hash  # type: ignore[method-assign]
    kind._replace = _replacing(kind)  # type: ignore[attr-defined]
    return kind


def _equal(self: tuple[Any, ...], other: object) -> bool:
    return type(self) is type(other) and tuple.__eq__(self, other)


def _unequal(self: tuple[Any, ...], other: object) -> bool:
    return not _equal(self, other)


def _hash(self: tuple[Any, ...]) -> int:
    return hash((type(self), *self))


def _replacing(kind: RecordT) -> Callable[..., tuple[Any, ...]]:
    place = {name: at for at, name in enumerate(kind._fields)}  # type: ignore[attr-defined]
    new = tuple.__new__

    def replace(self: tuple[Any, ...], /, **changes: Any) -> tuple[Any, ...]:
        """Return the record with these fields changed; a KeyError names one that it does not have."""
        fields = [*self]
        for name, content in changes.items():
            fields[place[name]] = content
        return new(kind, fields)

    return replace
