"""The listener that logs events of interest to operators, one line each, to the logger `grpc_backoff`.

A call that gave up is logged as WARNING; failed attempts to connect, lost connections, recoveries and retries as INFO;
everything else as DEBUG. No payloads, metadata or tokens are logged, because the events contain none (RT-11).

The content of each line is also in attributes of its record (`FIELDS`), for loggers that write JSON. An attribute that
does not apply is None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from grpc_backoff.decide.connections.happened import Happened

if TYPE_CHECKING:
    from grpc_backoff.decide.calls.events import CallEvent, CallExhausted, CallRetried

_LOG = logging.getLogger("grpc_backoff")

FIELDS: Final = ("target", "method", "attempt", "delay", "code", "trace_id", "operation_id")
"""The attributes of every record. `delay` is the time to the next attempt in seconds; `operation_id` is a call's id."""


logs_info: Callable[[], bool] = partial(_LOG.isEnabledFor, logging.INFO)
"""Returns whether events of connections, and of calls that are repeated, may be logged."""


def listens(event: Happened | CallEvent) -> bool:
    """Return whether this event may be logged, for callers that need not start a thread if it is not."""
    if logs_info() or isinstance(event, Happened):
        return logs_info()
    # The channels of most programs have only events of their connections, so all others are imported when one comes.
    from grpc_backoff.decide.calls.events import CallExhausted  # noqa: PLC0415

    return isinstance(event, CallExhausted) and _LOG.isEnabledFor(logging.WARNING)


def log_event(event: Happened | CallEvent) -> None:
    """Log one event of a call or a connection; another channel's connection is logged by that channel (SH-7)."""
    if not isinstance(event, Happened):
        _log_call(event)
    elif not event.fields.get("elsewhere"):
        _log_connection(event.kind, SimpleNamespace(**{"endpoint": "", "slot": 0} | event.fields))


def _log_connection(kind: str, event: SimpleNamespace) -> None:
    match kind:
        case "AttemptStarted":
            _log(logging.DEBUG, event, "attempt %d, for at most %.3g s", event.attempt, event.limit)
        case "AttemptFailed":
            line = "attempt %d failed after %.3g s, %s; next in %.3g s"
            args = event.attempt, event.took, event.failure, event.retry_in
            _log(logging.INFO, event, line, *args, delay=event.retry_in)
        case "Connected":
            first = event.attempt == 1 and event.connections == 1
            level = logging.DEBUG if first else logging.INFO
            _log(level, event, "connected on attempt %d in %.3g s", event.attempt, event.took)
        case "Disconnected" if event.retry_in is None:
            _log(logging.INFO, event, "%s; it had lasted %.3g s", event.failure.reason, event.lived)
        case "Disconnected":
            line = "%s; it had lasted %.3g s; next in %.3g s"
            _log(logging.INFO, event, line, event.failure.reason, event.lived, event.retry_in, delay=event.retry_in)
        case "CoreRedial":
            _log(
                logging.DEBUG,
                event,
                "grpc's core redialled by itself for a call that was assigned to the connection just as it ended",
            )
        case "BackoffReset" if event.retry_in is None:
            _log(logging.DEBUG, event, "backoff reset")
        case "BackoffReset":
            _log(logging.DEBUG, event, "backoff reset; next in %.3g s", event.retry_in, delay=event.retry_in)
        case "Closed":
            _log(logging.DEBUG, event, "closed")
        case _:
            _log_pool(kind, event)


def _log_pool(kind: str, event: SimpleNamespace) -> None:
    match kind:
        case "NameResolution" if event.failure is None:
            _log(logging.DEBUG, event, "addresses of the name: %d", len(event.addresses))
        case "NameResolution":
            _log(logging.INFO, event, "the known addresses stay in use: %s", event.failure)
        case "LivenessAsked":
            _log_slot(logging.DEBUG, event, "asked whether its peer is alive")
        case "LivenessAnswered":
            _log_slot(logging.DEBUG, event, f"its peer answered after {event.took:.3g} s; it was asked")
        case "SlotRetiring" | "SlotCondemned" | "SlotUnhealthy":
            _log_slot(logging.INFO, event, _said(kind))
        case _:
            _log_slot(logging.DEBUG, event, _said(kind))


def _said(kind: str) -> str:
    return kind.removeprefix("Slot").lower()


def _log_slot(level: int, event: SimpleNamespace, what: str) -> None:
    endpoint = f" ({event.endpoint})" if event.endpoint else ""
    _log(level, event, "slot %d%s: %s, because %s", event.slot, endpoint, what, event.why)


def _log_call(event: CallEvent) -> None:
    from grpc_backoff.decide.calls import events as calls  # noqa: PLC0415 - see `listens`

    match event:
        case calls.CallSucceeded() if event.attempt > 1:  # a success at the first attempt is not worth a line
            _log(logging.DEBUG, event, "%s succeeded on attempt %d after %.3g s", *_attempt(event), event.took)
        case calls.CallHedged():
            _log(logging.DEBUG, event, "%s has no answer yet; copy %d was sent", *_attempt(event))
        case calls.CallNotHedged():
            line = "%s has no answer yet; copy %d is not sent for %.3g s, because %s"
            level = logging.INFO if event.first else logging.DEBUG
            _log(level, event, line, *_attempt(event), event.delay, event.reason.value, delay=event.delay)
        case calls.CallNotConnected():
            line = "%s ended on attempt %d without a connection after %.3g s, %s"
            _log(logging.DEBUG, event, line, *_attempt(event), event.took, event.failure)
        case calls.CallRetried():
            line = "%s failed on attempt %d, %s; next in %.3g s (%s)%s"
            args = event.failure, event.delay, event.source.value, _trace(event)
            _log(logging.INFO, event, line, *_attempt(event), *args, delay=event.delay)
        case calls.StreamEnded():
            line = "%s: stream ended after open %d, %s; next in %.3g s (%s)"
            ended = event.failure, event.delay, event.source.value
            _log(logging.INFO, event, line, *_attempt(event), *ended, delay=event.delay)
        case calls.StreamResumed(gap=gap):
            line = "%s: stream resumed with open %d after %.3g s, %s"
            _log(logging.INFO, event, line, event.method, gap.opens, gap.lasted, gap.code)
        case calls.CallExhausted():  # RT-6: with how it ended
            line = "%s gave up after attempt %d and %.3g s, %s: %s%s"
            why = event.took, event.failure, event.reason.value, _trace(event)
            _log(logging.WARNING, event, line, *_attempt(event), *why)


def _attempt(event: CallEvent) -> tuple[str, int]:
    return event.method, event.attempt


def _trace(event: CallRetried | CallExhausted) -> str:
    return f"; trace {event.trace_id}" if event.trace_id else ""


def _log(level: int, event: Any, line: str, *args: object, delay: float | None = None) -> None:
    if _LOG.isEnabledFor(level):
        fields = {name: getattr(event, name, None) for name in FIELDS}
        fields |= {"delay": delay, "operation_id": getattr(event, "call_id", None)}
        _LOG.log(level, f"%s: {line}", event.target, *args, extra=fields)
