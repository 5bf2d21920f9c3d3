"""Records: named tuples that equal only records of their own type."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, make_dataclass
from typing import NamedTuple

import pytest

from grpc_backoff.record import by_fields, record


@record
class Nothing(NamedTuple):
    """A record without fields."""


@record
class Empty(NamedTuple):
    """Another record without fields."""


@record
class One(NamedTuple):
    """A record with a field and a default."""

    part: object
    other: int = 0


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


@by_fields
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Event:
    """A dataclass, one of whose fields is not compared and another not shown."""

    at: float
    channel: object = field(default=None, compare=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lost(Event):
    """A dataclass that is derived from it."""

    why: str = ""


@by_fields
@dataclass(frozen=True, eq=False, repr=False)
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
