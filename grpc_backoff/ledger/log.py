"""Logs one line per event of an operation, to the logger `grpc_backoff`, with the same attributes as calls (RT-11)."""

from __future__ import annotations

import logging

from grpc_backoff.ledger import operation_events
from grpc_backoff.telemetry.log import FIELDS

_LOG = logging.getLogger("grpc_backoff")


def log_operation(event: operation_events.OperationEvent) -> None:
    """Log one event: WARNING for a lost attempt or an operation that needs attention, otherwise INFO or DEBUG."""
    match event:
        case operation_events.OperationDelivered():
            _log(logging.DEBUG, event, "delivered on attempt %d", event.attempt)
        case operation_events.OperationLost():
            line = "attempt %d was lost: its lease expired before its end was recorded; next in %.3g s"
            _log(logging.WARNING, event, line, event.attempt, event.delay)
        case operation_events.OperationRetried():
            line = "failed on attempt %d, %s; next in %.3g s (%s)"
            _log(logging.INFO, event, line, event.attempt, event.code, event.delay, event.source)
        case operation_events.OperationExhausted():
            why = f": {event.reason}" if event.reason else ""
            _log(logging.WARNING, event, "gave up after attempt %d, %s%s", event.attempt, event.code, why)
        case operation_events.OperationConflicted():
            _log(logging.WARNING, event, "in conflict on attempt %d, %s", event.attempt, event.code)
        case operation_events.OperationExpired():
            _log(logging.WARNING, event, "expired after %d attempts", event.attempt)


def _log(level: int, event: operation_events.OperationEvent, line: str, *said: object) -> None:
    if _LOG.isEnabledFor(level):
        fields = {name: getattr(event, name, None) for name in FIELDS}
        trace = f"; trace {event.trace_id}" if event.trace_id else ""
        _LOG.log(
            level,
            f"%s: operation %s %s {line}{trace}",
            event.target,
            event.operation_id,
            event.method,
            *said,
            extra=fields,
        )
