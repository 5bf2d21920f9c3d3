"""How a delivery's window opens after a reconnection."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.ledger.slow_start import AttemptWindow


def test_it_doubles_with_each_round():
    """LG-10: one attempt first; each answer makes room for one more, so that each round doubles it, up to the limit."""
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
    """LG-10: whatever happens, there is at least one attempt and never more than the limit."""
    window = AttemptWindow(limit)
    for answered in answers:
        window = window.grown() if answered else window.closed()
        assert 1 <= window.size <= limit
