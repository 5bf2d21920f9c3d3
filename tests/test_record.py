"""Records and values: they are cheap to define, immutable, and used like named tuples and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from typing import Generic, TypeVar
from typing import NamedTuple as TypingNamedTuple

import pytest

from grpc_backoff.record import NamedTuple, field, record, value


def point(make, field):
    @make(frozen=True, slots=True, kw_only=True)
    class Point:
        """A point, made with `value` or with `dataclass`."""

        x: float
        y: float = 0.0
        tag: str = field(default="", repr=False, compare=False)

    return Point


OURS, PYTHONS = point(value, field), point(dataclass, dataclasses.field)


@value(frozen=True, slots=True)
class One:
    """A value with one field, at module level for pickle."""

    part: object


@value(frozen=True, slots=True)
class Nothing:
    """A value without fields."""


@value(frozen=True, slots=True)
class Shown:
    """A value with its own `__repr__`."""

    part: int

    def __repr__(self) -> str:
        return f"<{self.part}>"


@value(frozen=True, slots=True)
class Kept:
    """A value that validates its field, and has another field that its constructor does not take."""

    part: int
    noted: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.part < 0:
            raise ValueError("negative")


def test_value_is_a_dataclass():
    """A value has fields, is frozen, and can be replaced, converted to a dictionary and pickled."""
    here = OURS(x=1.0)
    assert [part.name for part in fields(here)] == ["x", "y", "tag"]
    assert asdict(replace(here, y=2.0)) == {"x": 1.0, "y": 2.0, "tag": ""}
    assert pickle.loads(pickle.dumps(One("a"))) == One("a")
    with pytest.raises(FrozenInstanceError):
        here.x = 2.0


@pytest.mark.parametrize("other", [{"x": 1.0}, {"x": 2.0}, {"x": 1.0, "y": 1.0}, {"x": 1.0, "tag": "b"}])
def test_value_compares_as_a_dataclass(other):
    """Equality, hash and repr are those of a dataclass, and obey the `compare` and `repr` of fields."""
    ours, pythons = (kind(x=1.0, tag="a") for kind in (OURS, PYTHONS))
    assert (ours == OURS(**other)) is (pythons == PYTHONS(**other))
    assert hash(ours) == hash(pythons) == hash(OURS(x=1.0))
    assert repr(OURS(**other)) == repr(PYTHONS(**other))
    assert ours != pythons


def test_value_of_few_parts():
    """Values with one field or none compare and hash correctly, and never equal a tuple or another class."""
    assert One((1, 2)) == One((1, 2)) != One(1)
    assert Nothing() == Nothing() != One(())
    assert (repr(Nothing()), repr(One(1)), repr(Shown(1))) == ("Nothing()", "One(part=1)", "<1>")
    assert len({One(1), One(1), Nothing(), Nothing()}) == 2
    assert (One(1) == 1, One(1) == (1,)) == (False, False)
    with pytest.raises(TypeError, match="unhashable"):
        hash(One([]))


def test_value_is_made_as_a_dataclass():
    """The constructor has a dataclass's signature and errors, before and after the first value is made."""
    ours, pythons = point(value, field), point(dataclass, dataclasses.field)
    assert str(inspect.signature(ours)) == str(inspect.signature(pythons))
    for kind in (ours, pythons):
        assert (kind(x=1.0).y, kind(tag="a", x=1.0).tag) == (0.0, "a")
        for wrong in (lambda: kind(), lambda: kind(1.0), lambda: kind(x=1.0, z=2.0)):  # noqa: B023, PLW0108
            with pytest.raises(TypeError, match=r"^(point\.<locals>\.)?Point\.__init__\(\) "):
                wrong()
    assert str(inspect.signature(ours)) == str(inspect.signature(pythons))


def test_nothing_is_compiled_before_the_first():
    """Defining a value compiles nothing, unlike a dataclass; making the first one compiles its methods."""
    compiled = []
    sys.setprofile(lambda _frame, event, what: event == "c_call" and what is exec and compiled.append(1))
    try:
        kind = point(value, field)
        defined = len(compiled)
        kind(x=1.0)
        made = len(compiled)
        kind(x=2.0)
    finally:
        sys.setprofile(None)

    assert defined == 0 < made == len(compiled)


def test_a_second_thread_may_make_the_first_value_too():
    """A constructor that was looked up before another thread compiled the real one still works."""
    kind = point(value, field)
    early = kind.__init__
    kind(x=1.0)
    assert kind.__init__ is not early
    late = kind.__new__(kind)
    early(late, x=2.0)
    assert late == kind(x=2.0)


def test_value_is_frozen_and_copied():
    """A value cannot be changed, and a copy keeps the fields that its constructor does not take."""
    one = Kept(3)
    for change in (lambda: setattr(one, "part", 4), lambda: delattr(one, "part"), lambda: setattr(one, "new", 4)):
        with pytest.raises(FrozenInstanceError):
            change()
    one.noted.append("a")
    assert (copy.copy(one).noted, copy.deepcopy(one).noted) == (["a"], ["a"])
    assert Kept(3).noted == []
    with pytest.raises(ValueError, match="negative"):
        Kept(-1)


