"""`LoopClock`, the clock of an event loop."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

import pytest

from grpc_backoff.aio.clock import LoopClock


async def test_the_clock_is_the_loops_and_monotonic(monkeypatch):
    """CB-12: the clock is monotonic; a jump of the wall clock does not affect it."""
    clock = LoopClock(asyncio.get_running_loop())
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert 0 <= clock.now() - before < 60


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock is 1,000 seconds ahead."""

    def time(self):
        return super().time() + 1000


@pytest.mark.parametrize(("kind", "ahead"), [(asyncio.SelectorEventLoop, 0), (Ahead, 1000)])
def test_the_time_of_a_loop_is_its_own(kind, ahead):
    """CB-12: the clock shows its loop's time, on asyncio's own loops and on a loop with a clock of its own."""
    loop = kind()
    try:
        assert 0 <= LoopClock(loop).now() - time.monotonic() - ahead + 1e-3 < 60
    finally:
        loop.close()


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
