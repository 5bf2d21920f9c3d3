"""Calls in a tight loop through a proxy, on channels of either API, and how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

from tests.echo import EchoStub, Message


@dataclass(frozen=True, slots=True)
class Load:
    """How calls are made.

    Attributes:
        callers: how many tasks or threads make calls, each of them one after another.
        timeout: the deadline of each call, in seconds.
        seconds: how long they make calls.
        most: how many calls they make at most; None for any number.
        pause: how long each caller waits after a call, in seconds.
        ends_calls: whether the last calls end in time, with a shorter deadline.
    """

    callers: int
    timeout: float
    seconds: float
    most: int | None = None
    pause: float = 0.0
    ends_calls: bool = False


@dataclass(slots=True)
class Ended:
    """How the calls ended: how many were answered, the others by code and details, and how long all took."""

    answered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """The calls answered per second."""
        return self.answered / self.seconds


class _Calls:
    """The calls of one load: whether another is to be made, and how those ended that were."""

    def __init__(self, load: Load) -> None:
        self.ended = Ended()
        self._load = load
        self._left = load.most
        self._began = time.monotonic()
        self._over = self._began + load.seconds

    def another(self) -> bool:
        """Return whether to make one more call. Threads may make a call more than asked for."""
        if self._left is not None:
            self._left -= 1
        return time.monotonic() < self._over and (self._left is None or self._left >= 0)

    def timeout(self) -> float:
        """Return the deadline of the next call, in seconds."""
        left = self._over - time.monotonic()
        return min(self._load.timeout, max(0.0, left)) if self._load.ends_calls else self._load.timeout

    def failed(self, error: grpc.RpcError) -> None:
        """Count a call that failed."""
        self.ended.lost[f"{error.code().name}: {error.details()}"] += 1

    def done(self) -> Ended:
        """Return how all calls ended."""
        self.ended.seconds = time.monotonic() - self._began
        return self.ended


async def call_with_tasks(channel: grpc.aio.Channel, load: Load) -> Ended:
    """Make calls of the echo service from tasks, after one that waits for the connection."""
    stub = EchoStub(channel)
    with contextlib.suppress(grpc.RpcError):
        await stub.Unary(Message(text="a"), timeout=10, wait_for_ready=True)
    calls = _Calls(load)

    async def work() -> None:
        while calls.another():
            try:
                await stub.Unary(Message(text="a"), timeout=calls.timeout())
            except grpc.aio.AioRpcError as error:
                calls.failed(error)
            else:
                calls.ended.answered += 1
            if load.pause:
                await asyncio.sleep(load.pause)

    await asyncio.gather(*(work() for _ in range(load.callers)))
    return calls.done()


def call_with_threads(channel: grpc.Channel, load: Load) -> Ended:
    """Make calls of the echo service from threads, after one that waits for the connection."""
    stub = EchoStub(channel)
    with contextlib.suppress(grpc.RpcError):
        stub.Unary(Message(text="a"), timeout=10, wait_for_ready=True)
    calls, answered = _Calls(load), [0] * load.callers

    def work(number: int) -> None:
        while calls.another():
            try:
                stub.Unary(Message(text="a"), timeout=calls.timeout())
            except grpc.RpcError as error:
                calls.failed(error)
            else:
                answered[number] += 1
            if load.pause:
                time.sleep(load.pause)

    with ThreadPoolExecutor(load.callers) as pool:
        list(pool.map(work, range(load.callers)))
    calls.ended.answered = sum(answered)
    return calls.done()
