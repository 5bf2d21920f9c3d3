"""The reference client: its table of defects, and its schedule without a defect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_judge.clients.reference.backoff import Backoff
from grpc_judge.clients.reference.defects import DEFECTS, habits_with
from grpc_judge.clients.reference.habits import Habits
from tests.interop_suite.conformance import made

ORDER = made.order(made.TERMS)


def gaps(habits, count=12):
    """Return the gaps in a series of attempts that each fail after 1 ms."""
    backoff, now, found = Backoff(ORDER, habits), 0.0, []
    for _ in range(count):
        backoff.start(now)
        backoff.fail(now + 0.001, "closed")
        found.append(backoff.due - now)
        now = backoff.due
    return found


def test_there_are_forty_defects_and_each_is_one():
    """IO-4: there are at least forty defects, all of them different, and each changes how the client behaves."""
    changed = [habits_with(name) for name in DEFECTS]
    assert len(changed) >= 40
    assert len(set(changed)) == len(changed)
    assert Habits() not in changed


def test_no_defect_is_the_right_client():
    """IO-4: without a defect, the reference client uses the protocol's values."""
    assert habits_with(None) == Habits()


def test_a_defect_that_there_is_not():
    """IO-4: an unknown defect is rejected with an error that lists the known ones."""
    with pytest.raises(ValueError, match=r"^--defect=none: expected one of initial-half, "):
        habits_with("none")


def test_the_right_schedule():
    """CB-2, CB-5: gaps grow by 1.6 from INITIAL_BACKOFF to MAX_BACKOFF, each jittered by at most 20%."""
    nominal = [min(1.6, 0.2 * 1.6**n) for n in range(12)]
    found = gaps(Habits())
    assert all(abs(gap / length - 1) <= 0.2 for gap, length in zip(found, nominal, strict=True))
    assert gaps(replace(Habits(), lowest=0.0, highest=0.0)) == pytest.approx(nominal)


def test_a_limit_is_the_longer_of_two():
    """CB-3: an attempt's time limit is MIN_CONNECT_TIMEOUT or the backoff, whichever is longer."""
    backoff = Backoff(ORDER, replace(Habits(), lowest=0.0, highest=0.0))
    limits = []
    for _ in range(6):
        backoff.start(0.0)
        limits.append(backoff.limit)
    assert limits == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.31072, 1.6])
