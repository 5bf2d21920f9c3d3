"""Frozen records of what a channel's connection did and does: what listeners get and what a status says.

Times are seconds of the channel's monotonic clock: the event loop's (`loop.time()`), unless the channel was given
another. Differences between them mean something, the numbers do not.
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
    """A channel's state, under the names of `grpc.ChannelConnectivity`."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    TRANSIENT_FAILURE = "transient failure"
    SHUTDOWN = "shutdown"


class Stage(enum.Enum):
    """How far a connection had come when it failed."""

    RESOLVE = "resolve"
    """Name resolution."""
    TCP = "tcp"
    """Reaching the peer's socket, TCP's or Unix's."""
    TLS = "tls"
    """The TLS handshake."""
    SETTINGS = "settings"
    """Waiting for the HTTP/2 SETTINGS frame, which alone is success; also where a limit passed (CB-3)."""
    ESTABLISHED = "established"
    """After SETTINGS: a connection that was made and then lost."""
    UNKNOWN = "unknown"
    """The reason, which is grpcio's own words, names no stage that we know."""


@value(frozen=True, slots=True)
class Failure:
    """Why there is no connection: the stage, and the reason in words."""

    stage: Stage
    reason: str

    def __str__(self) -> str:
        """Say both in one line."""
        return f"{self.stage.value}: {self.reason}"


class ChannelKey:
    """Which channel an event is of, for as long as that channel lives.

    A listener to several channels keeps what it knows of each in a `weakref.WeakKeyDictionary` by this key.
    """

    __slots__ = ("__weakref__",)


@value(frozen=True, slots=True, kw_only=True)
class ConnectionEvent:
    """What every event has.

    Attributes:
        target: the channel's target as it was given.
        at: when it happened, on the channel's monotonic clock.
        attempt: which attempt of the current series it belongs to; 1 is the first.
        channel: the same for all events of one channel; another channel to the same target has another.
        attempt_id: which attempt it is about, or whose connection: the same wherever in the process it is told (SH-7).
            Empty before the first attempt.
        elsewhere: whether that attempt is another's, whose backoff this channel shares: of a channel with TLS, or on
            another event loop (SH-3).
    """

    target: str
    at: float
    attempt: int
    channel: ChannelKey = field(default_factory=ChannelKey, repr=False, compare=False)
    attempt_id: str = field(default="", compare=False)
    elsewhere: bool = field(default=False, compare=False)


@value(frozen=True, slots=True, kw_only=True)
class AttemptStarted(ConnectionEvent):
    """Dialling began; the attempt may last `limit` seconds (CB-3)."""

    limit: float


@value(frozen=True, slots=True, kw_only=True)
class AttemptFailed(ConnectionEvent):
    """The attempt ended without SETTINGS; the next starts in `retry_in` seconds (CB-4)."""

    failure: Failure
    took: float
    retry_in: float


@value(frozen=True, slots=True, kw_only=True)
class Connected(ConnectionEvent):
    """SETTINGS arrived: the connection stands. `connections` counts this one.

    A channel that comes to share a connection which stands already is told of that with `joined` set (SH-7).
    """

    took: float
    connections: int
    joined: bool = field(default=False, compare=False)


@value(frozen=True, slots=True, kw_only=True)
class Disconnected(ConnectionEvent):
    """An established connection ended after `lived` seconds; `failure` says how, as far as it is known.

    `counted_as_failure` tells that `stable_after` made it a failed attempt (CB-8). The next attempt starts in
    `retry_in` seconds; None if it takes a call to ask for one.
    """

    failure: Failure
    lived: float
    counted_as_failure: bool
    retry_in: float | None = None


@value(frozen=True, slots=True, kw_only=True)
class CoreRedial(ConnectionEvent):
    """grpc's core dialled by itself, for a call that entered a connection as it ended (CB-7).

    It is no attempt of the channel's: only that call uses the connection, which closes with it.
    """


@value(frozen=True, slots=True, kw_only=True)
class BackoffReset(ConnectionEvent):
    """`reset_connect_backoff()` was called (CB-9); again only once something has happened since.

    A channel that was asleep starts its next attempt in `retry_in` seconds; None if it was not.
    """

    retry_in: float | None = None


@value(frozen=True, slots=True, kw_only=True)
class Closed(ConnectionEvent):
    """The channel was closed, or dropped by its program: the last of its events (CB-10).

    A connection that stood then had lasted for `lived` seconds; None if there was none.
    """

    lived: float | None


@value(frozen=True, slots=True, kw_only=True)
class ConnectionStatus:
    """What a channel is doing at one moment (CH-11).

    Attributes:
        state: the state that `get_state` reports.
        attempt: the number of the attempt in flight, else of the last one; 0 before the first.
        in_flight: whether an attempt is running; in backoff, that of any channel which shares it (SH-3).
        last_error: why the last attempt failed or the last connection ended; None once a new one is READY.
        next_attempt_in: seconds until the next attempt may start; None when none is planned.
        ready_since: when READY began, on the channel's clock: what `Connected.at` says of it. READY has lasted for
            `loop.time() - ready_since` seconds, where the channel has its event loop's clock. None when not READY.
        connections: how many connections this channel has made so far.
    """

    state: State
    attempt: int
    in_flight: bool
    last_error: Failure | None
    next_attempt_in: float | None
    ready_since: float | None
    connections: int
