"""What the channels that are listened to have at this moment: connections, and attempts that are planned.

Each event says all that is to be known of its channel, so the latest one is what is kept: under the channel's key, and
so no longer than the channel, whether it is closed or merely dropped. A connection that several channels share is one
connection, and an attempt that several of them tell of is one attempt (SH-7): both are known by the attempt's id.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from grpc_backoff.connection import events
from grpc_backoff.connection.events import ChannelKey, ConnectionEvent

__all__ = ["Channels"]

_MOST_TOLD = 4096
"""How many events are remembered, so that none is counted twice: more than can be on their way to other loops."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """One channel after its latest event; `next_start` is on this module's clock, None if nothing is planned."""

    target: str
    connected: bool = False
    connection: str = ""
    next_start: float | None = None


class Channels:
    """Takes in events on event loops, and answers in any thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begin without channels; `now` is a monotonic clock of all threads, as a channel's own need not be (CB-12)."""
        self._now = now
        self._lock = threading.Lock()  # never held while another's code runs
        self._known: WeakKeyDictionary[ChannelKey, _Channel] = WeakKeyDictionary()
        self._told: OrderedDict[tuple[type, str], None] = OrderedDict()

    def is_news(self, event: ConnectionEvent) -> bool:
        """Return whether another channel has not told of the same already: to be asked once for each event."""
        if not event.attempt_id:
            return True
        told = type(event), event.attempt_id
        with self._lock:
            new = told not in self._told
            self._told[told] = None
            if len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)
        return new

    def note(self, event: ConnectionEvent, target: str) -> None:
        """Keep what the event says of its channel, under the name that its target is to have in the answers."""
        match event:
            case events.BackoffReset(retry_in=None) | events.CoreRedial():
                return  # nothing was planned that changes; and what the core dials is not the channel's
            case events.AttemptFailed() | events.Disconnected() | events.BackoffReset() if event.retry_in is not None:
                known = _Channel(target, next_start=self._now() + event.retry_in)
            case events.Connected() if not event.elsewhere:
                known = _Channel(target, connected=True, connection=event.attempt_id)
            case _:
                known = _Channel(target)
        with self._lock:
            before = self._known.get(event.channel)
            if event.elsewhere and before is not None and before.connected:
                return
            if isinstance(event, events.Closed):
                self._known.pop(event.channel, None)
            else:
                self._known[event.channel] = known

    def open_connections(self) -> Mapping[str, int]:
        """Return how many connections stand, for each target that a channel which is not closed has dialled."""
        count: Counter[str] = Counter()
        seen = set()
        for channel in self._all():
            shared = channel.connection in seen
            count[channel.target] += channel.connected and not shared
            if channel.connection:
                seen.add(channel.connection)
        return count

    def next_attempts(self) -> Mapping[str, float]:
        """Return the seconds to the nearest attempt that is planned, for each target that has one.

        An attempt whose time has passed is not planned any more: it has begun, or its channel fell idle (CB-14).
        """
        now = self._now()
        nearest: dict[str, float] = {}
        for channel in self._all():
            if channel.next_start is not None and channel.next_start > now:
                wait = channel.next_start - now
                nearest[channel.target] = min(wait, nearest.get(channel.target, wait))
        return nearest

    def _all(self) -> list[_Channel]:
        with self._lock:
            return list(self._known.values())
