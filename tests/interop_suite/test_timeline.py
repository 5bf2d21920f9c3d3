"""Counting dials on a timeline."""

from __future__ import annotations

from grpc_judge.timeline import Timeline, Visit


def timeline(*accepted):
    visits = tuple(Visit(number=n, behaviour="silent", accepted=at) for n, at in enumerate(accepted, 1))
    return Timeline(visits=visits, taken=100.0)


def test_dials_by_attempt():
    """CB-1: a connection counts for the last attempt begun before it; connections after the close count separately."""
    seen = timeline(1.0, 1.1, 2.0, 2.999, 3.0, 9.0, 9.5)

    assert seen.dials([1.0, 2.0, 3.0, 4.0], 9.0) == ((2, 2, 1, 0), 2)


def test_a_connection_before_all_attempts_is_the_firsts():
    """CB-1: a connection just before the first attempt counts for that attempt, since the clocks differ slightly."""
    assert timeline(0.999, 1.5).dials([1.0, 2.0], 9.0) == ((2, 0), 0)


def test_nobody_dialled_and_nothing_was_announced():
    """CB-1: an attempt without connections counts 0; without attempts, there are no counts."""
    assert timeline().dials([1.0], 9.0) == ((0,), 0)
    assert timeline(1.0, 9.0).dials([], 9.0) == ((), 1)
