"""How a ledger's operations are written: as documents for JSON, as rows of tables, and as sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from grpc_backoff.cli.tables import seconds
from grpc_backoff.ledger import Operation, OperationAttempt, OperationState, Queue

OPERATION_COLUMNS = ("id", "state", "target", "method", "attempts", "last code", "next in", "age")
ATTEMPT_COLUMNS = ("number", "started", "took", "code", "then wait", "from")
_MOMENTS = {"last_attempted_at", "next_attempt_at", "lease_until", "created", "began", "finished", "not_after"}
"""The parts of an operation that are times, in seconds since the epoch."""


def queue_document(queue: Queue) -> dict[str, object]:
    """Return the counts of a queue for JSON; times are in seconds."""
    return {
        "states": {state.value: queue.counts.get(state, 0) for state in OperationState},
        "length": queue.length,
        "oldest_age": queue.oldest,
        "held_keys": queue.held_keys,
        "paused": list(queue.paused),
        "estimated": queue.estimated,
    }


def queue_lines(queue: Queue) -> Iterator[str]:
    """Yield what the counts of a queue do not say, in sentences."""
    oldest = f"{queue.length} unfinished; the longest wait so far is {seconds(queue.oldest)}."
    yield oldest if queue.length else "No operation is unfinished."
    if queue.estimated:
        yield "These numbers are estimates, because there are many operations."
    if queue.held_keys:
        yield f"Order keys held by an operation that failed or is in conflict: {queue.held_keys}."
    if queue.paused:
        yield f"Paused: {', '.join(queue.paused)}."


def operation_row(operation: Operation, now: float) -> tuple[str, ...]:
    """Return an operation's texts for `OPERATION_COLUMNS`; `now` is in seconds since the epoch."""
    due = "" if operation.next_attempt_at is None else seconds(max(0.0, operation.next_attempt_at - now))
    return (
        operation.id,
        operation.state.value,
        operation.target,
        operation.method,
        str(operation.attempts),
        operation.code or "",
        due,
        seconds(max(0.0, now - operation.created)),
    )


def operation_document(operation: Operation) -> dict[str, object]:
    """Return an operation without its payload and without its metadata's values."""
    parts = {field.name: getattr(operation, field.name) for field in dataclasses.fields(operation)}
    parts["state"] = operation.state.value
    parts["metadata"] = [key for key, _ in operation.metadata]
    parts["request"] = {"bytes": len(operation.request)}
    return parts


def attempt_row(attempt: OperationAttempt) -> tuple[str, ...]:
    """Return an attempt's texts for `ATTEMPT_COLUMNS`."""
    return (
        str(attempt.number),
        _moment(attempt.started),
        "" if attempt.started is None else seconds(attempt.ended - attempt.started),
        attempt.code,
        "" if attempt.delay is None else seconds(attempt.delay),
        attempt.source or "",
    )


def part_text(name: str, value: Any) -> str:
    """Return a part of an operation's document as text."""
    if value is None:
        return ""
    if name in _MOMENTS:
        return _moment(value)
    if name == "request" and isinstance(value, dict):
        return f"{value['bytes']} bytes"
    if name == "keep_response":
        return f"{value} bytes"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _moment(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
