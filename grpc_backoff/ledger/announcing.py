"""Announcing: what listeners and hooks hear of an operation (LG-7, RT-11)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from grpc_backoff.ledger import operation_events
from grpc_backoff.ledger.operation_events import LedgerHooks, Listener, run_hook
from grpc_backoff.ledger.records import FINISHED, LOST, WELL, Operation, OperationState, Recorded
from grpc_backoff.telemetry.log import FIELDS

_LOG = logging.getLogger("grpc_backoff")
_ENDS: Mapping[OperationState | None, type[operation_events.OperationEvent]] = {
    OperationState.SUCCEEDED: operation_events.OperationDelivered,
    OperationState.CONFLICT: operation_events.OperationConflicted,
    OperationState.EXPIRED: operation_events.OperationExpired,
    OperationState.FAILED: operation_events.OperationExhausted,
    OperationState.DISCARDED: operation_events.OperationExhausted,
}


class Announcer:
    """Calls a ledger's listeners, and says which hooks follow."""

    def __init__(
        self, hooks: Callable[[], LedgerHooks], listeners: Iterable[Listener], ended: Callable[[Operation], None]
    ) -> None:
        """Announce to these and the log; `ended` is called with each operation that has ended.

        `hooks` returns the ledger's hooks, which a program may replace at any time.
        """
        self.hooks = hooks
        self._listeners = [log_operation, *listeners]
        self._ended = ended

    def announce(self, operation: Operation, recorded: Recorded) -> Callable[[], Awaitable[None]] | None:
        """Announce the result of a report to the listeners; return the hook to call next, or None (LG-7)."""
        if recorded.state in FINISHED:
            self._ended(operation)
        if not recorded.live or recorded.state is None:
            return None
        event = event_of(operation, recorded)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - a listener is user code
                _LOG.exception("a ledger's listener raised an exception")
        hooks = self.hooks()
        limits = {
            OperationState.FAILED: hooks.on_exhausted,
            OperationState.CONFLICT: hooks.on_conflict,
            OperationState.EXPIRED: hooks.on_expired,
        }
        blocks = recorded.state in limits and recorded.state not in WELL and operation.order_key is not None
        following = [hook for hook in (limits.get(recorded.state), hooks.on_blocked if blocks else None) if hook]
        if not following:
            return None
        code, attempts = recorded.code or operation.code, recorded.attempts
        after = dataclasses.replace(operation, state=recorded.state, attempts=attempts, code=code, next_attempt_at=None)

        async def run() -> None:
            for hook in following:
                await run_hook(operation.target, hook, after)

        return run


def event_of(operation: Operation, recorded: Recorded) -> operation_events.OperationEvent:
    """Return the event for a report on the current attempt of an operation."""
    going_on = operation_events.OperationLost if recorded.code == LOST else operation_events.OperationRetried
    kind = _ENDS.get(recorded.state, going_on)
    values: dict[str, Any] = recorded._asdict() | {
        "operation_id": operation.id,
        "target": operation.target,
        "method": operation.method,
        "attempt": recorded.attempts,
        "trace_id": operation.trace_id,
        "delay": recorded.delay or 0.0,
        "source": recorded.source or "",
    }
    return kind(**{part.name: values[part.name] for part in dataclasses.fields(kind)})


def log_operation(event: operation_events.OperationEvent) -> None:
    """Log one event in one line, to the logger `grpc_backoff`, with the same attributes as calls (RT-11).

    It is a WARNING for a lost attempt or an operation that needs attention, otherwise INFO or DEBUG.
    """
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
        words = event.target, event.operation_id, event.method, *said
        _LOG.log(level, f"%s: operation %s %s {line}{trace}", *words, extra=fields)
