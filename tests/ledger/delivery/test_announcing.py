"""What is said of an operation: the log records. test_delivery.py has listeners and test_operation_events.py hooks."""

from __future__ import annotations

import logging

import pytest

from grpc_backoff.ledger import operation_events
from grpc_backoff.ledger.delivery.announcing import log_operation

WHAT = {
    "operation_id": "id-1",
    "target": "shop:443",
    "method": "/shop.Orders/Place",
    "attempt": 2,
    "trace_id": "t" * 32,
}
FAILED = {"code": "UNAVAILABLE", "delay": 1.5, "source": "schedule"}
LINES = [
    (operation_events.OperationDelivered(**WHAT), "DEBUG", "delivered on attempt 2"),
    (
        operation_events.OperationRetried(**WHAT, **FAILED),
        "INFO",
        "failed on attempt 2, UNAVAILABLE; next in 1.5 s (schedule)",
    ),
    (
        operation_events.OperationLost(**WHAT, **FAILED),
        "WARNING",
        "attempt 2 was lost: its lease expired before its end was recorded; next in 1.5 s",
    ),
    (
        operation_events.OperationExhausted(**WHAT, code="UNAVAILABLE", reason="no attempts are left"),
        "WARNING",
        "gave up after attempt 2, UNAVAILABLE: no attempts are left",
    ),
    (operation_events.OperationConflicted(**WHAT, code="ABORTED"), "WARNING", "in conflict on attempt 2, ABORTED"),
    (operation_events.OperationExpired(**WHAT), "WARNING", "expired after 2 attempts"),
]


@pytest.mark.parametrize(("event", "level", "line"), LINES)
def test_lines(caplog, event, level, line):
    """LG-7, RT-11: each event is logged in one line, and its record has operation id, attempt, code and trace id."""
    caplog.set_level(logging.DEBUG, "grpc_backoff")

    log_operation(event)

    [record] = caplog.records
    assert record.levelname == level
    assert record.getMessage() == f"shop:443: operation id-1 /shop.Orders/Place {line}; trace {'t' * 32}"
    assert (record.operation_id, record.attempt, record.trace_id) == ("id-1", 2, "t" * 32)
    assert (record.code, record.delay) == (getattr(event, "code", None), getattr(event, "delay", None))


def test_percent_signs(caplog):
    """RT-11: percent signs in what the row of an operation says are logged unchanged."""
    event = operation_events.OperationExhausted(
        **WHAT | {"method": "/%d/%s", "trace_id": "50% %s"}, code="%x", reason="%f"
    )

    log_operation(event)

    assert "shop:443: operation id-1 /%d/%s gave up after attempt 2, %x: %f; trace 50% %s" in caplog.text
