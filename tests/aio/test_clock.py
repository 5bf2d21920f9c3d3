"""`LoopClock`, the clock of an event loop."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

import pytest

from grpc_backoff.aio.clock import LoopClock


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
