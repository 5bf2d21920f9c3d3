"""Announcing: what listeners and hooks hear of an operation (LG-7, RT-11)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from grpc_backoff.base.logs import Log
from grpc_backoff.ledger import operation_events
from grpc_backoff.ledger.operation import FINISHED, LOST, WELL, Operation, OperationState
from grpc_backoff.ledger.operation_events import LedgerHooks, Listener, run_hook
from grpc_backoff.ledger.records import Recorded
from grpc_backoff.telemetry.log import FIELDS

_LOG = Log("grpc_backoff")
_ENDS: Mapping[OperationState | None, type[operation_events.OperationEvent]] = {
    OperationState.SUCCEEDED: operation_events.OperationDelivered,
    OperationState.CONFLICT: operation_events.OperationConflicted,
    OperationState.EXPIRED: operation_events.OperationExpired,
    OperationState.FAILED: operation_events.OperationExhausted,
    OperationState.DISCARDED: operation_events.OperationExhausted,
}
_LOST = "attempt %d was lost: its lease expired before its end was recorded; next in %.3g s"
_RETRIED = "failed on attempt %d, %s; next in %.3g s (%s)"
_LINES: Mapping[type[operation_events.OperationEvent], tuple[int, str, str]] = {
    operation_events.OperationDelivered: (logging.DEBUG, "delivered on attempt %d", "attempt"),
    operation_events.OperationLost: (logging.WARNING, _LOST, "attempt delay"),
    operation_events.OperationRetried: (logging.INFO, _RETRIED, "attempt code delay source"),
    operation_events.OperationExhausted: (logging.WARNING, "gave up after attempt %d, %s", "attempt code"),
    operation_events.OperationConflicted: (logging.WARNING, "in conflict on attempt %d, %s", "attempt code"),
    operation_events.OperationExpired: (logging.WARNING, "expired after %d attempts", "attempt"),
}
"""By the kind of event: the level, the line after the method, and the attributes that fill it."""


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
    level, line, names = _LINES[type(event)]
    if not _LOG.isEnabledFor(level):
        return
    said = [getattr(event, name) for name in names.split()]
    for form, more in ((": %s", getattr(event, "reason", None)), ("; trace %s", event.trace_id)):
        if more:
            line, said = f"{line}{form}", [*said, more]
    fields = {name: getattr(event, name, None) for name in FIELDS}
    _LOG.log(level, f"%s: operation %s %s {line}", event.target, event.operation_id, event.method, *said, extra=fields)
