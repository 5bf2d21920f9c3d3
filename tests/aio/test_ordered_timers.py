"""HG-1: many timers that share one of the clock's; the clock is under the test's control."""

from __future__ import annotations

from functools import partial

import pytest

from grpc_backoff.aio.ordered_timers import OrderedTimers
from grpc_backoff.testing.clock import FakeClock


class Timers(OrderedTimers):
    """Timers at a clock that begins at 0, with the names of those that have called back, and the times."""

    __slots__ = ("called", "clock")

    def __init__(self, clock=None):
        self.clock, self.called = clock or FakeClock(0.0), []
        super().__init__(self.clock)

    def arm(self, name, when):
        """Arm a timer that notes its name."""
        return self.call_at(when, partial(self.note, name))

    def note(self, name):
        """Note that a timer has called back."""
        self.called.append((name, self.clock.now()))


async def test_each_is_called_at_its_time():
    """Timers call back once, in order and each at its time, for which the clock has one timer at a time."""
    timers = Timers()
    for name, when in (("a", 1.0), ("b", 1.0), ("c", 2.5)):
        timers.arm(name, when)
        assert timers.clock.armed() == [1.0]
    await timers.clock.advance(2.0)
    assert timers.called == [("a", 1.0), ("b", 1.0)]
    assert timers.clock.armed() == [2.5]
    await timers.clock.advance(2.0)
    assert timers.called[2:] == [("c", 2.5)]
    assert timers.clock.armed() == []
    timers.arm("d", 5.0)
    await timers.clock.advance(2.0)
    assert timers.called[3:] == [("d", 5.0)]


async def test_a_cancelled_timer_does_not_call():
    """A cancelled timer, first or not, does not call back; the clock's timer moves on to the next that is left."""
    timers = Timers()
    first, _, third = (timers.arm(name, when) for name, when in (("a", 1.0), ("b", 2.0), ("c", 3.0)))
    first.cancel()
    third.cancel()
    await timers.clock.advance(1.5)
    assert timers.clock.armed() == [2.0]
    await timers.clock.advance(5.0)
    assert timers.called == [("b", 2.0)]
    first.cancel()  # harmless
    assert timers.clock.armed() == []


async def test_timers_that_are_armed_and_cancelled_by_callbacks():
    """A callback may arm a timer and cancel others, also those that are due at the same time."""
    timers = Timers()
    timers.call_at(1.0, lambda: (second.cancel(), timers.arm("late", 1.5)))
    second = timers.arm("second", 1.0)
    timers.arm("third", 1.0)
    await timers.clock.advance(5.0)
    assert timers.called == [("third", 1.0), ("late", 1.5)]


async def test_a_callback_that_raises():
    """If a callback raises, the other timers still call back."""
    timers = Timers()
    timers.call_at(1.0, partial(int, "x"))
    timers.arm("next", 1.0)
    with pytest.raises(ValueError, match="invalid literal"):
        await timers.clock.advance(1.0)
    await timers.clock.advance(1.0)
    assert timers.called == [("next", 1.0)]


async def test_a_late_clock():
    """If the clock is late, every timer that is due calls back at once."""
    timers = Timers()
    for name, when in (("a", 1.0), ("b", 2.0), ("c", 9.0)):
        timers.arm(name, when)
    await timers.clock.jump(5.0)
    assert timers.called == [("a", 5.0), ("b", 5.0)]
    assert timers.clock.armed() == [9.0]


class PromptClock(FakeClock):
    """A clock that calls back at once if the time has passed."""

    def call_at(self, when, callback):
        """Call back now, or as any clock does."""
        timer = super().call_at(when, callback)
        if when <= self.now():
            timer.cancel()
            callback()
        return timer


async def test_a_clock_that_calls_back_at_once():
    """CB-12: a clock may call back while the timer is being armed; the next timer is armed then."""
    timers = Timers(PromptClock(0.0))
    timers.arm("a", 0.0)
    assert timers.called == [("a", 0.0)]
    timers.arm("b", 1.0)
    await timers.clock.advance(1.0)
    assert timers.called[1:] == [("b", 1.0)]


async def test_a_clock_that_raises(monkeypatch):
    """If the clock raises, the timer that was to be armed does not call back, and the next one does."""
    timers = Timers()
    with monkeypatch.context() as broken:
        broken.setattr(FakeClock, "call_at", lambda _clock, _when, _callback: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            timers.arm("a", 1.0)
    timers.arm("b", 2.0)
    await timers.clock.advance(2.0)
    assert timers.called == [("b", 2.0)]


async def test_closing():
    """CB-10: closing cancels all timers, and the clock's."""
    timers = Timers()
    timers.close()
    timers.arm("a", 1.0)
    timers.close()
    assert timers.clock.armed() == []
    await timers.clock.advance(2.0)
    assert timers.called == []
