"""The demo's traffic: workers that place orders continuously, and a record of every call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc

__all__ = ["WORKERS", "CallRecord", "Traffic", "Worker"]

_PATIENCE = 15.0
"""A deadline in seconds that is longer than every outage of the script."""
_HASTE = 0.5
"""A deadline in seconds that is shorter than every outage of the script. It is used only during outages."""
_PAUSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """How a worker makes its calls.

    Attributes:
        name: the name of the worker, which is also a prefix of the names of its orders.
        wait_for_ready: whether its calls wait for a connection.
        hasty: whether its calls made during an outage have a deadline shorter than the outage.
    """

    name: str
    wait_for_ready: bool
    hasty: bool = False


WORKERS = (
    *(Worker(name=f"quick-{number}", wait_for_ready=False) for number in range(3)),
    *(Worker(name=f"wait-for-ready-{number}", wait_for_ready=True) for number in range(4)),
    Worker(name="hasty", wait_for_ready=True, hasty=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A finished call. Times are on the event loop's clock, in seconds.

    Attributes:
        worker: the worker that made the call.
        began: when the call began.
        ended: when the call ended.
        deadline: the call's timeout.
        code: the status code if the call failed; None if it was answered.
    """

    worker: Worker
    began: float
    ended: float
    deadline: float
    code: grpc.StatusCode | None

    def overlaps(self, start: float, end: float) -> bool:
        """Return whether the call was running at any time between `start` and `end`."""
        return self.began < end and self.ended > start


class Traffic:
    """Workers that make calls until `stop` is called.

    Attributes:
        made: how many calls have begun.
        records: the calls that have ended, in order.
        outage: whether the script is in a scene without a working server.
    """

    def __init__(self, call: Callable[..., Awaitable[str]]) -> None:
        """Create workers that make calls with `call(order, timeout=..., wait_for_ready=...)`."""
        self._call = call
        self._stopping = asyncio.Event()
        self.made = 0
        self.answered = 0
        self.records: list[CallRecord] = []
        self.outage = False

    async def run(self) -> None:
        """Make calls until `stop` is called, then wait for the calls in flight."""
        async with asyncio.TaskGroup() as group:
            for worker in WORKERS:
                group.create_task(self._work(worker))

    def stop(self) -> None:
        """Start no further calls."""
        self._stopping.set()

    async def until_answered(self, limit: float) -> float | None:
        """Return the seconds until the next answer to any call; None if there is none within `limit`."""
        loop = asyncio.get_running_loop()
        start, before = loop.time(), self.answered
        while self.answered == before:
            if loop.time() - start > limit:
                return None
            await asyncio.sleep(_PAUSE)
        return loop.time() - start

    async def _work(self, worker: Worker) -> None:
        number = 0
        while not self._stopping.is_set():
            await self._place(worker, f"{worker.name}/{number}")
            number += 1
            await asyncio.sleep(_PAUSE)

    async def _place(self, worker: Worker, order: str) -> None:
        now = asyncio.get_running_loop().time
        deadline = _HASTE if worker.hasty and self.outage else _PATIENCE
        began, code = now(), None
        self.made += 1
        try:
            receipt = await self._call(order, timeout=deadline, wait_for_ready=worker.wait_for_ready)
        except grpc.RpcError as error:
            code = error.code()
        else:
            if receipt != order:
                return  # it answers another call, so this call counts as lost
            self.answered += 1
        self.records.append(CallRecord(worker=worker, began=began, ended=now(), deadline=deadline, code=code))
