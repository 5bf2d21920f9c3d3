"""The judge's own lateness: how long its loop was blocked, and when."""

from __future__ import annotations

import asyncio
import gc
import time

from grpc_judge.matrix.lag import LagWatch


async def test_a_blocked_loop_is_late():
    """IO-4: blocking the loop for 100 ms is recorded as a lag of about that length, at that time."""
    async with LagWatch() as watch:
        await asyncio.sleep(0.02)
        epoch = time.monotonic()
        time.sleep(0.1)  # noqa: ASYNC251 - blocks the loop on purpose
        await asyncio.sleep(0.02)
        lags = watch.since(epoch, epoch)
    worst = max(lags, key=lambda lag: lag.by)
    assert 0.09 < worst.by < 2.0
    assert worst.at > 0.09
    assert watch.since(time.monotonic(), epoch) == ()


async def test_collections_are_short():
    """IO-4: while the loop is watched, the garbage collector does not examine the objects that existed before."""
    async with LagWatch():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
