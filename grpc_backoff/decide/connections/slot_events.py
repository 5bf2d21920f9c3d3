"""Frozen records of a channel's slots and name: the events that listeners receive beside those of connections."""

from __future__ import annotations

from grpc_backoff.base.record import dataclass
from grpc_backoff.decide.connections.events import ConnectionEvent, Failure
from grpc_backoff.decide.connections.happened import ChannelKey  # noqa: F401 - in annotations that a program evaluates


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEvent(ConnectionEvent):
    """The base class of events about a slot: `slot` and `endpoint` say which one it is, and `why` gives the cause.

    A channel's first slot that dials the whole target is not announced when it is opened or serves: `AttemptStarted`
    and `Connected` say that. These events are about no attempt, so `attempt` is 0.
    """

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOpened(SlotEvent):
    """The channel has one more slot, which seeks a connection when the channel needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotServing(SlotEvent):
    """The slot has a connection and takes new calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUnhealthy(SlotEvent):
    """The slot takes no new calls, because its server says that it is not serving (RO-1).

    `SlotServing` follows if the server serves again. Otherwise, another slot takes its place.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRetiring(SlotEvent):
    """The slot takes no new calls; its connection is closed when the last of its calls has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCondemned(SlotEvent):
    """The slot's connection is known to be dead: its calls end at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessAsked(SlotEvent):
    """The peer of the slot's connection is suspected, so it has `within` seconds to show that it is alive (LV-1).

    `LivenessAnswered` follows, or `SlotCondemned` if there is no answer. Neither does if the connection ends meanwhile,
    or if the question had to wait behind the server's limit of streams.
    """

    within: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessAnswered(SlotEvent):
    """The peer of the slot's connection has answered after `took` seconds; `why` says why it had been asked."""

    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClosed(SlotEvent):
    """The slot is gone.

    `lived` is how many seconds ago its last connection was made; None if it had none that this side has closed.
    """

    lived: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameResolution(ConnectionEvent):
    """A resolution of the target's name has ended (PO-7); `failure` says why there are no addresses.

    It is about no attempt, so `attempt` is 0. After a failure, the known addresses stay in use. While there are none, a
    resolution that fails is an attempt, which `AttemptFailed` reports.
    """

    addresses: tuple[str, ...] = ()
    failure: Failure | None = None
