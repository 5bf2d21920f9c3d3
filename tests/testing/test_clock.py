"""The fake clock runs callbacks in order, and its time changes only on request."""

from __future__ import annotations

import asyncio

from grpc_backoff.testing import FakeClock


async def test_callbacks_come_in_order_at_their_own_moment():
    """CB-12: `advance` runs each callback at its own time, and simultaneous ones in the order they were added."""
    clock, seen = FakeClock(0.0), []
    clock.call_at(2, lambda: seen.append(("b", clock.now())))
    clock.call_at(1, lambda: seen.append(("a", clock.now())))
    clock.call_at(2, lambda: seen.append(("c", clock.now())))
    clock.call_at(3, lambda: seen.append(("never", 0))).cancel()
    assert clock.armed() == [1, 2, 2]
    await clock.advance(5)

    assert seen == [("a", 1), ("b", 2), ("c", 2)]
    assert clock.now() == 5


async def test_a_jump_is_late_for_everything():
    """CB-12: `jump` moves to the new time first and then runs every callback that was due."""
    clock, seen = FakeClock(0.0), []
    clock.call_at(1, lambda: seen.append(clock.now()))
    await clock.jump(10)

    assert seen == [10]


async def test_sleepers_wake_in_order():
    """CB-12: tasks that sleep on the clock wake in order as it advances."""
    clock, seen = FakeClock(0.0), []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        seen.append((seconds, clock.now()))

    tasks = [asyncio.ensure_future(sleeper(seconds)) for seconds in (3, 1, 2)]
    await clock.advance(2.5)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert seen == [(1, 1), (2, 2)]
    assert clock.armed() == []
