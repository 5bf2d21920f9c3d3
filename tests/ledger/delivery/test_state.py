"""How a delivery increases its number of concurrent attempts after a reconnection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_backoff.ledger.delivery.state import DeliveryState
from tests.ledger.conftest import SETTINGS


def test_slow_start():
    """LG-10: the window starts at one attempt and doubles after each full round of answers, up to the limit."""
    state, rounds = DeliveryState(None, replace(SETTINGS, concurrency=16), "shop:443", None), []
    while state.window < 16:
        rounds.append(state.window)
        for _ in range(state.window):
            state.widen()

    assert rounds == [1, 2, 4, 8]
    state.widen()
    assert state.window == 16


@pytest.mark.parametrize("limit", [1, 2])
def test_bounds(limit):
    """LG-10: the window is never larger than its limit."""
    state = DeliveryState(None, replace(SETTINGS, concurrency=limit), "shop:443", None)
    for _ in range(3):
        state.widen()

    assert state.window == limit
