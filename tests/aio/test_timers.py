"""The timers of calls, all of which share one timer of the clock."""

from __future__ import annotations

import math

import pytest

from grpc_backoff.aio.timers import CallTimers


class Handle:
    def __init__(self, clock):
        self.clock = clock

    def cancel(self):
        self.clock.armed = None


class Clock:
    """A clock that the test advances, with at most one timer.

    Attributes:
        time: the current time.
        armed: the time at which the timer is due, and its callback; None while it is not armed.
        arms: how many times the timer was armed.
    """

    def __init__(self):
        self.time, self.armed, self.arms = 0.0, None, 0

    def now(self):
        return self.time

    def call_at(self, when, callback):
        assert self.armed is None, "a second timer"
        self.armed, self.arms = (when, callback), self.arms + 1
        return Handle(self)

    def run_until(self, end):
        """Advance to `end`, and fire the timer whenever it is due."""
        while self.armed is not None and self.armed[0] <= end:
            (when, callback), self.armed = self.armed, None
            self.time = max(self.time, when)
            callback()
        self.time = end


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timers(clock):
    return CallTimers(clock)


def test_in_order(clock, timers):
    """CB-12: each timer calls back once, at its time; timers for the same time call back in the order of arming."""
    called = []
    for number, when in enumerate((3.0, 1.0, 2.0, 1.0)):
        timers.call_at(when, lambda number=number: called.append((clock.time, number)))
    clock.run_until(10.0)

    assert called == [(1.0, 1), (1.0, 3), (2.0, 2), (3.0, 0)]
    assert clock.armed is None


def test_a_thousand_deadlines_need_one_timer(clock, timers):
    """CH-3: calls with the same timeout arm the clock's timer once, however many they are."""
    made = [timers.call_at(60.0 + number / 1000, int) for number in range(1000)]
    assert clock.arms == 1
    for timer in made:
        timer.cancel()

    assert (clock.arms, clock.armed) == (1, None)


def test_an_earlier_one_comes_first(clock, timers):
    """CB-12: a timer that is due before all others re-arms the clock's timer for its own time."""
    called = []
    timers.call_at(5.0, lambda: called.append(clock.time))
    timers.call_at(math.inf, lambda: called.append(math.inf))
    timers.call_at(2.0, lambda: called.append(clock.time))
    clock.run_until(100.0)

    assert called == [2.0, 5.0]


def test_cancelled(clock, timers):
    """CB-10: a cancelled timer neither calls back nor keeps its callback alive; cancelling it again does nothing."""
    called = []
    kept = timers.call_at(1.0, lambda: called.append("kept"))
    cancelled = timers.call_at(1.0, lambda: called.append("cancelled"))
    for _ in range(2):
        cancelled.cancel()
    assert cancelled.callback is None
    clock.run_until(2.0)
    kept.cancel()

    assert called == ["kept"]
    assert clock.armed is None
    timers.call_at(3.0, lambda: called.append("later"))
    clock.run_until(4.0)
    assert called == ["kept", "later"]


def test_cancelled_ones_do_not_accumulate(clock, timers):
    """CB-13: cancelled timers are removed even while other timers remain armed."""
    timers.call_at(1000.0, int)
    for _ in range(1000):
        timers.call_at(1000.0, int).cancel()

    assert len(timers._queue) < 200


def test_a_callback_arms_and_cancels_others(clock, timers):
    """CB-12: a callback may arm further timers, and cancel others that are due at the same time."""
    called = []
    victim = None

    def first():
        called.append("first")
        victim.cancel()
        timers.call_at(2.0, lambda: called.append("second"))

    timers.call_at(1.0, first)
    victim = timers.call_at(1.0, lambda: called.append("victim"))
    clock.run_until(3.0)

    assert called == ["first", "second"]


def test_a_callback_that_raises(clock, timers):
    """CB-12: an exception from one callback does not keep the others from running."""
    called = []
    timers.call_at(1.0, lambda: 1 / 0)
    timers.call_at(1.0, lambda: called.append("next"))
    with pytest.raises(ZeroDivisionError):
        clock.run_until(1.0)
    clock.run_until(1.0)

    assert called == ["next"]


def test_fired_early(clock, timers):
    """CB-12: if the clock calls back slightly early, the timer still waits for its time."""
    called = []
    timers.call_at(1.0, lambda: called.append(clock.time))
    (_, callback), clock.armed = clock.armed, None
    clock.time = 0.999
    callback()
    assert called == []
    clock.run_until(1.0)

    assert called == [1.0]
