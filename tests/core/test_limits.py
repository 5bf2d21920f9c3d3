"""The order of the times that coordinate this library with grpcio's core."""

from __future__ import annotations

from grpc_backoff.core import limits


def test_their_order():
    """CB-15: each time leaves room for the shorter ones that it waits for."""
    assert limits.EARLY_LOOK < limits.FIRST_LOOK < limits.LAST_LOOK < limits.RAREST_LOOK < limits.BEGINS_WITHIN
    assert limits.SETTLE < limits.SETTLE_UNNOTIFIED < limits.CALLS_BREAK_WITHIN < limits.SHORT_LIFE
    assert limits.CALLS_BREAK_WITHIN < limits.CALLS_ARE_REFUSED_WITHIN
    assert limits.CORE_LIMIT_SLACK < 0.25  # CB-3: a socket is closed within 250 ms of the limit
    assert limits.LOOK_SHARE < limits.IDLE_SHARE < 1
