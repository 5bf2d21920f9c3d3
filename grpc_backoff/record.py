"""Frozen records and values whose classes are cheap to define, which keeps importing this library fast.

`record` is for internal types. The states, inputs and effects of the machines are named tuples, because these are also
cheaper to create, and every call creates several. A plain named tuple equals any tuple with the same content, but a
record equals only records of its own type. Replacing the fields of a record also takes half the time.

`value` is for public types. It behaves like `dataclass`, but defining a class compiles nothing and does not import
`dataclasses`. Compiling the methods is most of the cost of a dataclass, and most programs create instances of only a
few of these classes. The constructor is compiled when the first instance is created; the other methods are closures.
The attributes that `dataclasses` sets on a class are built when a program first reads them.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from dataclasses import dataclass as value
    from dataclasses import field, replace
    from inspect import Signature
    from typing import NamedTuple

    def names_of(kept: object) -> tuple[str, ...]:
        """Return the field names of a value or of a value class."""
        ...

else:
    from collections import _tuplegetter
    from functools import cache
    from types import CodeType, FunctionType

    class _Kind(type):
        """Creates a class of named tuples from its annotations, ten times as fast as `typing` does."""

        def __new__(kind: type, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            parts = {field: _tuplegetter(at, None) for at, field in enumerate(fields)}
            own = {"__new__": _maker(name, fields, tuple(defaults.values())), "_field_defaults": defaults}
            own |= {"__slots__": (), "__match_args__": fields, "_fields": fields}
            return type.__new__(kind, name, bases, {**body, **own, **parts})

    @cache
    def _code(count: int) -> CodeType:
        """Return the code of a `__new__` with this many arguments; each class renames them to its own fields."""
        names = "".join(f"_{at}, " for at in range(count))
        return eval(f"lambda _cls, {names}: new(_cls, ({names}))").__code__  # noqa: S307 - built from numbers only

    def _maker(name: str, fields: tuple[str, ...], defaults: tuple[object, ...]) -> Callable[..., tuple[object, ...]]:
        code = _code(len(fields)).replace(
            co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__"
        )
        return FunctionType(code, {"new": tuple.__new__}, "__new__", defaults)

    class NamedTuple(tuple, metaclass=_Kind):
        """A replacement for `typing.NamedTuple` whose subclasses are ten times as fast to define."""

        __slots__ = ()

        def __repr__(self) -> str:
            """Return the name of the class, and the name and value of each field."""
            return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"

        def __getnewargs__(self) -> tuple[object, ...]:
            """Return the arguments of `__new__`, for copying and pickling."""
            return tuple(self)

        def _asdict(self) -> dict[str, object]:
            return dict(zip(self._fields, self, strict=True))

    class _Part:
        """The options of a field, as passed to `field`."""

        __slots__ = ("said",)

        def __init__(self, said: dict[str, object]) -> None:
            self.said = said

    def field(**said: object) -> _Part:
        """Set the options of a field, which are those of `dataclasses.field`."""
        return _Part(said)

    def value(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Return a decorator that makes a class a frozen dataclass with slots; the options are those of `dataclass`."""
        assert frozen, "values are always frozen"
        assert slots, "values always have slots"
        return lambda kind: _made(kind, {"kw_only": True} if kw_only else {})

    def names_of(kept: object) -> tuple[str, ...]:
        """Return the field names of a value or of a value class."""
        return tuple(kept.__parts__)

    def replace(kept: object, **changes: object) -> object:
        """Return a copy of a value with these fields changed, like `dataclasses.replace`."""
        same = {name: getattr(kept, name) for name, said in kept.__parts__.items() if said.get("init", True)}
        return type(kept)(**{**same, **changes})

    def _made(kind: type, how: dict[str, object]) -> type:
        body = {name: what for name, what in vars(kind).items() if name not in ("__dict__", "__weakref__")}
        bases = kind.__mro__[:0:-1]
        parts = {name: said for base in bases for name, said in vars(base).get("__parts__", {}).items()}
        for name, hint in body.get("__annotations__", {}).items():
            if not hint.startswith("ClassVar"):
                said = body.pop(name, _NOTHING)
                parts[name] = {**(said.said if type(said) is _Part else {"default": said}), **how}
        placed = [name for name, said in parts.items() if said.get("init", True) and "kw_only" not in said]
        held = {slot for base in bases for slot in vars(base).get("__slots__", ())}
        body |= _compared(_content([name for name, said in parts.items() if said.get("compare", True)]))
        body |= {"__getstate__": _state, "__setstate__": _restore, "__signature__": _SIGNATURE, "__parts__": parts}
        body |= {"__slots__": tuple(name for name in parts if name not in held), "__qualname__": kind.__qualname__}
        body |= {"__match_args__": tuple(placed), "__init__": _first_init}
        body.setdefault("__repr__", _shown([name for name, said in parts.items() if said.get("repr", True)]))
        made = type(kind)(kind.__name__, kind.__bases__, body)
        made.__setattr__, made.__delattr__ = _frozen(made, parts)
        made.__dataclass_fields__ = _Late(made, how, "__dataclass_fields__")
        made.__dataclass_params__ = _Late(made, how, "__dataclass_params__")
        return made

    class _Late:
        """A class attribute that `dataclasses` would set, built when it is first read; most programs never read it."""

        def __init__(self, kind: type, how: dict[str, object], name: str) -> None:
            self._kind, self._how, self._name = kind, how, name

        def __get__(self, _instance: object, _owner: type) -> object:
            from dataclasses import dataclass, field  # noqa: PLC0415 - it takes a millisecond, and few programs need it

            kind = self._kind
            hints = vars(kind).get("__annotations__", {})
            said = {name: field(**kind.__parts__[name]) for name in hints if name in kind.__parts__}
            body = {**said, "__annotations__": hints, "__module__": kind.__module__, "__doc__": kind.__doc__}
            twin = dataclass(frozen=True, **self._how)(type(kind)(kind.__name__, kind.__bases__, body))
            kind.__dataclass_fields__, kind.__dataclass_params__ = twin.__dataclass_fields__, twin.__dataclass_params__
            return getattr(twin, self._name)

    def _compared(content: Callable[[object], object]) -> dict[str, Callable[..., object]]:
        def equal(self: object, other: object) -> bool:
            return content(self) == content(other) if type(self) is type(other) else NotImplemented

        return {"__eq__": equal, "__hash__": lambda self: hash(content(self))}

    def _shown(names: list[str]) -> Callable[[object], str]:
        def text(self: object) -> str:
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        return text

    def _frozen(kind: type, names: Container[str]) -> tuple[Callable[..., None], Callable[..., None]]:
        def refuse_set(self: object, name: str, new: object) -> None:
            if type(self) is kind or name in names:
                raise _frozen_error(f"cannot assign to field {name!r}")
            super(kind, self).__setattr__(name, new)

        def refuse_delete(self: object, name: str) -> None:
            if type(self) is kind or name in names:
                raise _frozen_error(f"cannot delete field {name!r}")
            super(kind, self).__delattr__(name)

        return refuse_set, refuse_delete

    def _frozen_error(text: str) -> AttributeError:
        from dataclasses import FrozenInstanceError  # noqa: PLC0415 - as above

        return FrozenInstanceError(text)

    def _all_names(kept: object) -> list[str]:
        """Return the names of all fields, including those that a dataclass derived from the value class adds."""
        if "__parts__" in vars(type(kept)):
            return [*kept.__parts__]
        from dataclasses import fields  # noqa: PLC0415 - as above

        return [part.name for part in fields(kept)]

    def _state(self: object) -> list[object]:
        return [getattr(self, name) for name in _all_names(self)]

    def _restore(self: object, state: list[object]) -> None:
        for name, of_it in zip(_all_names(self), state, strict=True):
            object.__setattr__(self, name, of_it)

    def _first_init(self: object, *arguments: object, **named: object) -> None:
        """Compile the real constructor, replace this one with it, and call it."""
        _compiled(type(self)).__init__(self, *arguments, **named)

    def _compiled(kind: type) -> type:
        """Compile the constructor of the value class that this class is or derives from, and return that class."""
        kind = next(base for base in kind.__mro__ if "__parts__" in vars(base))
        if kind.__init__ is _first_init:  # another thread may have compiled it
            _compile_init(kind)
        return kind

    def _compile_init(kind: type) -> None:
        """Give a class the constructor that `dataclasses` would compile for it."""
        names: dict[str, object] = {"_put": object.__setattr__, "_made": _MADE}
        placed, named, lines = ["self"], [], []
        for name, said in kind.__parts__.items():
            fresh = f"_new_{name}()" if "default_factory" in said else f"_default_{name}"
            names |= {f"_new_{name}": said.get("default_factory"), f"_default_{name}": said.get("default")}
            if said.get("init", True):
                default = "_made" if "default_factory" in said else f"_default_{name}" if "default" in said else None
                (named if "kw_only" in said else placed).append(name if default is None else f"{name}={default}")
                fresh = f"{fresh} if {name} is _made else {name}" if default == "_made" else name
            lines.append(f"_put(self, {name!r}, {fresh})")
        if hasattr(kind, "__post_init__"):
            lines.append("self.__post_init__()")
        head = ", ".join([*placed, "*", *named] if named else placed)
        exec(f"def __init__({head}):\n " + "\n ".join([*lines, "return"]), names)  # noqa: S102 - built from our own names
        init = names["__init__"]
        init.__qualname__, init.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
        hints = {
            name: hint for base in kind.__mro__[::-1] for name, hint in vars(base).get("__annotations__", {}).items()
        }
        taken = {name: hints[name] for name, said in kind.__parts__.items() if said.get("init", True)}
        init.__annotations__ = {**taken, "return": None}
        kind.__init__ = init

    class _Made:
        """Stands in a signature for a default that is created for each instance, as in `dataclasses`."""

        def __repr__(self) -> str:
            return "<factory>"

    class _Signature:
        """The `__signature__` of a value class, which compiles the constructor if necessary."""

        def __get__(self, _instance: object, owner: type) -> Signature:
            from inspect import signature  # noqa: PLC0415 - only editors and tests need it

            if owner.__init__ is _first_init:
                _compiled(owner)
            told = signature(owner.__init__)
            return told.replace(parameters=list(told.parameters.values())[1:])

    _NOTHING, _MADE, _SIGNATURE = _Part({}), _Made(), _Signature()

    def _content(names: list[str]) -> Callable[[object], object]:
        return attrgetter(*names) if names else lambda _: ()


__all__ = ["NamedTuple", "field", "names_of", "record", "replace", "value"]

RecordT = TypeVar("RecordT", bound=type[tuple[Any, ...]])


def record(kind: RecordT) -> RecordT:
    """Make the tuples of this class unequal to tuples of other classes, and make `_replace` faster."""
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
        """Return a copy of the record with these fields changed; KeyError if it lacks one of them."""
        fields = [*self]
        for name, content in changes.items():
            fields[place[name]] = content
        return new(kind, fields)

    return replace
