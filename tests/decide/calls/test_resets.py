"""HG-11: how long losing copies are left, how fast they are cancelled, and how long a server is left in peace."""

from __future__ import annotations

import gc
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.decide.calls.resets import (
    CALM,
    MOST,
    MOST_WAITING,
    PER_SECOND,
    Calm,
    Resets,
    calm_of,
    left_until,
    resets_of,
)

NOW = 1000.0


@pytest.mark.parametrize(("took", "left"), [(0.5, 0.5), (0.0, 0.25), (0.02, 0.25), (3600.0, 10.0)])
def test_left_as_long_again(took, left):
    """HG-11: losing copies are left for as long again as the call took, but for at least 0.25 and at most 10 s."""
    assert left_until(NOW - took, NOW) == pytest.approx(NOW + left)


def test_paced():
    """HG-11: so many copies may be cancelled at once, and then one after the other."""
    resets = Resets()

    assert [resets.take(NOW) for _ in range(MOST)] == [0.0] * MOST
    assert [resets.take(NOW) for _ in range(3)] == pytest.approx([1 / PER_SECOND] * 3)
    assert resets.take(NOW + 0.5 / PER_SECOND) == pytest.approx(0.5 / PER_SECOND)
    assert resets.take(NOW + 1.001 / PER_SECOND) == 0.0
    assert [resets.take(NOW + 3600) for _ in range(MOST)] == [0.0] * MOST
    assert resets.take(NOW + 3600) > 0.0


@given(st.lists(st.floats(0.0, 2.0), max_size=400))
def test_half_of_the_lowest_limit(pauses):
    """HG-11: whenever copies are to be cancelled, no 30 s have more than half of the lowest known limit, 200."""
    resets = Resets()
    times = [at for at in itertools.accumulate(pauses) if not resets.take(NOW + at)]

    assert all(late - early > 30.0 - 1e-6 for early, late in zip(times, times[100:], strict=False))


def test_held():
    """HG-11: while many copies wait on a connection, it gets no more of them, and is looked at again before long."""
    resets = Resets()
    resets.waiting.update(range(MOST_WAITING - 1))
    assert resets.hold(NOW) == 0.0
    resets.waiting.add("one more")
    assert resets.hold(NOW) == 0.01  # one is about to be cancelled
    for _ in range(MOST):
        resets.take(NOW)
    assert resets.hold(NOW) == pytest.approx(1 / PER_SECOND)
    resets.waiting.pop()
    assert resets.hold(NOW) == 0.0


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
