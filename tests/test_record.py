"""Records of the machines: cheap, frozen, and equal to their own kind only."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import pytest

from grpc_backoff.record import record


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
