"""Frozen records of calls that are retried: what listeners get beside the connection's events.

They hold no payload, no metadata and no token (RT-11). Times are seconds.
"""

from __future__ import annotations

import enum

from grpc_backoff.record import value

__all__ = ["CallEvent", "CallExhausted", "CallRetried", "CallSucceeded", "Reason", "WaitSource"]


class WaitSource(enum.Enum):
    """Who said how long to wait before a retry (RT-3)."""

    SCHEDULE = "schedule"
    """The policy's own backoff."""
    PUSHBACK = "grpc-retry-pushback-ms"
    """gRPC's own trailer (gRFC A6)."""
    RETRY_INFO = "google.rpc.RetryInfo"
    """A detail of the rich status."""
    RETRY_AFTER = "retry-after"
    """HTTP's header, in seconds or as a date (RFC 9110)."""
    REFRESH = "refreshed credentials"
    """Nobody: the credentials are new, and the retry follows at once (RT-4)."""
    REFUSED = "refused stream"
    """Nobody: a GOAWAY ended the call, and it is made again on the next connection, once."""


class Reason(enum.Enum):
    """Why a call that could have been retried was not."""

    ATTEMPTS = "no attempts are left"
    DEADLINE = "the deadline leaves no time for another"
    BUDGET = "the retry budget is used up"
    STOPPED = "the server asked for no retry"


@value(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """What every event of a call has.

    Attributes:
        target: the channel's target as it was given.
        method: the method's path, `/package.Service/Method`.
        at: when it happened, on the channel's monotonic clock.
        attempt: which attempt of the call it is about; 1 is the first.
        call_id: the same in all events of one call, in its log lines and for its hooks.
    """

    target: str
    method: str
    at: float
    attempt: int
    call_id: str = ""


@value(frozen=True, slots=True, kw_only=True)
class CallRetried(CallEvent):
    """The attempt failed with `code`; the next one follows in `delay` seconds, as `source` set it.

    `server_delay` is the wait that the server asked for, in seconds; `delay` is that with the policy's jitter and
    limits (RT-3). It is None where the server asked for none, or was not heeded. `trace_id` is that of the caller's
    trace, as 32 hexadecimal digits, None where OpenTelemetry knows of none.
    """

    code: str
    delay: float
    source: WaitSource
    server_delay: float | None = None
    trace_id: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class CallSucceeded(CallEvent):
    """The attempt succeeded, `took` seconds after the call began."""

    took: float


@value(frozen=True, slots=True, kw_only=True)
class CallExhausted(CallEvent):
    """The attempt failed with `code`, which the policy retries, and no other followed (RT-6).

    `took` counts from the beginning of the call; `trace_id` is as in `CallRetried`.
    """

    code: str
    reason: Reason
    took: float
    trace_id: str | None = None
