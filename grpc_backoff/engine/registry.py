"""The schedules of a process, by key, and the managers that follow them (SH-3, SH-5, SH-8).

The registry is thread-safe and independent of event loops: any object on any thread can join as a manager. The module
`shared_schedule` decides how a schedule changes; this module stores the schedules, changes them under a lock, and
notifies the managers.

Nothing here keeps a manager alive. The registry learns from the garbage collector, or from a closed event loop, that a
manager is gone. Until then, the manager merely gives no signs of life, which the schedule allows for.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol
from weakref import WeakMethod

from grpc_backoff.base.process import after_fork
from grpc_backoff.decide.connections.shared_schedule import Schedule

MOST_REMEMBERED = 1024
"""How many keys without managers are remembered (SH-8). The one that lost its last manager first is forgotten first."""

Hear = Callable[[Any], None]
"""Handles a notification, in any thread; raises RuntimeError if the receiver's event loop is closed."""
_NO_LOCK = nullcontext()


class Home(Protocol):
    """Where managers run: an event loop, or the conductor of the threaded channels."""

    def is_closed(self) -> bool:
        """Return whether the loop or conductor is closed, so that nothing runs there any more."""
        ...


class Entry:
    """The schedule of one key, and its managers.

    Attributes:
        key: the key; None for a schedule that one manager has for itself.
        schedule: the current schedule.
        stepping: whether a step of the key is in progress; read and set it under the lock. If a thread that holds the
            lock finds it set, the step runs in the same thread, where a signal handler or a finalizer interrupted it.
        members: how to notify each manager, and where it runs, by the manager's number.
        homes: how many of the managers run in each place.
    """

    __slots__ = ("homes", "key", "members", "schedule", "stepping")

    def __init__(self, key: Hashable | None) -> None:
        self.key = key
        self.schedule = Schedule(members=0)
        self.stepping = False
        self.members: dict[int, tuple[WeakMethod[Hear], Home]] = {}
        self.homes: dict[Home, int] = {}


class Membership:
    """One manager's membership in the schedule of its key.

    Attributes:
        entry: the schedule. A step of the manager's machine reads and replaces it under `lock`.
        number: identifies the manager in the schedule.
    """

    __slots__ = ("_registry", "entry", "number")

    def __init__(self, registry: Registry, entry: Entry, number: int) -> None:
        self._registry = registry
        self.entry = entry
        self.number = number

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock to hold while a step reads the schedule and replaces it."""
        return _NO_LOCK if self.entry.key is None else self._registry.lock

    def tell_others(self, news: Any) -> None:
        """Notify every other manager of the key that the schedule has changed."""
        self._registry.tell(self.entry, self.number, news)

    def leave(self, now: float, initial_backoff: float) -> None:
        """Leave the schedule; calling this again does nothing."""
        self._registry.leave(self.entry, self.number, now, initial_backoff)


class Registry:
    """The schedules of all keys."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork (SH-8), because all the data belongs to the parent's threads."""
        self.lock = threading.RLock()
        self._entries: dict[Hashable, Entry] = {}
        self._remembered: OrderedDict[Hashable, float] = OrderedDict()
        self._numbers = itertools.count(1)
        # The garbage collector appends to this at any time and in any thread, even in one that holds the lock.
        self._gone: deque[tuple[Entry, int]] = deque()

    def __len__(self) -> int:
        """Return the number of known keys."""
        return len(self._entries)

    def join(
        self, key: Hashable | None, hear: Hear, home: Home, now: float, beside: Membership | None = None
    ) -> Membership:
        """Add a manager to the schedule of its key; without a key, it gets a separate schedule.

        Args:
            key: what is dialled, and how.
            hear: a method of the manager, which is called with each notification; the registry keeps only a weak
                reference to it.
            home: where the manager runs.
            now: the time, in seconds on the clock that all managers share.
            beside: without a key, the membership of another manager of the same pool, whose schedule this one joins.
        """
        with self.lock:
            entry = None if beside is None else beside.entry
            if key is not None:
                self._sweep(now)
                entry = self._entries.get(key)
                self._remembered.pop(key, None)
            if entry is None:
                entry = Entry(key)
                if key is not None:
                    self._entries[key] = entry
            if entry.members:
                self._drop_homeless(entry)
            number, gone = next(self._numbers), self._gone
            entry.members[number] = WeakMethod(hear, lambda _: gone.append((entry, number))), home
            entry.homes[home] = entry.homes.get(home, 0) + 1
            entry.schedule = entry.schedule.joined()
            diallers = [entry.schedule.turn] if entry.schedule.failing else []
        if diallers:  # a manager that dials alone gives no signs of life until there is another
            self._pass_on(entry, diallers, None)
        return Membership(self, entry, number)

    def tell(self, entry: Entry, teller: int, news: Any) -> None:
        """Notify all members of an entry except `teller`."""
        if len(entry.members) <= 1:
            return
        with self.lock:
            others = [number for number in entry.members if number != teller]
        self._pass_on(entry, others, news)

    def _pass_on(self, entry: Entry, numbers: Iterable[int | None], news: Any) -> None:
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

    def leave(self, entry: Entry, number: int, now: float, initial_backoff: float) -> None:
        """Remove a member. When the last one leaves, the key is forgotten, or remembered for a while.

        It is remembered for as long as it still delays the next start (SH-5).
        """
        with self.lock:
            self._drop(entry, number)
            if entry.key is None:
                return
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
                if len(self._remembered) > MOST_REMEMBERED:
                    self._entries.pop(self._remembered.popitem(last=False)[0], None)

    def _drop(self, entry: Entry, number: int | None) -> None:
        member = None if number is None else entry.members.pop(number, None)
        if number is None or member is None:
            return
        home = member[1]
        entry.homes[home] -= 1
        if not entry.homes[home]:
            del entry.homes[home]
        entry.schedule = entry.schedule.left(number)

    def _drop_homeless(self, entry: Entry) -> None:
        closed = [home for home in entry.homes if home.is_closed()]
        if closed:
            for number in [number for number, (_, home) in entry.members.items() if home in closed]:
                self._drop(entry, number)

    def _sweep(self, now: float) -> None:
        """Remove managers that are gone and keys that need no longer be remembered."""
        while self._gone:
            entry, number = self._gone.popleft()
            self._drop(entry, number)
            if not entry.members and self._entries.get(entry.key) is entry:
                self._remembered.setdefault(entry.key, entry.schedule.remembers_until(0.0))
        remembered = self._remembered
        if not remembered:
            return
        expired = [key for key, until in remembered.items() if until <= now]
        for key in [*expired, *itertools.islice(remembered, max(0, len(remembered) - MOST_REMEMBERED))]:
            if remembered.pop(key, None) is not None:
                self._entries.pop(key, None)


SCHEDULES = Registry()
"""The registry of this process."""

after_fork(SCHEDULES.begin_anew)