def test_values_are_inherited_from():
    """A value class can be subclassed like any frozen dataclass, and the subclass may be a dataclass."""

    @dataclass(frozen=True)
    class More(Kept):
        more: int = 0

    class Loose(Kept):
        pass

    loose = Loose(1)
    loose.other = 2
    assert (More(1, 2), More(1, 2).more, loose.other) == (More(1, 2), 2, 2)
    assert copy.copy(More(1, 2)).more == 2
    with pytest.raises(FrozenInstanceError):
        loose.part = 2
    with pytest.raises(TypeError, match="non-frozen"):
        dataclass(type("Changing", (Kept,), {}))


@record
class Moved(NamedTuple):
    """A record with one field."""

    by: float = 0.0


@record
class Waited(NamedTuple):
    """Another record with the same field."""

    by: float = 0.0


@record
class Stopped(NamedTuple):
    """A record without fields."""


@record
class Ended(NamedTuple):
    """Another record without fields."""


def leg(base):
    class Leg(base):
        """A leg of a journey."""

        start: str
        end: str | None
        miles: float = 0.0

        def back(self):
            """Return the leg's ends in reverse order."""
            return self.end, self.start

    return Leg


def told(kind):
    way = kind("a", miles=2.5, end="b")
    with pytest.raises(TypeError) as missing:
        kind("a")
    with pytest.raises(TypeError) as unknown:
        kind("a", "b", speed=1)
    parameters = inspect.signature(kind).parameters.values()
    return [
        *(str(way), way, way[0], way.end, way.back(), way._asdict(), copy.deepcopy(way), hasattr(way, "__dict__")),
        *(str(error.value).rpartition(".")[2] for error in (missing, unknown)),
        *(kind.__name__, kind.__qualname__, kind.__doc__, list(kind.__annotations__)),
        *(kind._fields, kind._field_defaults, kind.__match_args__, [(part.name, part.default) for part in parameters]),
    ]


def test_named_tuples_are_pythons():
    """Records behave like classes of `typing.NamedTuple`: their construction, errors, repr and copies are the same."""
    assert told(leg(NamedTuple)) == told(leg(TypingNamedTuple))


def test_named_tuples_may_be_generic():
    """A record may be generic, for type checkers."""
    kind = TypeVar("kind")

    class Box(NamedTuple, Generic[kind]):
        content: kind

    assert Box[int](3) == (3,)


def test_equal_to_its_own_kind():
    """CH-7: records are equal if they have the same class and the same content."""
    assert Moved(1.0) == Moved(1.0)
    assert Moved(1.0) != Moved(2.0)
    assert Stopped() == Stopped()


@pytest.mark.parametrize("other", [Waited(1.0), (1.0,), [1.0], 1.0, None, Stopped()], ids=repr)
def test_kinds_are_told_apart(other):
    """CH-7: a record differs from one of another class with the same content, and from a plain tuple."""
    assert (Moved(1.0) == other, other == Moved(1.0)) == (False, False)
    assert (Moved(1.0) != other, other != Moved(1.0)) == (True, True)


def test_records_without_content():
    """CH-7: records without content differ by class, although all of them are empty tuples."""
    assert Stopped() != Ended()
    assert Stopped() != ()
    assert {Stopped(), Ended(), ()} == {Ended(), (), Stopped()}
    assert len({Stopped(), Ended(), ()}) == 3


def test_hash():
    """CH-7: equal records are the same dictionary key; records of different classes are different keys."""
    assert hash(Moved(1.0)) == hash(Moved(1.0))
    assert {Moved(1.0): "moved", Waited(1.0): "waited"}[Moved(1.0)] == "moved"
    assert hash(Moved(1.0)) != hash(Waited(1.0))


def test_replaced():
    """CH-7: replacing a field returns a record of the same class; an unknown field is an error."""
    moved = Moved(1.0)._replace(by=2.0)
    assert (moved, type(moved)) == (Moved(2.0), Moved)
    assert Stopped()._replace() == Stopped()
    with pytest.raises(KeyError, match="of"):
        moved._replace(of=3.0)


def test_frozen():
    """CH-7: a record is immutable: it can be replaced, but not changed."""
    moved = Moved(1.0)
    with pytest.raises(AttributeError):
        moved.by = 2.0
    with pytest.raises(AttributeError):
        moved.other = 2.0
    assert moved._replace(by=2.0) == Moved(2.0)
    assert type(moved._replace(by=2.0)) is Moved
    assert moved == Moved(1.0)


def test_pickle():
    """CH-11: a record keeps its class and content when it is pickled."""
    copy = pickle.loads(pickle.dumps(Moved(1.0)))
    assert copy == Moved(1.0)
    assert type(copy) is Moved


def test_matched_by_place_and_name():
    """CH-7: a `match` statement tells records apart by class, and unpacks their fields."""
    match Moved(1.0):
        case Waited():
            raise AssertionError("another kind")
        case Moved(by):
            assert by == 1.0
