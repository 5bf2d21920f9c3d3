"""Detects delays of the judge's event loop, so that clients are not blamed for times that servers recorded late."""

from __future__ import annotations

import asyncio
import gc
from types import TracebackType
from typing import Self

from grpc_judge.timeline import Lag

_EVERY = 0.005
"""The interval between checks, in seconds. Shorter lags are not noticed."""
_NOTED = 0.004
"""The shortest lag that is recorded, in seconds."""


class LagWatch:
    """Watches the running event loop for lags while its context is open.

    Meanwhile, garbage collections leave out the objects that existed before, because examining all of them would make
    the judge late.
    """

    def __init__(self) -> None:
        """Start without any recorded lags."""
        self._lags: list[Lag] = []

    async def __aenter__(self) -> Self:
        """Start watching."""
        gc.collect()
        gc.freeze()
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Stop watching."""
        self._task.cancel()
        gc.unfreeze()

    def since(self, begin: float, epoch: float) -> tuple[Lag, ...]:
        """Return the lags since `begin`, with times relative to `epoch`; both are on the event loop's clock."""
        return tuple(Lag(at=lag.at - epoch, by=lag.by) for lag in self._lags if lag.at >= begin)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY
            await asyncio.sleep(_EVERY)
            late = loop.time() - due
            if late > _NOTED:
                self._lags.append(Lag(at=due + late, by=late))
