"""`LoopClock`, the clock of an event loop."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

import pytest

from grpc_backoff.aio import loops
from grpc_backoff.aio.loops import LoopClock, clock_of


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock is 1,000 seconds ahead."""

    def time(self):
        return super().time() + 1000


@pytest.mark.parametrize(("kind", "ahead"), [(asyncio.SelectorEventLoop, 0), (Ahead, 1000)])
def test_the_time_of_a_loop_is_its_own(kind, ahead):
    """CB-12: the clock shows its loop's time, which is monotonic unless the loop has a clock of its own."""
    loop = kind()
    try:
        assert 0 <= LoopClock(loop).now() - time.monotonic() - ahead + 1e-3 < 60
    finally:
        loop.close()


async def test_a_clock_that_differs_for_a_while(monkeypatch):
    """SH-1: a loop shares with others only while its clock is the machine's, which a library for tests may stop."""
    clock = clock_of(asyncio.get_running_loop())
    assert clock.keeps_time
    with monkeypatch.context() as stopped:
        stopped.setattr(loops, "monotonic", lambda: time.monotonic() + 1000)
        assert not clock.keeps_time
    assert clock.keeps_time


async def test_call_at_calls_back_once_and_can_be_taken_back():
    """CB-10: a timer calls back once, and not at all if it was cancelled. Waits 50 ms of real time."""
    clock, called = LoopClock(asyncio.get_running_loop()), []
    clock.call_at(clock.now() - 1, lambda: called.append("late"))
    clock.call_at(clock.now(), lambda: called.append("cancelled")).cancel()
    await asyncio.sleep(0.05)

    assert called == ["late"]


async def test_a_timer_keeps_nothing_of_its_callers_context():
    """CB-10: a timer runs in a separate context, so it does not keep its caller's context alive. Waits 50 ms."""
    carried, seen = ContextVar("carried", default=None), []
    carried.set("a request")
    clock = LoopClock(asyncio.get_running_loop())
    clock.call_at(clock.now(), lambda: seen.append(carried.get()))
    await asyncio.sleep(0.05)

    assert seen == [None]


class Early(asyncio.SelectorEventLoop):
    """An event loop whose timers come when 95 % of their time has passed, as Qt's coarse ones may."""

    def call_at(self, when, callback, *arguments, context=None):
        now = self.time()
        return super().call_at(now + 0.95 * (when - now), callback, *arguments, context=context)


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Early])
def test_no_timer_is_early(kind):
    """CB-12: no wait ends before its time, whatever the loop's own timers do. Waits 0.4 s of real time."""
    loop = kind()
    clock, fired = LoopClock(loop), asyncio.Event()
    when = clock.now() + 0.4
    try:
        clock.call_at(when, fired.set)
        loop.run_until_complete(fired.wait())
        assert clock.now() >= when - 0.0011
    finally:
        loop.close()


def test_a_rearmed_timer_can_be_cancelled():
    """CB-10: a timer that came too early and was armed again can still be cancelled. Waits 0.3 s of real time."""
    loop, called = Early(), []
    clock = LoopClock(loop)
    try:
        timer = clock.call_at(clock.now() + 0.2, lambda: called.append("cancelled"))
        loop.run_until_complete(asyncio.sleep(0.197))
        timer.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        assert called == []
    finally:
        loop.close()


async def test_work_that_is_posted_runs_at_home():
    """SH-3: any thread may post work, which runs on the loop, and in order."""
    home, order, done = LoopClock(asyncio.get_running_loop()), [], asyncio.Event()

    def post():
        order.append(home.is_here())
        home.post(lambda: order.append(home.is_here()))
        home.post(lambda: order.append("last"))
        home.post(done.set)

    await asyncio.to_thread(post)
    await asyncio.wait_for(done.wait(), 20)
    assert order == [False, True, "last"]


def test_a_home_that_is_closed():
    """SH-3: a closed loop says so, and takes no work."""
    loop = asyncio.new_event_loop()
    home = LoopClock(loop)
    assert not home.is_closed()
    loop.close()
    assert home.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        home.post(list)
