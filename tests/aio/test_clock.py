"""The event loop's own time."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

from grpc_backoff.aio.clock import LoopClock


async def test_the_clock_is_the_loops_and_monotonic(monkeypatch):
    """CB-12: a jump of the wall clock changes nothing."""
    clock = LoopClock(asyncio.get_running_loop())
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert 0 <= clock.now() - before < 60


async def test_call_at_calls_back_once_and_can_be_taken_back():
    """CB-10: a timer that was cancelled does not fire. Waits 50 ms of real time."""
    clock, called = LoopClock(asyncio.get_running_loop()), []
    clock.call_at(clock.now() - 1, lambda: called.append("late"))
    clock.call_at(clock.now(), lambda: called.append("cancelled")).cancel()
    await asyncio.sleep(0.05)

    assert called == ["late"]


async def test_a_timer_keeps_nothing_of_its_callers_context():
    """CB-10: a timer runs in a context of its own. Waits a moment of real time."""
    carried, seen = ContextVar("carried", default=None), []
    carried.set("a request")
    clock = LoopClock(asyncio.get_running_loop())
    clock.call_at(clock.now(), lambda: seen.append(carried.get()))
    await asyncio.sleep(0.05)

    assert seen == [None]
