"""The judge's own lateness: seen when the loop was blocked, and where."""

from __future__ import annotations

import asyncio
import time

from interop.matrix.lag import LagWatch


async def test_a_blocked_loop_is_late():
    """IO-4: a loop that was blocked for 100 ms is known to have been late by about as much, at that moment."""
    async with LagWatch() as watch:
        await asyncio.sleep(0.02)
        epoch = time.monotonic()
        time.sleep(0.1)  # noqa: ASYNC251 - the fault itself
        await asyncio.sleep(0.02)
        lags = watch.since(epoch, epoch)
    worst = max(lags, key=lambda lag: lag.by)
    assert 0.09 < worst.by < 2.0
    assert worst.at > 0.09
    assert watch.since(time.monotonic(), epoch) == ()
