"""HG-11: how long losing copies are left, how fast they are cancelled, and how long a server is left in peace."""

from __future__ import annotations

import gc
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.calls.resets import CALM, MOST, PER_SECOND, Calm, Resets, calm_of, left_until, resets_of

NOW = 1000.0


@pytest.mark.parametrize(("took", "left"), [(0.5, 0.5), (0.0, 0.1), (0.02, 0.1), (3600.0, 10.0)])
def test_left_as_long_again(took, left):
    """HG-11: losing copies are left for as long again as the call took, but for at least 0.1 and at most 10 s."""
    assert left_until(NOW - took, NOW) == pytest.approx(NOW + left)


def test_paced():
    """HG-11: so many copies may be cancelled at once, and then one after the other; each has its own time."""
    resets = Resets()

    assert resets.wait(NOW) == 0.0
    assert {resets.reserve(NOW) for _ in range(MOST)} == {NOW}
    assert [resets.reserve(NOW) for _ in range(3)] == pytest.approx([NOW + n / PER_SECOND for n in (1, 2, 3)])
    assert resets.wait(NOW) == pytest.approx(4 / PER_SECOND)
    assert resets.wait(NOW + 4 / PER_SECOND) == pytest.approx(0.0)
    assert [resets.reserve(NOW + 3600) for _ in range(MOST)] == [NOW + 3600] * MOST


@given(st.lists(st.floats(0.0, 2.0), max_size=400))
def test_half_of_the_lowest_limit(pauses):
    """HG-11: whenever copies are to be cancelled, no 30 s have more than half of the lowest known limit, 200."""
    resets = Resets()
    times = [resets.reserve(NOW + at) for at in itertools.accumulate(pauses)]

    assert times == sorted(times)
    assert all(late - early > 30.0 - 1e-6 for early, late in zip(times, times[100:], strict=False))


def test_each_connection_has_its_own():
    """HG-11: servers count for each connection, and a connection's budget goes with it."""

    class Connection:
        pass

    one, other = Connection(), Connection()
    assert resets_of(one) is resets_of(one)
    assert resets_of(one) is not resets_of(other)


def test_calm():
    """HG-11: calls are not hedged for a minute after a server has asked for calm, which one call reports."""
    calm = Calm()
    assert (calm.lasts(NOW), calm.tell()) == (0.0, False)
    calm.asked(NOW)
    assert (calm.lasts(NOW), calm.lasts(NOW + CALM - 1), calm.lasts(NOW + CALM)) == (CALM, 1.0, 0.0)
    assert [calm.tell(), calm.tell()] == [True, False]
    calm.asked(NOW + 1)  # another call of the same connection
    assert (calm.tell(), calm.lasts(NOW + 1)) == (False, CALM)
    calm.asked(NOW + 1 + CALM)
    assert calm.tell()


def test_calm_of_a_target():
    """HG-11: channels to the same target know it from each other; the last of them takes it along."""
    calm = calm_of("shop:443")
    assert calm_of("shop:443") is calm
    assert calm_of("other:443") is not calm
    calm.asked(NOW)
    del calm
    gc.collect()
    assert calm_of("shop:443").lasts(NOW) == 0.0
