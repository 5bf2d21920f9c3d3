"""Frozen records about retried calls, which listeners receive in addition to the connection's events.

They contain no payloads, metadata or tokens (RT-11). Times are in seconds.
"""

from __future__ import annotations

import enum

from grpc_backoff.record import value

__all__ = ["CallEvent", "CallExhausted", "CallRetried", "CallSucceeded", "Reason", "WaitSource"]


class WaitSource(enum.Enum):
    """What determined the wait before a retry (RT-3)."""

    SCHEDULE = "schedule"
    """The policy's own backoff."""
    PUSHBACK = "grpc-retry-pushback-ms"
    """gRPC's own trailer, `grpc-retry-pushback-ms` (gRFC A6)."""
    RETRY_INFO = "google.rpc.RetryInfo"
    """A `google.rpc.RetryInfo` in the details of the rich status."""
    RETRY_AFTER = "retry-after"
    """The HTTP header, in seconds or as a date (RFC 9110)."""
    REFRESH = "refreshed credentials"
    """No wait: the credentials were renewed, and the retry follows at once (RT-4)."""
    REFUSED = "refused stream"
    """No wait: a GOAWAY ended the call, and it is repeated once, on the next connection."""


class Reason(enum.Enum):
    """Why a retryable call was not retried."""

    ATTEMPTS = "no attempts are left"
    DEADLINE = "the deadline leaves no time for another"
    BUDGET = "the retry budget is used up"
    STOPPED = "the server asked for no retry"


@value(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """The fields that all call events have.

    Attributes:
        target: the channel's target as given.
        method: the method's path, `/package.Service/Method`.
        at: when it happened, in seconds on the channel's monotonic clock.
        attempt: the number of the attempt that the event is about, from 1.
        call_id: identifies the call in all its events, log lines and hooks.
    """

    target: str
    method: str
    at: float
    attempt: int
    call_id: str = ""


@value(frozen=True, slots=True, kw_only=True)
class CallRetried(CallEvent):
    """The attempt failed with `code`; the next one follows in `delay` seconds, as determined by `source`.

    `server_delay` is the wait that the server asked for, in seconds; `delay` is that wait with the policy's jitter and
    limits (RT-3). It is None if the server did not ask, or its request was ignored. `trace_id` identifies the caller's
    trace, as 32 hexadecimal digits; None if OpenTelemetry has no active trace.
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
    """The attempt failed with `code`, which the policy retries, but no further attempt followed (RT-6).

    `took` is the number of seconds since the call began; `trace_id` is as in `CallRetried`.
    """

    code: str
    reason: Reason
    took: float
    trace_id: str | None = None
