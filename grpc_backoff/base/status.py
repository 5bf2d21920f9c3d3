"""What both events and errors say: a channel's state, why it has no connection, and why a call was not retried."""

from __future__ import annotations

import enum

from grpc_backoff.base.record import NamedTuple, dataclass


class State(enum.Enum):
    """A channel's state, with the names of `grpc.ChannelConnectivity`."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    TRANSIENT_FAILURE = "transient failure"
    SHUTDOWN = "shutdown"


class Stage(enum.Enum):
    """The stage at which a connection attempt failed."""

    CREDENTIALS = "credentials"
    """Reading the credentials, if the channel has a source of them instead of the credentials themselves."""
    RESOLVE = "resolve"
    """Name resolution."""
    TCP = "tcp"
    """Connecting to the peer's TCP or Unix socket."""
    TLS = "tls"
    """The TLS handshake."""
    SETTINGS = "settings"
    """The wait for the HTTP/2 SETTINGS frame; only its arrival counts as success. Also reported if an attempt's time
    limit expires (CB-3)."""
    HEALTH = "health"
    """The question whether the server serves; only a connection that replaces another one depends on the answer
    (RO-1)."""
    ESTABLISHED = "established"
    """The connection was established (SETTINGS arrived) and then lost."""
    UNKNOWN = "unknown"
    """grpcio's message, given as the reason, does not indicate the stage."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no connection: the stage that failed, and a description.

    Attributes:
        stage: the stage that failed.
        reason: a description, mostly grpcio's message.
        lasting: whether every attempt will fail so, because grpcio's core cannot use the target or the service config.
    """

    stage: Stage
    reason: str
    lasting: bool = False

    def __str__(self) -> str:
        """Return the stage and the description on one line."""
        return f"{self.stage.value}: {self.reason}"


IDLED = "it reached the idle timeout"
"""The reason of a loss where the core, or this side, has closed a connection because no call used it (CB-14)."""


class Loss(NamedTuple):
    """How an established connection ended, as far as the connector can tell.

    Attributes:
        reason: why it ended, in words.
        graceful: whether the peer sent GOAWAY(NO_ERROR), or the connection was closed because it was idle.
        served: whether the server has answered a call on the connection, with a response or a status of its own.
    """

    reason: str
    graceful: bool = False
    served: bool = False


class Link(enum.Enum):
    """The state of a failed call's connection at the moment the call ended."""

    __hash__ = object.__hash__  # implemented in C, because every failure of a call looks up what its text says

    NONE = "none"
    """The call had not been assigned to a connection."""
    OPEN = "open"
    """The connection was up or draining, so the status may have come from the server."""
    BROKEN = "broken"
    """The connection ended together with the call."""
    UNREACHABLE = "unreachable"
    """The connection had already ended, and the core had redialled by itself without success."""


class Role(enum.Enum):
    """What one of a channel's slots is for (PO-2)."""

    __hash__ = object.__hash__  # implemented in C

    COMING = "coming"
    """It has no connection, and seeks one when the channel needs one."""
    SERVING = "serving"
    """It has a connection that takes new calls."""
    UNHEALTHY = "unhealthy"
    """Its server says that it is not serving, so its connection takes no new calls, and a replacement is sought."""
    RETIRING = "retiring"
    """It takes no new calls; its connection is closed when the last call has ended."""
    CONDEMNED = "condemned"
    """Its connection is known to be dead, so its calls are being ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """A snapshot of one of a channel's slots, which has at most one connection for new calls (PO-11).

    Attributes:
        endpoint: the address that the slot dials; empty for the channel's whole target.
        role: what the slot is for.
        state: its state, with the meaning that it has for a channel; SHUTDOWN if it dials no more.
        calls: how many calls run on its connections.
        since: when it got its role, in seconds on the channel's clock.
        last_error: why its last attempt failed or its last connection ended; None once a new connection is READY.
        suspected: why the peer of its connection was last asked whether it is alive; empty if it was not (LV-5).
        answered: what came of that; None if the peer was not asked, or has not answered yet.
        spreads: whether grpcio's core makes several connections for this slot by itself, because of the policy that
            balances calls or the kind of the target (PO-5). Their attempts follow the core's schedule, unreported.
    """

    endpoint: str
    role: Role
    state: State
    calls: int
    since: float
    last_error: Failure | None
    suspected: str = ""
    answered: bool | None = None
    spreads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatus:
    """A snapshot of what a channel is doing (CH-11).

    Attributes:
        state: the state that `get_state` reports.
        attempt: the number of the attempt in flight, or else of the last one; 0 before the first.
        in_flight: whether an attempt is running. In backoff, this includes an attempt of another channel that shares
            the backoff (SH-3).
        last_error: why the last attempt failed or the last connection ended; None once a new connection is READY.
        next_attempt_in: seconds until the next attempt may start; None if none is planned.
        ready_since: when the channel became READY, in seconds on its clock, like `Connected.at`; None if it is not
            READY. With the event loop's clock, that was `loop.time() - ready_since` seconds ago.
        made: how many connections this channel has made so far.
        connections: the channel's slots; usually one, which dials the whole target. Empty in errors.
    """

    state: State
    attempt: int
    in_flight: bool
    last_error: Failure | None
    next_attempt_in: float | None
    ready_since: float | None
    made: int
    connections: tuple[SlotStatus, ...] = ()


class WaitSource(enum.Enum):
    """What determined the wait before a retry (RT-3)."""

    SCHEDULE = "schedule"
    """The policy's own backoff."""
    PUSHBACK = "grpc-retry-pushback-ms"
    """gRPC's own trailer, `grpc-retry-pushback-ms` (gRFC A6)."""
    RETRY_INFO = "google.rpc.RetryInfo"
    """A `google.rpc.RetryInfo` in the status details (rich error model)."""
    RETRY_AFTER = "retry-after"
    """HTTP's `retry-after` header, in seconds or as a date (RFC 9110)."""
    REFRESH = "refreshed credentials"
    """The credentials were renewed, so the call is retried without a wait (RT-4)."""
    REFUSED = "refused stream"
    """The server refused the stream with a GOAWAY or REFUSED_STREAM, so the call is repeated once, without a wait."""


class Reason(enum.Enum):
    """Why a retryable call was not retried."""

    ATTEMPTS = "no attempts are left"
    DEADLINE = "the deadline leaves no time for another attempt"
    BUDGET = "the retry budget is used up"
    STOPPED = "the server asked the client not to retry"


CANCELLED_BY_SERVER = "cancelled by the server or its shutdown"
"""What CANCELLED means if neither the caller nor a deadline was its cause (RO-3)."""


class CodedFailure:
    """What the events about a failed call or stream have in common.

    Attributes:
        code: the name of the status code.
    """

    __slots__ = ()

    code: str

    @property
    def failure(self) -> str:
        """The code; for CANCELLED, also that the server cancelled, because no event reports what the caller cancels."""
        return f"{self.code}, {CANCELLED_BY_SERVER}" if self.code == "CANCELLED" else self.code
