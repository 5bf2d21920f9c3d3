"""The listener that logs events of interest to operators, one line each, to the logger `grpc_backoff`.

A call that gave up is logged as WARNING; failed attempts to connect, lost connections, recoveries and retries as INFO;
everything else as DEBUG. No payloads, metadata or tokens are logged, because the events contain none (RT-11).

The content of each line is also in attributes of its record (`FIELDS`), for loggers that write JSON. An attribute that
does not apply is None.
"""

from __future__ import annotations

import logging
from typing import Final

from grpc_backoff.calls.events import (
    CallEvent,
    CallExhausted,
    CallHedged,
    CallRetried,
    CallSucceeded,
    StreamEnded,
    StreamResumed,
)
from grpc_backoff.connection import events
from grpc_backoff.connection.events import ConnectionEvent
from grpc_backoff.pool.events import (
    LivenessAnswered,
    LivenessAsked,
    NameResolution,
    SlotCondemned,
    SlotEvent,
    SlotRetiring,
    SlotUnhealthy,
)

_LOG = logging.getLogger("grpc_backoff")

FIELDS: Final = ("target", "method", "attempt", "delay", "code", "trace_id", "operation_id")
"""The attributes of every record. `delay` is the time to the next attempt in seconds; `operation_id` is a call's id."""


def listens(event: ConnectionEvent | CallEvent) -> bool:
    """Return whether this event may be logged, for callers that need not start a thread if it is not."""
    return _LOG.isEnabledFor(logging.WARNING if isinstance(event, CallExhausted) else logging.INFO)


def log_event(event: ConnectionEvent | CallEvent) -> None:
    """Log one event of a call or a connection; another channel's connection is logged by that channel (SH-7)."""
    if isinstance(event, CallEvent):
        _log_call(event)
    elif isinstance(event, SlotEvent):
        _log_slot(event)
    elif isinstance(event, NameResolution):
        _log_resolution(event)
    elif not event.elsewhere:
        _log_connection(event)


def _log_connection(event: ConnectionEvent) -> None:
    match event:
        case events.AttemptStarted():
            _log(logging.DEBUG, event, "attempt %d, for at most %.3g s", event.attempt, event.limit)
        case events.AttemptFailed():
            line = "attempt %d failed after %.3g s, %s; next in %.3g s"
            args = event.attempt, event.took, event.failure, event.retry_in
            _log(logging.INFO, event, line, *args, delay=event.retry_in)
        case events.Connected():
            first = event.attempt == 1 and event.connections == 1
            level = logging.DEBUG if first else logging.INFO
            _log(level, event, "connected on attempt %d in %.3g s", event.attempt, event.took)
        case events.Disconnected(retry_in=None):
            _log(logging.INFO, event, "%s; it had lasted %.3g s", event.failure.reason, event.lived)
        case events.Disconnected():
            line = "%s; it had lasted %.3g s; next in %.3g s"
            _log(logging.INFO, event, line, event.failure.reason, event.lived, event.retry_in, delay=event.retry_in)
        case events.CoreRedial():
            _log(
                logging.DEBUG,
                event,
                "grpc's core redialled by itself for a call that was assigned to the connection just as it ended",
            )
        case events.BackoffReset(retry_in=None):
            _log(logging.DEBUG, event, "backoff reset")
        case events.BackoffReset():
            _log(logging.DEBUG, event, "backoff reset; next in %.3g s", event.retry_in, delay=event.retry_in)
        case events.Closed():
            _log(logging.DEBUG, event, "closed")


def _log_resolution(event: NameResolution) -> None:
    if event.failure is None:
        _log(logging.DEBUG, event, "addresses of the name: %d", len(event.addresses))
    else:
        _log(logging.INFO, event, "the known addresses stay in use: %s", event.failure)


def _log_slot(event: SlotEvent) -> None:
    level = logging.INFO if isinstance(event, SlotRetiring | SlotCondemned | SlotUnhealthy) else logging.DEBUG
    endpoint = f" ({event.endpoint})" if event.endpoint else ""
    match event:
        case LivenessAsked():
            what = "asked whether its peer is alive"
        case LivenessAnswered():
            what = f"its peer answered after {event.took:.3g} s; it was asked"
        case _:
            what = type(event).__name__.removeprefix("Slot").lower()
    _log(level, event, "slot %d%s: %s, because %s", event.slot, endpoint, what, event.why)


def _log_call(event: CallEvent) -> None:
    match event:
        case CallSucceeded() if event.attempt > 1:  # a success at the first attempt is not worth a line
            _log(logging.DEBUG, event, "%s succeeded on attempt %d after %.3g s", *_attempt(event), event.took)
        case CallHedged():
            _log(logging.DEBUG, event, "%s has no answer yet; copy %d was sent", *_attempt(event))
        case CallRetried():
            line = "%s failed on attempt %d, %s; next in %.3g s (%s)%s"
            args = event.failure, event.delay, event.source.value, _trace(event)
            _log(logging.INFO, event, line, *_attempt(event), *args, delay=event.delay)
        case StreamEnded():
            line = "%s: stream ended after open %d, %s; next in %.3g s (%s)"
            ended = event.failure, event.delay, event.source.value
            _log(logging.INFO, event, line, *_attempt(event), *ended, delay=event.delay)
        case StreamResumed(gap=gap):
            line = "%s: stream resumed with open %d after %.3g s, %s"
            _log(logging.INFO, event, line, event.method, gap.opens, gap.lasted, gap.code)
        case CallExhausted():  # RT-6: with how it ended
            line = "%s gave up after attempt %d and %.3g s, %s: %s%s"
            why = event.took, event.failure, event.reason.value, _trace(event)
            _log(logging.WARNING, event, line, *_attempt(event), *why)


def _attempt(event: CallEvent) -> tuple[str, int]:
    return event.method, event.attempt


def _trace(event: CallRetried | CallExhausted) -> str:
    return f"; trace {event.trace_id}" if event.trace_id else ""


def _log(level: int, event: ConnectionEvent | CallEvent, line: str, *args: object, delay: float | None = None) -> None:
    if _LOG.isEnabledFor(level):
        fields = {name: getattr(event, name, None) for name in FIELDS}
        fields |= {"delay": delay, "operation_id": getattr(event, "call_id", None)}
        _LOG.log(level, f"%s: {line}", event.target, *args, extra=fields)
