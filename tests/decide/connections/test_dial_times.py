"""The order of the times that coordinate this library with grpcio's core."""

from __future__ import annotations

from grpc_backoff.decide.connections import dial_times


def test_their_order():
    """CB-15: each time leaves room for the shorter ones that it waits for."""
    assert (
        dial_times.EARLY_LOOK
        < dial_times.FIRST_LOOK
        < dial_times.LAST_LOOK
        < dial_times.RAREST_LOOK
        < dial_times.BEGINS_WITHIN
    )
    assert dial_times.SETTLE < dial_times.SETTLE_UNNOTIFIED < dial_times.CALLS_BREAK_WITHIN < dial_times.SHORT_LIFE
    assert dial_times.CALLS_BREAK_WITHIN < dial_times.CALLS_ARE_REFUSED_WITHIN
    assert dial_times.CORE_LIMIT_SLACK < 0.25  # CB-3: a socket is closed within 250 ms of the limit
    assert dial_times.LOOK_SHARE < dial_times.IDLE_SHARE < 1
