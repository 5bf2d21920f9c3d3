"""Frozen records of a channel's slots: the events that listeners receive when a channel has several connections."""

from __future__ import annotations

from dataclasses import dataclass

from grpc_backoff.connection.events import ConnectionEvent


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
class SlotRetiring(SlotEvent):
    """The slot takes no new calls; its connection is closed when the last of its calls has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCondemned(SlotEvent):
    """The slot's connection is known to be dead: its calls end at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClosed(SlotEvent):
    """The slot is gone.

    `lived` is how many seconds ago its last connection was made; None if it had none that this side has closed.
    """

    lived: float | None
