"""SH-8: the table of schedules: its members, how long it remembers keys, and its thread safety."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from grpc_backoff.decide.connections.shared_schedule import Health
from grpc_backoff.engine.registry import MOST_REMEMBERED, SCHEDULES, Registry

INITIAL = 1.0


class Loop:
    def __init__(self):
        self.closed = False

    def is_closed(self):
        return self.closed


class Manager:
    def __init__(self, registry, key="key", home=None, now=0.0):
        self.home = home or Loop()
        self.heard = []
        self.place = registry.join(key, self.hear, self.home, now)

    def hear(self, news):
        if self.home.closed:
            raise RuntimeError("Event loop is closed")
        self.heard.append(news)

    def leave(self, now=0.0):
        self.place.leave(now, INITIAL)

    def fail(self, at):
        """Record a failed attempt with this start time."""
        with self.place.lock:
            begun = self.place.group.schedule.begun(self.place.number, 1, at, at + INITIAL, at + 20)
            self.place.group.schedule = begun.failed(self.place.number, None, 1, at, at + INITIAL, INITIAL)


def test_one_schedule_for_a_key():
    """SH-3: managers with the same key share a schedule; managers with another key or without a key do not."""
    registry = Registry()
    first, second, other = Manager(registry), Manager(registry), Manager(registry, "other")
    alone = [Manager(registry, None), Manager(registry, None)]
    first.fail(10.0)
    assert second.place.group.schedule.failing
    assert second.place.group.schedule.members == 2
    assert not any(manager.place.group.schedule.failing for manager in (other, *alone))
    assert len(registry) == 2


def test_news_goes_to_all_others():
    """SH-3: a notification reaches every other manager of the same key, but no manager of other keys."""
    registry = Registry()
    managers, other = [Manager(registry) for _ in range(3)], Manager(registry, "other")
    managers[0].place.tell_others("news")
    assert [manager.heard for manager in (*managers, other)] == [[], ["news"], ["news"], []]


def test_a_closed_loop_is_no_member():
    """SH-3: a manager whose loop is closed is removed at the next notification, or when another manager joins."""
    registry = Registry()
    first, second = Manager(registry), Manager(registry)
    second.home.closed = True
    first.place.tell_others(None)
    assert first.place.group.schedule.members == 1
    first.home.closed = True
    assert Manager(registry).place.group.schedule.members == 1


def test_a_lost_manager_is_no_member():
    """SH-8: the table holds no strong reference to a manager and removes managers that were garbage-collected."""
    registry = Registry()
    kept, dropped = Manager(registry), Manager(registry)
    del dropped
    gc.collect()
    Manager(registry, "other")
    assert kept.place.group.schedule.members == 1


def test_a_healthy_key_is_forgotten_at_once():
    """SH-5: a key without failures is forgotten when its last manager leaves."""
    registry = Registry()
    manager = Manager(registry)
    manager.leave()
    manager.leave()
    assert len(registry) == 0


def test_a_failure_is_remembered_for_initial_backoff():
    """SH-5, SH-8: a key without managers is remembered until INITIAL_BACKOFF after the start of its failed attempt."""
    registry = Registry()
    manager = Manager(registry)
    manager.fail(10.0)
    manager.leave(10.1)
    again = Manager(registry, now=10.5)
    assert again.place.group.schedule.deadline == 11.0
    assert again.place.group.schedule.health is Health.UNKNOWN
    again.leave(10.6)
    assert len(registry) == 1
    Manager(registry, "other", now=11.0).leave(11.0)
    assert len(registry) == 0


def test_the_table_is_bounded():
    """SH-8: the table remembers at most `MOST_REMEMBERED` keys without managers, however many fail."""
    registry = Registry()
    for number in range(3 * MOST_REMEMBERED):
        manager = Manager(registry, number)
        manager.fail(0.0)
        manager.leave(0.0)
    assert len(registry) == MOST_REMEMBERED
    Manager(registry, "other", now=2.0).leave(2.0)
    assert len(registry) == 0


def test_many_threads():
    """SH-3, SH-8: managers that join, fail, notify and leave in eight threads at once leave an empty table."""
    registry, errors = Registry(), []

    def work(number):
        try:
            for turn in range(300):
                manager = Manager(registry, turn % 3, now=float(turn))
                manager.fail(float(turn))
                manager.place.tell_others(number)
                assert manager.place.group.schedule.members >= 1
                manager.leave(float(turn))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    Manager(registry, "last", now=1000.0).leave(1000.0)
    assert len(registry) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_begins_anew():
    """SH-8: the child of a fork starts with an empty table and an unlocked lock."""
    kept = Manager(SCHEDULES, "of the parent")
    with SCHEDULES.lock:  # as another thread might
        child = os.fork()
        if child == 0:
            free = SCHEDULES.lock.acquire(blocking=False)
            os._exit(0 if free and len(SCHEDULES) == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kept.leave()


def test_numbers_go_on_after_a_fork():
    """SH-7: no manager has the number of one from before a fork, because the number is in the ids of attempts."""
    registry = Registry()
    before = Manager(registry).place.number
    registry.begin_anew()
    assert Manager(registry).place.number > before


def test_a_manager_that_leaves_after_it_was_dropped():
    """SH-8: a manager that was removed because its loop was closed may still leave, even if its key is forgotten."""
    registry, home = Registry(), Loop()
    first, ghost = Manager(registry, "first", home), Manager(registry, "second")
    second = Manager(registry, "second", home)
    ghost.home.closed = True
    second.place.tell_others(None)  # notices the closed loop
    first.fail(0.9)
    second.fail(0.1)
    first.leave(1.0)
    second.leave(1.05)
    ghost.leave(1.3)
    Manager(registry, "third", home, now=2.5)
    assert len(registry) == 1


def test_a_key_is_forgotten_in_its_own_time():
    """SH-8: a key that is remembered for a long time does not delay the removal of other keys."""
    registry = Registry()
    long, short = Manager(registry, "long"), Manager(registry, "short")
    long.fail(1000.0)
    short.fail(0.0)
    long.leave(0.5)
    short.leave(0.5)
    assert len(registry) == 2
    Manager(registry, "other", now=1.5)
    assert len(registry) == 2


def test_a_step_in_the_midst_of_another():
    """SH-6: a signal handler that runs during a step of its own thread detects that step and does not deadlock."""
    registry = Registry()
    first, second = Manager(registry), Manager(registry)
    with first.place.lock:
        first.place.group.stepping = True
        with second.place.lock:
            assert second.place.group.stepping
        with Manager(registry, "other").place.lock:
            pass
