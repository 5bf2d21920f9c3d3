"""What a timeline counts."""

from __future__ import annotations

from interop.timeline import Timeline, Visit


def timeline(*accepted):
    visits = tuple(Visit(number=n, behaviour="silent", accepted=at) for n, at in enumerate(accepted, 1))
    return Timeline(visits=visits, taken=100.0)


def test_dials_by_attempt():
    """CB-1: a connection belongs to the last attempt that had begun, and those after the end to nobody."""
    seen = timeline(1.0, 1.1, 2.0, 2.999, 3.0, 9.0, 9.5)

    assert seen.dials([1.0, 2.0, 3.0, 4.0], 9.0) == ((2, 2, 1, 0), 2)


def test_a_connection_before_all_attempts_is_the_firsts():
    """CB-1: a clock that is a little late loses no connection."""
    assert timeline(0.999, 1.5).dials([1.0, 2.0], 9.0) == ((2, 0), 0)


def test_nobody_dialled_and_nothing_was_announced():
    """CB-1: no attempts, no counts."""
    assert timeline().dials([1.0], 9.0) == ((0,), 0)
    assert timeline(1.0, 9.0).dials([], 9.0) == ((), 1)
