"""The schedules of a process, by key, and the managers that dial by them (SH-3, SH-5, SH-8).

Thread-safe, and without an event loop: a manager is whatever joins, on whatever thread. What becomes of a schedule is
decided in `connection/`; this module holds each one, changes it under a lock, and passes on that it has changed.

Nothing here keeps a manager alive. A manager that goes away without a word is noticed when the garbage collector or a
closed event loop says so; until then it is one that gives no sign of life, which the schedule allows for.
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
"""How many keys without any manager are remembered at most (SH-8); the one that was left first goes first."""

Hear = Callable[[Any], None]
"""Takes news in, from any thread; RuntimeError if there is nobody any more to take it."""
_NO_LOCK = nullcontext()


class Home(Protocol):
    """Where managers live: an event loop."""

    def is_closed(self) -> bool:
        """Return whether nothing runs there any more."""
        ...


class _Entry:
    """One key's schedule, and who dials by it."""

    __slots__ = ("homes", "key", "members", "schedule", "stepping")

    def __init__(self, key: Hashable | None) -> None:
        self.key = key
        self.schedule = Schedule(members=0)
        self.stepping = False
        self.members: dict[int, tuple[WeakMethod[Hear], Home]] = {}
        self.homes: Counter[Home] = Counter()


class Membership:
    """One manager's place at the schedule of its key."""

    __slots__ = ("_entry", "_registry", "number")

    def __init__(self, registry: Registry, entry: _Entry, number: int) -> None:
        """Made by `Registry.join`; `number` is what the schedule knows the manager by."""
        self._registry = registry
        self._entry = entry
        self.number = number

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What to hold while a step reads `schedule` and puts another in its place."""
        return _NO_LOCK if self._entry.key is None else self._registry.lock

    @property
    def schedule(self) -> Schedule:
        """The schedule as it stands."""
        return self._entry.schedule

    @schedule.setter
    def schedule(self, schedule: Schedule) -> None:
        self._entry.schedule = schedule

    @property
    def stepping(self) -> bool:
        """Whether a step of the key is under way; to be asked and set under the lock.

        It is so only in this very thread: a signal handler, or what the garbage collector runs, came into it.
        """
        return self._entry.stepping

    @stepping.setter
    def stepping(self, stepping: bool) -> None:
        self._entry.stepping = stepping

    def tell_others(self, news: Any) -> None:
        """Pass on that the schedule has changed to every other manager of the key."""
        self._registry.tell(self._entry, self.number, news)

    def leave(self, now: float, initial_backoff: float) -> None:
        """Have no part in it any more; harmless when that is so already."""
        self._registry.leave(self._entry, self.number, now, initial_backoff)


class Registry:
    """The schedules of all keys."""

    def __init__(self) -> None:
        """Know of none."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, as the child of a fork does (SH-8): what was there belongs to the parent's threads."""
        self.lock = threading.RLock()
        self._entries: dict[Hashable, _Entry] = {}
        self._remembered: OrderedDict[Hashable, float] = OrderedDict()
        self._numbers = itertools.count(1)
        # What the garbage collector found, at any moment and in any thread, also under the lock.
        self._gone: deque[tuple[_Entry, int]] = deque()

    def __len__(self) -> int:
        """Return how many keys are known."""
        return len(self._entries)

    def join(self, key: Hashable | None, hear: Hear, home: Home, now: float) -> Membership:
        """Return a place at the key's schedule; at one of its own for None.

        Args:
            key: what is dialled and how.
            hear: a method of the manager's, called with each piece of news; only a weak reference to it is kept.
            home: where the manager lives.
            now: the time, on the clock that all managers share.
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
        self._pass_on(entry, diallers, None)  # whoever dials alone shows no life until there is somebody to see it
        return Membership(self, entry, number)

    def tell(self, entry: _Entry, teller: int, news: Any) -> None:
        """Pass news on to all members of an entry but the one that tells."""
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
        """Take a member out. With the last one the key is forgotten.

        Unless it still holds back the next start (SH-5), or vouches for the target (CB-7): then it stays until that
        is over.
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
        """Take out who is gone and what is out of date."""
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
"""The process's own."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SCHEDULES.begin_anew)
