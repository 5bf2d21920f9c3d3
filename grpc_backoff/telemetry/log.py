"""The listener that logs events of interest to operators, one line each, to the logger `grpc_backoff`.

A call that gave up is logged as WARNING; failed attempts to connect, lost connections, recoveries and retries as INFO;
everything else as DEBUG. No payloads, metadata or tokens are logged, because the events contain none (RT-11).

The content of each line is also in attributes of its record (`FIELDS`), for loggers that write JSON. An attribute that
does not apply is None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from logging import DEBUG, INFO, WARNING
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from grpc_backoff.base.logs import Log
from grpc_backoff.decide.connections.happened import Happened

if TYPE_CHECKING:
    from grpc_backoff.decide.calls.events import CallEvent

_LOG = Log("grpc_backoff")

FIELDS: Final = ("target", "method", "attempt", "delay", "code", "trace_id", "operation_id")
"""The attributes of every record. `delay` is the time to the next attempt in seconds; `operation_id` is a call's id."""

_SLOT, _OF_SLOT = "slot %d%s: {}, because %s", "slot place why"
_REDIALLED = "grpc's core redialled by itself for a call that was assigned to the connection just as it ended"
_ANSWERED = "slot %d%s: its peer answered after %.3g s; it was asked, because %s"
_NOT_HEDGED = "%s has no answer yet; copy %d is not sent for %.3g s, because %s"
_NOT_CONNECTED = "%s ended on attempt %d without a connection after %.3g s, %s"
_RETRIED = "%s failed on attempt %d, %s; next in %.3g s (%s)"
_STREAM_ENDED = "%s: stream ended after open %d, %s; next in %.3g s (%s)"
_RESUMED = "%s: stream resumed with open %d after %.3g s, %s"
_EXHAUSTED = "%s gave up after attempt %d and %.3g s, %s: %s"

_LINES = {
    "AttemptStarted": (DEBUG, "attempt %d, for at most %.3g s", "attempt limit"),
    "AttemptFailed": (INFO, "attempt %d failed after %.3g s, %s", "attempt took failure"),
    "Connected": (INFO, "connected on attempt %d in %.3g s", "attempt took"),
    "Disconnected": (INFO, "%s; it had lasted %.3g s", "failure.reason lived"),
    "CoreRedial": (DEBUG, _REDIALLED, ""),
    "BackoffReset": (DEBUG, "backoff reset", ""),
    "Closed": (DEBUG, "closed", ""),
    "NameResolution": (INFO, "the known addresses stay in use: %s", "failure"),
    "SlotOpened": (DEBUG, _SLOT.format("opened"), _OF_SLOT),
    "SlotServing": (DEBUG, _SLOT.format("serving"), _OF_SLOT),
    "SlotUnhealthy": (INFO, _SLOT.format("unhealthy"), _OF_SLOT),
    "SlotRetiring": (INFO, _SLOT.format("retiring"), _OF_SLOT),
    "SlotCondemned": (INFO, _SLOT.format("condemned"), _OF_SLOT),
    "SlotClosed": (DEBUG, _SLOT.format("closed"), _OF_SLOT),
    "LivenessAsked": (DEBUG, _SLOT.format("asked whether its peer is alive"), _OF_SLOT),
    "LivenessAnswered": (DEBUG, _ANSWERED, "slot place took why"),
    "CallSucceeded": (DEBUG, "%s succeeded on attempt %d after %.3g s", "method attempt took"),
    "CallHedged": (DEBUG, "%s has no answer yet; copy %d was sent", "method attempt"),
    "CallNotHedged": (DEBUG, _NOT_HEDGED, "method attempt delay reason.value"),
    "CallNotConnected": (DEBUG, _NOT_CONNECTED, "method attempt took failure"),
    "CallRetried": (INFO, _RETRIED, "method attempt failure delay source.value"),
    "StreamEnded": (INFO, _STREAM_ENDED, "method attempt failure delay source.value"),
    "StreamResumed": (INFO, _RESUMED, "method gap.opens gap.lasted gap.code"),
    "CallExhausted": (WARNING, _EXHAUSTED, "method attempt took failure reason.value"),  # RT-6: with how it ended
}
"""By the kind of event: the level, the line after the target, and the attributes that fill it."""


logs_info: Callable[[], bool] = partial(_LOG.logger.isEnabledFor, INFO)
"""Returns whether events of connections, and of calls that are repeated, may be logged."""


def listens(event: Happened | CallEvent) -> bool:
    """Return whether this event may be logged, for callers that need not start a thread if it is not."""
    level, _, _ = _LINES[event.kind if isinstance(event, Happened) else type(event).__name__]
    return _LOG.isEnabledFor(max(level, INFO))


def log_event(event: Happened | CallEvent) -> None:
    """Log one event of a call or a connection; another channel's connection is logged by that channel (SH-7)."""
    if not isinstance(event, Happened):
        _log(type(event).__name__, event)
    elif not event.fields.get("elsewhere"):
        endpoint = event.fields.get("endpoint")
        place = f" ({endpoint})" if endpoint else ""
        _log(event.kind, SimpleNamespace(**{"slot": 0, "place": place} | event.fields))


def _log(kind: str, event: Any) -> None:
    level, line, names = _LINES[kind]
    match kind:
        case "Connected" if event.attempt == 1 and event.connections == 1:
            level = DEBUG
        case "NameResolution" if event.failure is None:
            level, line, names = DEBUG, f"addresses of the name: {len(event.addresses)}", ""
        case "CallNotHedged" if event.first:
            level = INFO
        case "CallSucceeded" if event.attempt == 1:
            return  # not worth a line
    if not _LOG.isEnabledFor(level):
        return
    fields = {name: getattr(event, name, None) for name in FIELDS}
    args = [attrgetter(name)(event) for name in names.split()]
    if (retry_in := getattr(event, "retry_in", None)) is not None:
        line, args, fields["delay"] = f"{line}; next in %.3g s", [*args, retry_in], retry_in
    if trace_id := fields["trace_id"]:
        line, args = f"{line}; trace %s", [*args, trace_id]
    fields["operation_id"] = getattr(event, "call_id", None)
    _LOG.log(level, f"%s: {line}", event.target, *args, extra=fields)
