"""What records and values promise: cheap to define, frozen, and in use like any other."""

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
        """A place."""

        x: float
        y: float = 0.0
        tag: str = field(default="", repr=False, compare=False)

    return Point


OURS, PYTHONS = point(value, field), point(dataclass, dataclasses.field)


@value(frozen=True, slots=True)
class One:
    """A value of one part, at the module's top for pickle."""

    part: object


@value(frozen=True, slots=True)
class Nothing:
    """A value of no part."""


@value(frozen=True, slots=True)
class Shown:
    """A value with a text of its own."""

    part: int

    def __repr__(self) -> str:
        return f"<{self.part}>"


@value(frozen=True, slots=True)
class Kept:
    """A value that checks its part, and keeps something beside it."""

    part: int
    noted: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.part < 0:
            raise ValueError("negative")


def test_value_is_a_dataclass():
    """A value has fields, is frozen, and can be replaced, taken apart and pickled."""
    here = OURS(x=1.0)
    assert [part.name for part in fields(here)] == ["x", "y", "tag"]
    assert asdict(replace(here, y=2.0)) == {"x": 1.0, "y": 2.0, "tag": ""}
    assert pickle.loads(pickle.dumps(One("a"))) == One("a")
    with pytest.raises(FrozenInstanceError):
        here.x = 2.0


@pytest.mark.parametrize("other", [{"x": 1.0}, {"x": 2.0}, {"x": 1.0, "y": 1.0}, {"x": 1.0, "tag": "b"}])
def test_value_compares_as_a_dataclass(other):
    """Equality, hash and text are those that `dataclasses.dataclass` makes, with what fields say of both."""
    ours, pythons = (kind(x=1.0, tag="a") for kind in (OURS, PYTHONS))
    assert (ours == OURS(**other)) is (pythons == PYTHONS(**other))
    assert hash(ours) == hash(pythons) == hash(OURS(x=1.0))
    assert repr(OURS(**other)) == repr(PYTHONS(**other))
    assert ours != pythons


def test_value_of_few_parts():
    """One part and none are values too, and another kind's or a tuple are not equal to them."""
    assert One((1, 2)) == One((1, 2)) != One(1)
    assert Nothing() == Nothing() != One(())
    assert (repr(Nothing()), repr(One(1)), repr(Shown(1))) == ("Nothing()", "One(part=1)", "<1>")
    assert len({One(1), One(1), Nothing(), Nothing()}) == 2
    assert (One(1) == 1, One(1) == (1,)) == (False, False)
    with pytest.raises(TypeError, match="unhashable"):
        hash(One([]))


def test_value_is_made_as_a_dataclass():
    """The constructor takes, refuses and tells what a dataclass's does, before the first value is made and after."""
    ours, pythons = point(value, field), point(dataclass, dataclasses.field)
    assert str(inspect.signature(ours)) == str(inspect.signature(pythons))
    for kind in (ours, pythons):
        assert (kind(x=1.0).y, kind(tag="a", x=1.0).tag) == (0.0, "a")
        for wrong in (lambda: kind(), lambda: kind(1.0), lambda: kind(x=1.0, z=2.0)):  # noqa: B023, PLW0108
            with pytest.raises(TypeError, match=r"^(point\.<locals>\.)?Point\.__init__\(\) "):
                wrong()
    assert str(inspect.signature(ours)) == str(inspect.signature(pythons))


def test_nothing_is_compiled_before_the_first():
    """Defining a value compiles nothing, which is most of what a dataclass costs; the first one compiles the rest."""
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
    """A constructor that was looked up before another thread compiled the real one makes a value all the same."""
    kind = point(value, field)
    early = kind.__init__
    kind(x=1.0)
    assert kind.__init__ is not early
    late = kind.__new__(kind)
    early(late, x=2.0)
    assert late == kind(x=2.0)


def test_value_is_frozen_and_copied():
    """A value is not changed nor emptied; it is copied, with what its constructor does not take."""
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
    """A class of a program's own may be a value too, frozen or with more to it, as of any frozen dataclass."""

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
    """A record."""

    by: float = 0.0


@record
class Waited(NamedTuple):
    """Another with the same content."""

    by: float = 0.0


@record
class Stopped(NamedTuple):
    """One without any content."""


@record
class Ended(NamedTuple):
    """Another without any content."""


def leg(base):
    class Leg(base):
        """A way."""

        start: str
        end: str | None
        miles: float = 0.0

        def back(self):
            """The other way round."""
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
    """A record is made, shown, copied and refused as a class of `typing.NamedTuple` is, at a tenth of its cost."""
    assert told(leg(NamedTuple)) == told(leg(TypingNamedTuple))


def test_named_tuples_may_be_generic():
    """A record may have a parameter for type checkers."""
    kind = TypeVar("kind")

    class Box(NamedTuple, Generic[kind]):
        content: kind

    assert Box[int](3) == (3,)


def test_equal_to_its_own_kind():
    """CH-7: a record equals another of its kind with the same content, and no other."""
    assert Moved(1.0) == Moved(1.0)
    assert Moved(1.0) != Moved(2.0)
    assert Stopped() == Stopped()


@pytest.mark.parametrize("other", [Waited(1.0), (1.0,), [1.0], 1.0, None, Stopped()], ids=repr)
def test_kinds_are_told_apart(other):
    """CH-7: another kind of the same content is another input or effect; so is a plain tuple, on either side."""
    assert (Moved(1.0) == other, other == Moved(1.0)) == (False, False)
    assert (Moved(1.0) != other, other != Moved(1.0)) == (True, True)


def test_records_without_content():
    """CH-7: kinds without content differ too, though all of them are empty tuples."""
    assert Stopped() != Ended()
    assert Stopped() != ()
    assert {Stopped(), Ended(), ()} == {Ended(), (), Stopped()}
    assert len({Stopped(), Ended(), ()}) == 3


def test_hash():
    """CH-7: equal records are one key, and kinds with the same content are two."""
    assert hash(Moved(1.0)) == hash(Moved(1.0))
    assert {Moved(1.0): "moved", Waited(1.0): "waited"}[Moved(1.0)] == "moved"
    assert hash(Moved(1.0)) != hash(Waited(1.0))


def test_replaced():
    """CH-7: a record with a field changed is one of its kind; a field that it does not have is an error."""
    moved = Moved(1.0)._replace(by=2.0)
    assert (moved, type(moved)) == (Moved(2.0), Moved)
    assert Stopped()._replace() == Stopped()
    with pytest.raises(KeyError, match="of"):
        moved._replace(of=3.0)


def test_frozen():
    """CH-7: a record is a value: it cannot be changed, only replaced."""
    moved = Moved(1.0)
    with pytest.raises(AttributeError):
        moved.by = 2.0
    with pytest.raises(AttributeError):
        moved.other = 2.0
    assert moved._replace(by=2.0) == Moved(2.0)
    assert type(moved._replace(by=2.0)) is Moved
    assert moved == Moved(1.0)


def test_pickle():
    """CH-11: a record that is sent elsewhere arrives as the record that it was."""
    copy = pickle.loads(pickle.dumps(Moved(1.0)))
    assert copy == Moved(1.0)
    assert type(copy) is Moved


def test_matched_by_place_and_name():
    """CH-7: shells take effects apart by pattern."""
    match Moved(1.0):
        case Waited():
            raise AssertionError("another kind")
        case Moved(by):
            assert by == 1.0
