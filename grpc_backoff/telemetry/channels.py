"""Tracks the connections and the planned attempts of observed channels.

Each event describes the current state of its channel's slot completely, so only the latest one is kept, under the
channel's key and the slot's number. It is discarded when the channel is closed or garbage-collected. A connection that
several channels share counts once, and so does an attempt that several of them report (SH-7); both are identified by
the attempt's id.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary, WeakSet

from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.process import after_fork, notice_fork
from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.events import ChannelKey, ConnectionEvent, Role
from grpc_backoff.decide.connections.slot_events import (
    NameResolution,
    SlotClosed,
    SlotCondemned,
    SlotEvent,
    SlotRetiring,
    SlotServing,
    SlotUnhealthy,
)

_MOST_REMEMBERED = 4096
"""How many events are remembered, so that none is counted twice. This is more than can be on their way to other event
loops."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A slot after its latest event; `next_start` is on the clock of `Channels`, None if no attempt is planned."""

    target: str
    connected: bool = False
    connection: str = ""
    next_start: float | None = None
    role: Role = Role.SERVING


_ROLES = {
    SlotServing: Role.SERVING,
    SlotUnhealthy: Role.UNHEALTHY,
    SlotRetiring: Role.RETIRING,
    SlotCondemned: Role.CONDEMNED,
}


class Channels:
    """Receives events on event loops and answers queries in any thread."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        """Start without channels; `now` is a monotonic clock shared by all threads, unlike a channel's (CB-12)."""
        self._now = now
        self.begin_anew()
        _EACH.add(self)

    def begin_anew(self) -> None:
        """Forget all channels: in the child of a fork, they and their connections are the parent's (FK-1)."""
        self._lock = threading.Lock()  # never held while foreign code runs
        self._known: WeakKeyDictionary[ChannelKey, dict[int, _Slot]] = WeakKeyDictionary()
        self._reported: OrderedDict[tuple[type, str], None] = OrderedDict()

    def is_news(self, event: ConnectionEvent) -> bool:
        """Return whether this is the first report of the event; call this once for each event received."""
        if not event.attempt_id:
            return True
        report = type(event), event.attempt_id
        with self._lock:
            new = report not in self._reported
            self._reported[report] = None
            if len(self._reported) > _MOST_REMEMBERED:
                self._reported.popitem(last=False)
        return new

    def note(self, event: ConnectionEvent, target: str) -> None:
        """Record the event for its channel; `target` is the label under which the channel is counted."""
        match event:
            case events.BackoffReset(retry_in=None) | events.CoreRedial() | NameResolution():
                return  # none of these changes the channel's connection or plan
            case SlotEvent() if not isinstance(event, SlotClosed):
                with self._lock:
                    slots = self._known.get(event.channel, {})
                    if type(event) in _ROLES and event.slot in slots:
                        slots[event.slot] = replace(slots[event.slot], role=_ROLES[type(event)])
                return
            case events.AttemptFailed() | events.Disconnected() | events.BackoffReset() if event.retry_in is not None:
                known = _Slot(target, next_start=self._now() + event.retry_in)
            case events.Connected() if not event.elsewhere:
                known = _Slot(target, connected=True, connection=event.attempt_id)
            case _:
                known = _Slot(target)
        with self._lock:
            if isinstance(event, events.Closed):
                self._known.pop(event.channel, None)
                return
            slots = self._known.setdefault(event.channel, {})
            before = slots.get(event.slot)
            if event.elsewhere and before is not None and before.connected:
                return
            if isinstance(event, SlotClosed):
                slots.pop(event.slot, None)
            else:
                slots[event.slot] = known

    def open_connections(self) -> Mapping[str, int]:
        """Return the number of open connections for each target that an open channel has dialled."""
        count: Counter[str] = Counter()
        for (target, _), connections in self.roles().items():
            count[target] += connections
        return count

    def roles(self) -> Mapping[tuple[str, Role], int]:
        """Return the number of open connections for each target that an open channel has dialled, by role (PO-11)."""
        count: Counter[tuple[str, Role]] = Counter()
        seen = set()
        for slot in self._slots():
            shared = slot.connection in seen
            count[slot.target, slot.role] += slot.connected and not shared
            if slot.connection:
                seen.add(slot.connection)
        return count

    def next_attempts(self) -> Mapping[str, float]:
        """Return the seconds until the next planned attempt, for each target that has one.

        An attempt whose time has passed is not included: it has begun, or its channel has become idle (CB-14).
        """
        now = self._now()
        nearest: dict[str, float] = {}
        for slot in self._slots():
            if slot.next_start is not None and slot.next_start > now:
                wait = slot.next_start - now
                nearest[slot.target] = min(wait, nearest.get(slot.target, wait))
        return nearest

    def _slots(self) -> list[_Slot]:
        notice_fork()  # what is known here may be the parent's
        with self._lock:
            return [slot for slots in self._known.values() for slot in slots.values()]


_EACH: WeakSet[Channels] = WeakSet()


def _begin_anew() -> None:
    for channels in tuple(_EACH):
        channels.begin_anew()


after_fork(_begin_anew)
