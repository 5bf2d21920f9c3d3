"""How a delivery increases its number of concurrent attempts after a reconnection."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.ledger.slow_start import AttemptWindow


def test_it_doubles_with_each_round():
    """LG-10: the window starts at one attempt and doubles after each full round of answers, up to the limit."""
    window, rounds = AttemptWindow(16), []
    while window.size < window.limit:
        rounds.append(window.size)
        for _ in range(window.size):
            window = window.grown()

    assert rounds == [1, 2, 4, 8]
    assert window.grown() == window
    assert window.closed() == AttemptWindow(16, 1)


@given(st.integers(1, 100), st.lists(st.booleans()))
def test_bounds(limit, answers):
    """LG-10: the window is never smaller than one attempt or larger than its limit."""
    window = AttemptWindow(limit)
    for answered in answers:
        window = window.grown() if answered else window.closed()
        assert 1 <= window.size <= limit
