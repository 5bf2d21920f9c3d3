"""Frozen records of a channel's connection: the events that listeners receive, and the status.

Times are in seconds on the channel's monotonic clock: by default the event loop's (`loop.time()`), or `time.monotonic`
for a threaded channel. Only differences between them are meaningful.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class State(enum.Enum):
    """A channel's state, with the names of `grpc.ChannelConnectivity`."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    TRANSIENT_FAILURE = "transient failure"
    SHUTDOWN = "shutdown"


class Stage(enum.Enum):
    """The stage at which a connection attempt failed."""

    RESOLVE = "resolve"
    """Name resolution."""
    TCP = "tcp"
    """Connecting to the peer's TCP or Unix socket."""
    TLS = "tls"
    """The TLS handshake."""
    SETTINGS = "settings"
    """The wait for the HTTP/2 SETTINGS frame; only its arrival counts as success. Also reported if an attempt's time
    limit expires (CB-3)."""
    ESTABLISHED = "established"
    """The connection was established (SETTINGS arrived), and then lost."""
    UNKNOWN = "unknown"
    """grpcio's message, given as the reason, does not indicate the stage."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no connection: the stage that failed, and a description."""

    stage: Stage
    reason: str

    def __str__(self) -> str:
        """Return the stage and the description on one line."""
        return f"{self.stage.value}: {self.reason}"


NO_SETTINGS = "no SETTINGS frame within the attempt's time limit"
"""The reason given for an attempt that reached its limit, whether this library or the core noticed first (CH-4)."""


class ChannelKey:
    """Identifies the channel that an event belongs to, for as long as that channel exists.

    A listener that serves several channels can keep its data about each of them in a `weakref.WeakKeyDictionary` with
    this key.
    """

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionEvent:
    """The base class of all connection events, with the fields that they share.

    Attributes:
        target: the channel's target as given.
        at: when the event happened, in seconds on the channel's monotonic clock.
        attempt: the number of the attempt in the current series, from 1.
        channel: identifies the channel: all of its events have the same `ChannelKey`, and no other channel's events do.
        attempt_id: identifies the attempt, or the attempt that made the connection. Every channel that reports the
            attempt reports the same id (SH-7). Empty before the first attempt.
        elsewhere: whether the attempt belongs to another channel that shares this one's backoff but not its connection,
            for example, because it uses TLS or runs on another event loop (SH-3).
    """

    target: str
    at: float
    attempt: int
    channel: ChannelKey = field(default_factory=ChannelKey, repr=False, compare=False)
    attempt_id: str = field(default="", compare=False)
    elsewhere: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(ConnectionEvent):
    """An attempt to connect has started; it may take up to `limit` seconds (CB-3)."""

    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(ConnectionEvent):
    """The attempt ended without SETTINGS after `took` seconds; the next one starts in `retry_in` seconds (CB-4)."""

    failure: Failure
    took: float
    retry_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(ConnectionEvent):
    """SETTINGS arrived after `took` seconds: the connection is established.

    `connections` is the number of connections so far, including this one. A channel that starts to share an existing
    connection receives this event with `joined` set (SH-7).
    """

    took: float
    connections: int
    joined: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(ConnectionEvent):
    """An established connection ended after `lived` seconds; `failure` says how, as far as is known.

    `counted_as_failure` says whether the connection counts as a failed attempt because of `stable_after` (CB-8). The
    next attempt starts in `retry_in` seconds; `retry_in` is None if no attempt starts before the next call.
    """

    failure: Failure
    lived: float
    counted_as_failure: bool
    retry_in: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRedial(ConnectionEvent):
    """grpc's core redialled by itself, because a connection ended just as a call was assigned to it (CB-16).

    This is not one of the channel's attempts: only that call uses the new connection, which closes when the call ends.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffReset(ConnectionEvent):
    """`reset_connect_backoff()` was called, and there was something to reset (CB-9).

    If the channel was waiting for its next attempt, that attempt starts in `retry_in` seconds; otherwise, `retry_in` is
    None.
    """

    retry_in: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(ConnectionEvent):
    """The channel was closed, or garbage-collected; no event follows (CB-10).

    `lived` is how many seconds the connection had lasted; None if the channel had none.
    """

    lived: float | None


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
        connections: how many connections this channel has made so far.
    """

    state: State
    attempt: int
    in_flight: bool
    last_error: Failure | None
    next_attempt_in: float | None
    ready_since: float | None
    connections: int
