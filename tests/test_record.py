"""What records and values promise: cheap to define, and nobody who holds one can tell."""

import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import NamedTuple

import pytest

from grpc_backoff.record import record, value


def point(make):
    @make(frozen=True, slots=True, kw_only=True)
    class Point:
        """A place."""

        x: float
        y: float = 0.0
        tag: str = field(default="", repr=False, compare=False)

    return Point


OURS, PYTHONS = point(value), point(dataclass)


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


@record
class Left(NamedTuple):
    """A record."""

    x: int = 0


@record
class Right(NamedTuple):
    """A record of the same content."""

    x: int = 0


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


def test_records_know_their_kind():
    """Two kinds of records with the same content are two, and neither is a tuple."""
    assert Left(1) == Left(1) != Right(1)
    assert Left(1) != (1,)
    assert len({Left(1), Left(1), Right(1)}) == 2
