"""Announcing: what listeners and hooks hear of an operation (LG-7, RT-11)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable

from grpc_backoff.ledger import operation_events
from grpc_backoff.ledger.log import log_operation
from grpc_backoff.ledger.operation_events import Listener
from grpc_backoff.ledger.operation_hooks import LedgerHooks, run_hook
from grpc_backoff.ledger.records import FINISHED, LOST, WELL, Operation, OperationState, Recorded

_LOG = logging.getLogger("grpc_backoff")


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
        after = dataclasses.replace(
            operation,
            state=recorded.state,
            attempts=recorded.attempts,
            code=recorded.code or operation.code,
            next_attempt_at=None,
        )

        async def run() -> None:
            for hook in following:
                await run_hook(operation.target, hook, after)

        return run


def event_of(operation: Operation, recorded: Recorded) -> operation_events.OperationEvent:
    """Return the event for a report on the current attempt of an operation."""

    def event(kind: Callable[..., operation_events.OperationEvent], **more: object) -> operation_events.OperationEvent:
        return kind(
            operation_id=operation.id,
            target=operation.target,
            method=operation.method,
            attempt=recorded.attempts,
            trace_id=operation.trace_id,
            **more,
        )

    if recorded.state is OperationState.SUCCEEDED:
        return event(operation_events.OperationDelivered)
    if recorded.state is OperationState.CONFLICT:
        return event(operation_events.OperationConflicted, code=recorded.code)
    if recorded.state is OperationState.EXPIRED:
        return event(operation_events.OperationExpired)
    if recorded.state in FINISHED:
        return event(operation_events.OperationExhausted, code=recorded.code, reason=recorded.reason)
    kind = operation_events.OperationLost if recorded.code == LOST else operation_events.OperationRetried
    return event(kind, code=recorded.code, delay=recorded.delay or 0.0, source=recorded.source or "")
