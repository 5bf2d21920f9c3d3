"""Frozen records of a channel's connection: the events that listeners receive, and the status.

Times are in seconds on the channel's monotonic clock: the event loop's (`loop.time()`), unless the channel was given
another. Only differences between them are meaningful.
"""

from __future__ import annotations

import enum

from grpc_backoff.record import field, value

__all__ = [
    "AttemptFailed",
    "AttemptStarted",
    "BackoffReset",
    "ChannelKey",
    "Closed",
    "Connected",
    "ConnectionEvent",
    "ConnectionStatus",
    "CoreRedial",
    "Disconnected",
    "Failure",
    "Stage",
    "State",
]


class State(enum.Enum):
    """A channel's state, with the names of `grpc.ChannelConnectivity`."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    TRANSIENT_FAILURE = "transient failure"
    SHUTDOWN = "shutdown"


class Stage(enum.Enum):
    """How far a connection attempt came before it failed."""

    RESOLVE = "resolve"
    """Name resolution."""
    TCP = "tcp"
    """Connecting to the peer's TCP or Unix socket."""
    TLS = "tls"
    """The TLS handshake."""
    SETTINGS = "settings"
    """Waiting for the HTTP/2 SETTINGS frame, which alone means success; also used when a time limit expired (CB-3)."""
    ESTABLISHED = "established"
    """After SETTINGS: a connection that was established and then lost."""
    UNKNOWN = "unknown"
    """Unknown: the reason, in grpcio's own words, names no known stage."""


@value(frozen=True, slots=True)
class Failure:
    """Why there is no connection: the stage, and a description."""

    stage: Stage
    reason: str

    def __str__(self) -> str:
        """Return both on one line."""
        return f"{self.stage.value}: {self.reason}"


class ChannelKey:
    """Identifies the channel of an event, for as long as that channel lives.

    A listener to several channels can keep its data about each in a `weakref.WeakKeyDictionary` under this key.
    """

    __slots__ = ("__weakref__",)


@value(frozen=True, slots=True, kw_only=True)
class ConnectionEvent:
    """The fields that all events have.

    Attributes:
        target: the channel's target as given.
        at: when it happened, in seconds on the channel's monotonic clock.
        attempt: the number of the attempt in the current series, from 1.
        channel: identifies the channel; the same for all its events, and different for another channel to the target.
        attempt_id: identifies the attempt, or the attempt that made the connection; the same wherever in the process
            it is reported (SH-7). Empty before the first attempt.
        elsewhere: whether the attempt belongs to another channel with which this one shares its backoff: a channel
            with TLS, or one on another event loop (SH-3).
    """

    target: str
    at: float
    attempt: int
    channel: ChannelKey = field(default_factory=ChannelKey, repr=False, compare=False)
    attempt_id: str = field(default="", compare=False)
    elsewhere: bool = field(default=False, compare=False)


@value(frozen=True, slots=True, kw_only=True)
class AttemptStarted(ConnectionEvent):
    """Dialling began; the attempt may take up to `limit` seconds (CB-3)."""

    limit: float


@value(frozen=True, slots=True, kw_only=True)
class AttemptFailed(ConnectionEvent):
    """The attempt ended without SETTINGS; the next one starts in `retry_in` seconds (CB-4)."""

    failure: Failure
    took: float
    retry_in: float


@value(frozen=True, slots=True, kw_only=True)
class Connected(ConnectionEvent):
    """SETTINGS arrived: the connection is established. `connections` counts the connections, including this one.

    A channel that starts to share an existing connection receives this event with `joined` set (SH-7).
    """

    took: float
    connections: int
    joined: bool = field(default=False, compare=False)


@value(frozen=True, slots=True, kw_only=True)
class Disconnected(ConnectionEvent):
    """An established connection ended after `lived` seconds; `failure` says how, as far as is known.

    `counted_as_failure` says whether `stable_after` turned it into a failed attempt (CB-8). The next attempt starts in
    `retry_in` seconds; None if it takes a call to start one.
    """

    failure: Failure
    lived: float
    counted_as_failure: bool
    retry_in: float | None = None


@value(frozen=True, slots=True, kw_only=True)
class CoreRedial(ConnectionEvent):
    """grpc's core redialled by itself, for a call that was assigned to a connection as it ended (CB-7).

    This is not an attempt of the channel: only that call uses the connection, which closes when the call ends.
    """


@value(frozen=True, slots=True, kw_only=True)
class BackoffReset(ConnectionEvent):
    """`reset_connect_backoff()` was called (CB-9); repeated calls are reported only if something happened in between.

    If the channel was in backoff, its next attempt starts in `retry_in` seconds; None if it was not.
    """

    retry_in: float | None = None


@value(frozen=True, slots=True, kw_only=True)
class Closed(ConnectionEvent):
    """The channel was closed, or garbage-collected: its last event (CB-10).

    If it had a connection, that had lasted `lived` seconds; None otherwise.
    """

    lived: float | None


@value(frozen=True, slots=True, kw_only=True)
class ConnectionStatus:
    """A snapshot of what a channel is doing (CH-11).

    Attributes:
        state: the state that `get_state` reports.
        attempt: the number of the attempt in flight, or else of the last one; 0 before the first.
        in_flight: whether an attempt is running; in backoff, by any channel that shares the backoff (SH-3).
        last_error: why the last attempt failed or the last connection ended; None once a new connection is READY.
        next_attempt_in: seconds until the next attempt may start; None if none is planned.
        ready_since: when the channel became READY, on its clock, as in `Connected.at`; None if it is not READY. With
            the event loop's clock, it has been READY for `loop.time() - ready_since` seconds.
        connections: how many connections this channel has made so far.
    """

    state: State
    attempt: int
    in_flight: bool
    last_error: Failure | None
    next_attempt_in: float | None
    ready_since: float | None
    connections: int
