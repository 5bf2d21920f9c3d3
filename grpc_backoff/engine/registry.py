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
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from grpc_backoff.base.process import after_fork
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.decide.connections.shared_schedule import Schedule

if TYPE_CHECKING:
    from grpc_backoff.engine.home import Home

MOST_REMEMBERED = 1024
"""How many keys without managers are remembered (SH-8). The one that lost its last manager first is forgotten first."""

Hear = Callable[[Any], None]
"""Handles a notice, in any thread; raises RuntimeError if the receiver's event loop is closed."""
_NO_LOCK = nullcontext()


class _Member(NamedTuple):
    """How to notify a manager, and where it runs."""

    hear: WeakMethod[Hear]
    home: Home


class ScheduleGroup:
    """The schedule of one key, and its managers.

    Attributes:
        key: the key; None for a schedule that one manager has for itself.
        schedule: the current schedule.
        stepping: whether a step of the key is in progress; read and set it under the lock. If a thread that holds the
            lock finds it set, the step runs in the same thread, where a signal handler or a finalizer interrupted it.
        members: the managers, by their numbers.
        homes: how many of the managers run in each place.
    """

    __slots__ = ("homes", "key", "members", "schedule", "stepping")

    def __init__(self, key: Hashable | None) -> None:
        self.key = key
        self.schedule = Schedule()
        self.stepping = False
        self.members: dict[int, _Member] = {}
        self.homes: dict[Home, int] = {}


class Membership:
    """One manager's membership in the schedule of its key.

    Attributes:
        group: the schedule.
        number: identifies the manager; no other of the process has it.
        lock: the lock to hold while a step of the manager's machine reads the schedule and replaces it.
    """

    __slots__ = ("_registry", "group", "lock", "number")

    def __init__(self, registry: Registry, group: ScheduleGroup, number: int) -> None:
        self._registry = registry
        self.group = group
        self.number = number
        self.lock: AbstractContextManager[object] = _NO_LOCK if group.key is None else registry.lock

    def tell_others(self, notice: object) -> None:
        """Notify every other manager of the key that the schedule has changed."""
        self._registry.tell(self.group, self.number, notice)

    def leave(self, now: float, initial_backoff: float) -> None:
        """Leave the schedule; calling this again does nothing."""
        self._registry.leave(self.group, self.number, now, initial_backoff)


class Registry:
    """The schedules of all keys."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)  # not anew after a fork, because the ids of attempts contain the numbers
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork (SH-8), because all the data belongs to the parent's threads."""
        self.lock = threading.RLock()
        self._groups: dict[Hashable, ScheduleGroup] = {}
        self._remembered: OrderedDict[Hashable, float] = OrderedDict()
        # The garbage collector appends to this at any time and in any thread, even in one that holds the lock.
        self._gone: deque[tuple[ScheduleGroup, int]] = deque()

    def __len__(self) -> int:
        """Return the number of known keys."""
        return len(self._groups)

    def join(
        self, key: Hashable | None, hear: Hear, home: Home, now: float, beside: Membership | None = None
    ) -> Membership:
        """Add a manager to the schedule of its key; without a key, it gets a separate schedule.

        Args:
            key: what is dialled, and how.
            hear: a method of the manager, which is called with each notice; the registry keeps only a weak
                reference to it.
            home: where the manager runs.
            now: the time, in seconds on the clock that all managers share.
            beside: without a key, the membership of another manager of the same pool, whose schedule this one joins.
        """
        with self.lock:
            group = None if beside is None else beside.group
            if key is not None:
                self._sweep(now)
                group = self._groups.get(key)
                if self._remembered:
                    self._remembered.pop(key, None)
            if group is None:
                group = ScheduleGroup(key)
                if key is not None:
                    self._groups[key] = group
            else:
                if group.members:
                    self._drop_homeless(group)
                group.schedule = group.schedule.joined()
            number, gone = next(self._numbers), self._gone
            group.members[number] = _Member(WeakMethod(hear, lambda _: gone.append((group, number))), home)
            group.homes[home] = group.homes.get(home, 0) + 1
            dialler = group.schedule.turn if len(group.members) > 1 and group.schedule.failing else None
        if dialler is not None:  # a manager that dials alone gives no signs of life until there is another
            self._pass_on(group, [dialler], None)
        return Membership(self, group, number)

    def tell(self, group: ScheduleGroup, teller: int, notice: object) -> None:
        """Notify all members of a group except `teller`."""
        if len(group.members) <= 1:
            return
        with self.lock:
            others = [number for number in group.members if number != teller]
        self._pass_on(group, others, notice)

    def _pass_on(self, group: ScheduleGroup, numbers: Iterable[int], notice: object) -> None:
        lost = []
        for number in numbers:
            member = group.members.get(number)
            hear = None if member is None else member.hear()
            try:
                if hear is not None:
                    hear(notice)
            except RuntimeError:  # its event loop is closed
                lost.append(number)
        if lost:
            with self.lock:
                for number in lost:
                    self._drop(group, number)

    def leave(self, group: ScheduleGroup, number: int, now: float, initial_backoff: float) -> None:
        """Remove a member. When the last one leaves, the key is forgotten, or remembered for a while.

        It is remembered for as long as it still delays the next start (SH-5).
        """
        with self.lock:
            self._drop(group, number)
            if group.key is None:
                return
            self._sweep(now)
            key = group.key
            if group.members or self._groups.get(key) is not group:
                return
            until = group.schedule.remembers_until(initial_backoff)
            if until <= now:
                del self._groups[key]
                self._remembered.pop(key, None)
            else:
                self._remembered[key] = until
                self._remembered.move_to_end(key)
                if len(self._remembered) > MOST_REMEMBERED:
                    self._groups.pop(self._remembered.popitem(last=False)[0], None)

    def _drop(self, group: ScheduleGroup, number: int) -> None:
        member = group.members.pop(number, None)
        if member is None:
            return
        group.homes[member.home] -= 1
        if not group.homes[member.home]:
            del group.homes[member.home]
        group.schedule = group.schedule.left(number)

    def _drop_homeless(self, group: ScheduleGroup) -> None:
        closed = [home for home in group.homes if home.is_closed()]
        if closed:
            for number in [number for number, member in group.members.items() if member.home in closed]:
                self._drop(group, number)

    def _sweep(self, now: float) -> None:
        """Remove managers that are gone and keys that need no longer be remembered."""
        while self._gone:
            group, number = self._gone.popleft()
            self._drop(group, number)
            if not group.members and self._groups.get(group.key) is group:
                self._remembered.setdefault(group.key, group.schedule.remembers_until(0.0))
        remembered = self._remembered
        if not remembered:
            return
        expired = [key for key, until in remembered.items() if until <= now]
        for key in [*expired, *itertools.islice(remembered, max(0, len(remembered) - MOST_REMEMBERED))]:
            if remembered.pop(key, None) is not None:
                self._groups.pop(key, None)


SCHEDULES = Registry()
"""The registry of this process."""

after_fork(SCHEDULES.begin_anew)
