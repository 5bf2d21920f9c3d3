"""The conductor's timers, and its turns: posted work, then timers, then what is polled."""

from __future__ import annotations

import math

import pytest

from grpc_backoff.sync import conductor as conductor_module
from grpc_backoff.sync.conductor import POLL_EVERY, Agenda, Timers


def due(timers, now):
    return [done() for done in iter(lambda: timers.take_due(now), None)]


def work(result):
    return lambda: result


@pytest.fixture
def woken():
    return []


@pytest.fixture
def timers(woken):
    return Timers(lambda: woken.append(1))


def test_in_the_order_of_their_times(timers):
    """TH-5: work becomes due at its time, earlier work first, and is forgotten once taken or cancelled."""
    timers.keep(3.0, work("c"))
    timers.keep(1.0, work("a"))
    timers.keep(1.0, work("b"))
    timers.keep(2.0, work("x")).cancel()
    assert timers.wait_until(10.0) == 1.0
    assert due(timers, 0.9) == []
    assert due(timers, 2.5) == ["a", "b"]
    assert timers.wait_until(10.0) == 3.0
    assert due(timers, 3.0) == ["c"]
    assert timers.wait_until(10.0) == 10.0


def test_only_an_earlier_timer_wakes_the_thread(timers, woken):
    """TH-5: a timer of another thread is kept by the next turn, and wakes the thread only if that would come late."""
    timers.wait_until(5.0)
    timers.pass_on(6.0, work("b"))
    assert not woken
    timers.pass_on(4.0, work("a"))
    assert woken
    timers.pass_on(5.5, work("x")).cancel()
    assert timers.wait_until(math.inf) == 4.0
    assert due(timers, 7.0) == ["a", "b"]


def test_many_that_are_passed_on_wake_the_thread(timers, woken):
    """CB-13: timers that other threads pass on do not pile up until the thread wakes."""
    timers.wait_until(5.0)
    for _ in range(100):
        timers.pass_on(6.0, work("a"))
    assert woken


@pytest.mark.parametrize("others", [0, 500])
def test_cancelled_timers_do_not_pile_up(timers, others):
    """CB-13: cancelled timers are removed even if others remain, and the remaining ones still become due."""
    for _ in range(others):
        timers.keep(1000.0, work("kept"))
    for _ in range(5000):
        timers.keep(1000.0, work("cancelled")).cancel()
    assert others <= len(timers._kept) < 200 + 2 * others
    assert due(timers, 1000.0) == ["kept"] * others


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Looked:
    looks = 0

    def look(self):
        self.looks += 1
        raise ValueError("a bug")


@pytest.fixture
def clock(monkeypatch):
    """A clock that a wait for posted work advances, as if none came."""
    made, take = Clock(), conductor_module.take

    def wait(queue, timeout):
        made.now += timeout
        return take(queue, 0)

    monkeypatch.setattr(conductor_module, "take", wait)
    return made


def test_a_turn(clock):
    """TH-5: a turn runs what is posted and what is due; what raises is logged, and the rest is done nevertheless."""
    agenda, done = Agenda(clock, int), []
    agenda.timers.keep(0.0, lambda: done.append("timer"))
    agenda.work.put(lambda: 1 / 0)
    agenda.work.put(lambda: done.append("posted"))
    agenda.turn(5.0)
    assert done == ["posted", "timer"]
    assert clock.now == 0.0


def test_posted_work_leaves_timers_their_turn(clock):
    """TH-5: work that posts more work does not keep timers waiting."""
    agenda, done = Agenda(clock, int), []

    def again():
        done.append("posted")
        agenda.work.put(again)

    agenda.work.put(again)
    agenda.timers.keep(0.0, lambda: done.append("timer"))
    agenda.turn(5.0)
    assert done == ["posted", "posted", "timer"]


def test_polling(clock):
    """TH-5: a turn ends when an object is to be polled, until that is stopped; otherwise when it is told to."""
    agenda, looked = Agenda(clock, int), Looked()
    agenda.poll(looked)
    agenda.turn(5.0)
    assert (clock.now, looked.looks) == (POLL_EVERY, 1)
    agenda.stop_polling(looked)
    agenda.stop_polling(looked)
    agenda.turn(5.0)
    assert (clock.now, looked.looks) == (5.0, 1)
