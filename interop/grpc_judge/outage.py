"""Outages for tests of code that uses grpc_backoff's asyncio channels: an hour takes half a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from grpc_backoff.aio import Channel
from grpc_backoff.testing import Fails, FakeClock, ScriptedConnector, Succeeds, scripted_channel

Result = TypeVar("Result")

_STEPS, _PAUSE = 50, 0.01
"""In how many steps the clock moves through an outage, and the real time for running calls to end after each one."""


class Outage:
    """Channels that share a clock, and lose their servers together.

    ::

        async with outage.channel(target) as channel:
            work = asyncio.create_task(code_under_test(channel))
            await outage(60)
            await outage.until_done(work)

    Attributes:
        clock: the clock of the channels' attempts, retries and waiting calls; it moves only when told to.
    """

    def __init__(self) -> None:
        """Start with servers that work."""
        self.clock = FakeClock()
        self._connectors: list[ScriptedConnector] = []

    def channel(self, target: str, **settings: Any) -> Channel:
        """Return a channel to a server of the test; the settings are those of `testing.scripted_channel`."""
        self._connectors.append(ScriptedConnector(self.clock, [Succeeds()]))
        return scripted_channel(self._connectors[-1], target, **settings)

    @property
    def attempts(self) -> list[float]:
        """When the channels began their attempts to connect, in order and in seconds on the clock."""
        return sorted(attempt.at for connector in self._connectors for attempt in connector.attempts)

    async def __call__(self, seconds: float) -> None:
        """Break all connections and let all attempts fail for `seconds` on the clock; later ones succeed."""
        await self.clock.advance(0)  # a call that has just begun gets its connection
        for connector in self._connectors:
            for connection in connector.connections:
                connection.end()
            connector.play([Fails()])
        for _ in range(_STEPS):
            await self._move(seconds / _STEPS)
        for connector in self._connectors:
            connector.play([Succeeds()])

    async def until_done(self, work: Awaitable[Result]) -> Result:
        """Move the clock, a second at a time, until this work is done. Return its result."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self._move(1.0)
        return await task

    async def _move(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await asyncio.sleep(_PAUSE)
