"""Named tuples that equal only tuples of their own type, and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, make_dataclass, replace
from typing import Generic, TypeVar

import pytest

from grpc_backoff.base.record import NamedTuple, dataclass

ValueT = TypeVar("ValueT")


class Nothing(NamedTuple):
    """A record without fields."""


class Empty(NamedTuple):
    """Another record without fields."""


class One(NamedTuple):
    """A record with a field and a default."""

    part: object
    other: int = 0


class Generically(NamedTuple, Generic[ValueT]):
    """A record of any type."""

    value: ValueT

    def twice(self) -> tuple[ValueT, ValueT]:
        """Return the value twice."""
        return self.value, self.value


def test_named_tuples_are_the_usual_ones():
    """They have what `typing.NamedTuple` gives: fields, defaults, annotations, methods, patterns, and no dictionary."""
    assert (One._fields, One._field_defaults, One.__annotations__["other"]) == (("part", "other"), {"other": 0}, "int")
    assert (One.__module__, One.__qualname__, One.__doc__) == (__name__, "One", "A record with a field and a default.")
    assert repr(One(part=1)) == "One(part=1, other=0)"
    assert not hasattr(One(1), "__dict__")
    assert Generically[int](1).twice() == (1, 1)
    with pytest.raises(TypeError, match="part"):
        One()
    match One(1, 2):
        case One(part, other):
            assert (part, other) == (1, 2)


def test_records_equal_only_records_of_their_own_type():
    """Two effects without fields are different, and a record does not equal the tuple of its fields."""
    assert Nothing() == Nothing()
    assert Nothing() != Empty()
    assert One(1) != (1, 0)
    assert len({Nothing(), Empty(), Nothing(), One(1), (1, 0)}) == 4


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept))])
def test_records_are_copied_and_pickled(copied):
    """A copy equals the original and is of its type."""
    assert copied(One("a", 1)) == One("a", 1)


def test_replaced_records_keep_their_type():
    """`_replace` returns a record of the same type, and accepts only fields of it."""
    assert One(1)._replace(other=2) == One(1, 2)
    assert Nothing()._replace() == Nothing()
    with pytest.raises(KeyError, match="another"):
        One(1)._replace(another=2)


@dataclass(frozen=True, slots=True)
class Event:
    """A dataclass, one of whose fields is not compared and another not shown."""

    at: float
    channel: object = field(default=None, compare=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """A dataclass that is derived from it."""

    why: str = ""


@dataclass(frozen=True)
class Bare:
    """A dataclass without fields."""


def test_dataclasses_are_compared_by_their_fields():
    """Two are equal, and have the same hash, if they are of the same type and all compared fields are equal."""
    assert Event(1.0, "a") == Event(1.0, "b")
    assert hash(Event(1.0, "a")) == hash(Event(1.0, "b"))
    assert Event(1.0) != Event(2.0)
    assert Event(1.0, secret="a") != Event(1.0, secret="b")
    assert Event(1.0) != Lost(1.0)
    assert Lost(1.0, why="a") != Lost(1.0, why="b")
    assert Event(1.0) != (1.0, "")
    assert len({Bare(), Bare(), Lost(1.0), Lost(1.0)}) == 2


def test_dataclasses_are_shown_as_usual():
    """The text form is that of any dataclass, without the fields that must not be shown."""
    fields = [("at", float), ("channel", object), ("secret", str, field(repr=False)), ("why", str)]
    usual = make_dataclass("Lost", fields)
    assert repr(Lost(1.0, secret="s3cret", why="gone")) == repr(usual(1.0, None, "s3cret", "gone"))
    assert repr(Bare()) == "Bare()"


def test_copied_dataclasses():
    """A copy, and what was pickled, equals the original."""
    lost = Lost(1.0, why="gone")
    assert lost == copy.copy(lost) == pickle.loads(pickle.dumps(lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A dataclass whose fields must be named."""

    at: float
    parts: list[int] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        """Check the count."""
        if self.count < 0:
            raise ValueError(self.count)


def test_dataclasses_are_created_as_usual():
    """Arguments are set by place or name, others have defaults, and all are checked."""
    assert Lost(1.0, "a", why="gone") == Lost(at=1.0, channel="a", secret="", why="gone")
    assert Named(at=1.0).parts == []
    assert Named(at=1.0).parts is not Named(at=1.0).parts
    assert replace(Named(at=1.0), count=2) == Named(at=1.0, count=2)
    with pytest.raises(ValueError, match="-1"):
        replace(Named(at=1.0), count=-1)
    match Lost(1.0, why="gone"):
        case Lost(at, why=why):
            assert (at, why) == (1.0, "gone")


def test_dataclasses_are_frozen():
    """Fields can be neither set nor deleted."""
    named = Named(at=1.0)
    with pytest.raises(FrozenInstanceError, match="'at'"):
        named.at = 2.0
    with pytest.raises(FrozenInstanceError, match="'at'"):
        del named.at
    assert not hasattr(named, "__dict__")


def test_programs_derive_their_own():
    """A program's dataclass may extend one of ours, with the stdlib's decorator."""

    @dataclasses.dataclass(frozen=True)
    class Own(Named):
        unit: str = "s"

    assert Own(at=1.0, unit="ms") == Own(at=1.0, unit="ms") != Own(at=1.0)
    with pytest.raises(ValueError, match="-1"):
        Own(at=1.0, count=-1)


def test_constructors_of_named_tuples():
    """They have the parameters of their class, and say which class misses one."""
    assert str(inspect.signature(One)) == "(part, other=0)"
    assert One(1)._asdict() == {"part": 1, "other": 0}
    with pytest.raises(TypeError, match=r"One\.__new__\(\) .*'another'"):
        One(1, another=2)
