"""Records: named tuples that equal only records of their own type."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import pytest

from grpc_backoff.record import record


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
    """`_replace` returns a record of the same type."""
    assert One(1)._replace(other=2) == One(1, 2)
