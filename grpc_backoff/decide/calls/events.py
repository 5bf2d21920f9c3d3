"""The events for calls, most of them for calls with a policy, which listeners receive in addition to connection events.

Events contain no payloads, metadata or tokens (RT-11). Times are in seconds.
"""

from __future__ import annotations

import enum

from grpc_backoff.base.record import dataclass
from grpc_backoff.base.status import CodedFailure
from grpc_backoff.base.status import Reason as Reason
from grpc_backoff.base.status import WaitSource as WaitSource


class NotHedged(enum.Enum):
    """Why a copy of a hedged call was not sent beside those that run (HG-11)."""

    CALM = "the server ended a connection with GOAWAY(ENHANCE_YOUR_CALM)"
    RESETS = "many copies on its connection wait for their cancellation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """The fields that all call events have.

    Attributes:
        target: the channel's target as given.
        method: the method's path, `/package.Service/Method`.
        at: the time of the event, in seconds on the channel's monotonic clock.
        attempt: the number of the attempt that the event is about, from 1.
        call_id: identifies the call in all its events, log lines and hooks; empty without a policy.
    """

    target: str
    method: str
    at: float
    attempt: int
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetried(CodedFailure, CallEvent):
    """The attempt failed with `code`; the next one follows in `delay` seconds, as determined by `source`.

    `server_delay` is the wait, in seconds, that the server asked for; None if it asked for none or its request was
    ignored. If it is set, `delay` is that wait after the policy's jitter and limits are applied (RT-3). `trace_id` is
    the id of the caller's trace, as 32 hexadecimal digits; None if OpenTelemetry has no active trace.
    """

    code: str
    delay: float
    source: WaitSource
    server_delay: float | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHedged(CallEvent):
    """Another copy of a hedged call was sent (HG-10); `attempt` is the number of the copy, from 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNotHedged(CallEvent):
    """A copy of a hedged call was due, and was not sent beside those that run, to spare their connections (HG-11).

    `attempt` is the number of the copy. It is due again in `delay` seconds. `first` is whether this is the first of
    these events since a server has asked for calm.
    """

    reason: NotHedged
    delay: float
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSucceeded(CallEvent):
    """The attempt succeeded, `took` seconds after the call began."""

    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallExhausted(CodedFailure, CallEvent):
    """The attempt failed with `code`, which the policy retries, but no further attempt followed (RT-6).

    `reason` says why. `took` is the number of seconds since the call began; `trace_id` is as in `CallRetried`.
    """

    code: str
    reason: Reason
    took: float
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNotConnected(CodedFailure, CallEvent):
    """The call ended with `code`, because its last attempt got no connection, `took` seconds after the call began.

    It comes once for each such call, with or without a policy (RT-12); with one, a `CallExhausted` may follow.
    """

    code: str
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A gap in a subscription, which ends with the message that follows it (SB-5).

    Attributes:
        lasted: the seconds from the end of a stream to the first message of a later one.
        opens: how many streams were opened meanwhile, including the one that delivered the message.
        code: the name of the status code with which the gap began; `OK` for an end without an error.
    """

    lasted: float
    opens: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(CodedFailure, CallEvent):
    """A stream of a subscription ended with `code`; the next one is opened in `delay` seconds, as `source` determined.

    `attempt` counts the streams since the last message; it is 1 if this one delivered any. `server_delay` is as in
    `CallRetried`.
    """

    code: str
    delay: float
    source: WaitSource
    server_delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed(CallEvent):
    """A stream of a subscription delivered its first message after a gap (SB-5)."""

    gap: Gap
