"""The schedules of a process, by key, and the managers that dial by them (SH-3, SH-5, SH-8).

Thread-safe, and independent of event loops: a manager may be anything that joins, on any thread. `connection/` decides
how a schedule changes; this module stores the schedules, changes them under a lock, and notifies of changes.

Nothing here keeps a manager alive. A manager that disappears is noticed when the garbage collector or a closed event
loop reports it; until then it merely gives no sign of life, which the schedule allows for.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol
from weakref import WeakMethod

from grpc_backoff.connection.schedule import Schedule

__all__ = ["MOST_REMEMBERED", "SCHEDULES", "Home", "Membership", "Registry"]

MOST_REMEMBERED = 1024
"""How many keys without managers are remembered (SH-8); the one that was left first is forgotten first."""

Hear = Callable[[Any], None]
"""Handles a notification, from any thread; RuntimeError if the receiver is gone."""
_NO_LOCK = nullcontext()


class Home(Protocol):
    """Where managers run: an event loop."""

    def is_closed(self) -> bool:
        """Return whether it no longer runs anything."""
        ...


class _Entry:
    """The schedule of one key, and its managers."""

    __slots__ = ("homes", "key", "members", "schedule", "stepping")

    def __init__(self, key: Hashable | None) -> None:
        self.key = key
        self.schedule = Schedule(members=0)
        self.stepping = False
        self.members: dict[int, tuple[WeakMethod[Hear], Home]] = {}
        self.homes: Counter[Home] = Counter()


class Membership:
    """One manager's membership in the schedule of its key."""

    __slots__ = ("_entry", "_registry", "number")

    def __init__(self, registry: Registry, entry: _Entry, number: int) -> None:
        """Store the arguments, for `Registry.join`; `number` identifies the manager in the schedule."""
        self._registry = registry
        self._entry = entry
        self.number = number

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock to hold while a step reads `schedule` and replaces it."""
        return _NO_LOCK if self._entry.key is None else self._registry.lock

    @property
    def schedule(self) -> Schedule:
        """The current schedule."""
        return self._entry.schedule

    @schedule.setter
    def schedule(self, schedule: Schedule) -> None:
        self._entry.schedule = schedule

    @property
    def stepping(self) -> bool:
        """Whether a step of the key is in progress; read and set it under the lock.

        It can only be in this very thread, interrupted by a signal handler or a finalizer.
        """
        return self._entry.stepping

    @stepping.setter
    def stepping(self, stepping: bool) -> None:
        self._entry.stepping = stepping

    def tell_others(self, news: Any) -> None:
        """Notify every other manager of the key that the schedule has changed."""
        self._registry.tell(self._entry, self.number, news)

    def leave(self, now: float, initial_backoff: float) -> None:
        """Leave the schedule; harmless if that has been done already."""
        self._registry.leave(self._entry, self.number, now, initial_backoff)


class Registry:
    """The schedules of all keys."""

    def __init__(self) -> None:
        """Start with no keys."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, in the child of a fork (SH-8): it all belonged to the parent's threads."""
        self.lock = threading.RLock()
        self._entries: dict[Hashable, _Entry] = {}
        self._remembered: OrderedDict[Hashable, float] = OrderedDict()
        self._numbers = itertools.count(1)
        # Found by the garbage collector, at any moment and in any thread, even under the lock.
        self._gone: deque[tuple[_Entry, int]] = deque()

    def __len__(self) -> int:
        """Return the number of known keys."""
        return len(self._entries)

    def join(self, key: Hashable | None, hear: Hear, home: Home, now: float) -> Membership:
        """Join the key's schedule, or a separate one for None.

        Args:
            key: what is dialled, and how.
            hear: a method of the manager that is called with each notification; only weakly referenced.
            home: where the manager runs.
            now: the time, in seconds on the clock that all managers share.
        """
        if key is None:
            alone = _Entry(None)
            alone.schedule = alone.schedule.joined()
            return Membership(self, alone, 0)
        with self.lock:
            self._sweep(now)
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(key)
            self._remembered.pop(key, None)
            self._drop_homeless(entry)
            number, gone = next(self._numbers), self._gone
            entry.members[number] = WeakMethod(hear, lambda _: gone.append((entry, number))), home
            entry.homes[home] += 1
            entry.schedule = entry.schedule.joined()
            diallers = [entry.schedule.turn] if entry.schedule.failing else []
        self._pass_on(entry, diallers, None)  # a manager that dials alone gives no signs of life until there is another
        return Membership(self, entry, number)

    def tell(self, entry: _Entry, teller: int, news: Any) -> None:
        """Notify all members of an entry except the one that reports."""
        if len(entry.members) <= 1:
            return
        with self.lock:
            others = [number for number in entry.members if number != teller]
        self._pass_on(entry, others, news)

    def _pass_on(self, entry: _Entry, numbers: Iterable[int | None], news: Any) -> None:
        lost = []
        for number in numbers:
            member = entry.members.get(number) if number is not None else None
            hear = None if member is None else member[0]()
            try:
                if hear is not None:
                    hear(news)
            except RuntimeError:  # its event loop is closed
                lost.append(number)
        if lost:
            with self.lock:
                for number in lost:
                    self._drop(entry, number)

    def leave(self, entry: _Entry, number: int, now: float, initial_backoff: float) -> None:
        """Remove a member. With the last one the key is forgotten.

        Unless the key still delays the next start (SH-5), or its target is proven (CB-7): then it stays until that is
        over.
        """
        if entry.key is None:
            return
        with self.lock:
            self._drop(entry, number)
            self._sweep(now)
            key = entry.key
            if entry.members or self._entries.get(key) is not entry:
                return
            until = entry.schedule.remembers_until(initial_backoff)
            if until <= now:
                del self._entries[key]
                self._remembered.pop(key, None)
            else:
                self._remembered[key] = until
                self._remembered.move_to_end(key)
                self._sweep(now)

    def _drop(self, entry: _Entry, number: int | None) -> None:
        member = None if number is None else entry.members.pop(number, None)
        if number is None or member is None:
            return
        home = member[1]
        entry.homes[home] -= 1
        if not entry.homes[home]:
            del entry.homes[home]
        entry.schedule = entry.schedule.left(number)

    def _drop_homeless(self, entry: _Entry) -> None:
        closed = [home for home in entry.homes if home.is_closed()]
        if closed:
            for number in [number for number, (_, home) in entry.members.items() if home in closed]:
                self._drop(entry, number)

    def _sweep(self, now: float) -> None:
        """Remove managers that are gone and keys that are out of date."""
        while self._gone:
            entry, number = self._gone.popleft()
            self._drop(entry, number)
            if not entry.members and self._entries.get(entry.key) is entry:
                self._remembered.setdefault(entry.key, entry.schedule.remembers_until(0.0))
        remembered = self._remembered
        expired = [key for key, until in remembered.items() if until <= now]
        for key in [*expired, *itertools.islice(remembered, max(0, len(remembered) - MOST_REMEMBERED))]:
            if remembered.pop(key, None) is not None:
                self._entries.pop(key, None)


SCHEDULES = Registry()
"""The registry of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SCHEDULES.begin_anew)
