"""Frozen records of a channel's connection: the events that listeners receive.

Times are in seconds on the channel's monotonic clock: by default the event loop's (`loop.time()`), or `time.monotonic`
for a threaded channel. Only differences between them are meaningful.
"""

from __future__ import annotations

from dataclasses import field

from grpc_backoff.base.record import dataclass
from grpc_backoff.base.status import ConnectionStatus as ConnectionStatus
from grpc_backoff.base.status import Failure as Failure
from grpc_backoff.base.status import Role as Role
from grpc_backoff.base.status import SlotStatus as SlotStatus
from grpc_backoff.base.status import Stage as Stage
from grpc_backoff.base.status import State as State
from grpc_backoff.decide.connections.happened import ChannelKey as ChannelKey


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
        endpoint: the address that is dialled, if the channel dials each address by itself (PO-6); empty if the event is
            about the whole target.
        slot: the number of the channel's slot that the event is about (PO-1); 0 for the channel's first.
    """

    target: str
    at: float
    attempt: int
    channel: ChannelKey = field(default_factory=ChannelKey, repr=False, compare=False)
    attempt_id: str = field(default="", compare=False)
    elsewhere: bool = field(default=False, compare=False)
    endpoint: str = field(default="", compare=False)
    slot: int = field(default=0, compare=False)


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
