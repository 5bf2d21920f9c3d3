"""Many restarts under many workers: nothing is lost, nothing runs twice, nothing is left."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
from collections import Counter

import grpc
import psutil
import pytest

from grpc_backoff import aio
from grpc_backoff.testing.front import FlakyFront, healthy
from tests.echo import Echo, EchoStub, Message, serving

FAST = [
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 40),
    ("grpc.min_reconnect_backoff_ms", 2000),
]
WORKERS = 50


class Workers:
    """Fifty callers, some of which wait for READY; every call carries a number of its own."""

    def __init__(self, channel):
        self.stub = EchoStub(channel)
        self.outcomes = Counter()
        self.made = 0
        self.stopping = False

    async def work(self, *, wait_for_ready):
        while not self.stopping:
            self.made += 1
            text = uuid.uuid4().hex
            try:
                answer = await self.stub.Unary(Message(text=text), wait_for_ready=wait_for_ready, timeout=30)
                assert answer.text == text
                self.outcomes[grpc.StatusCode.OK] += 1
            except grpc.aio.AioRpcError as error:
                self.outcomes[error.code()] += 1
                await asyncio.sleep(0.002)

    async def answered(self, more):
        goal = self.outcomes[grpc.StatusCode.OK] + more
        async with asyncio.timeout(30):
            while self.outcomes[grpc.StatusCode.OK] < goal:
                await asyncio.sleep(0.002)


def resources():
    gc.collect()
    process = psutil.Process()
    return {"threads": threading.active_count(), "descriptors": process.num_fds(), "tasks": len(asyncio.all_tasks())}


async def back_to(before):
    """Wait until no more is in use than before; the front and the core take a moment to let go of what was closed."""
    slack = {"threads": 2, "descriptors": 8, "tasks": 2}
    async with asyncio.timeout(20):
        while any(resources()[name] > before[name] + slack[name] for name in before):
            await asyncio.sleep(0.1)


async def cycle(front, workers, times):
    for _ in range(times):
        await workers.answered(20)
        await front.refuse()
        await front.break_all()
        await asyncio.sleep(0.01)
        await front.listen()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_hundred_restarts_under_fifty_workers():
    """CH-2, CH-7: no hung call, no call executed twice, and as many tasks, threads and descriptors as before.

    Takes up to half a minute of real time: it goes as fast as the calls are answered.
    """
    echo = Echo()
    async with (
        serving(echo) as port,
        FlakyFront(healthy, upstream=("127.0.0.1", port)) as front,
        aio.insecure_channel(front.target, options=FAST) as channel,
    ):
        workers = Workers(channel)
        warm_up = [asyncio.ensure_future(workers.work(wait_for_ready=n % 2 == 0)) for n in range(WORKERS)]
        await cycle(front, workers, 20)
        workers.stopping = True
        await asyncio.wait_for(asyncio.gather(*warm_up), 40)
        workers.stopping = False
        await asyncio.sleep(0.5)
        before, memory = resources(), psutil.Process().memory_info().rss

        running = [asyncio.ensure_future(workers.work(wait_for_ready=n % 2 == 0)) for n in range(WORKERS)]
        await cycle(front, workers, 200)
        await workers.answered(100)
        workers.stopping = True
        await asyncio.wait_for(asyncio.gather(*running), 40)
        grown = psutil.Process().memory_info().rss - memory
        await back_to(before)
        assert channel.connection_status().connections >= 200
    assert sum(workers.outcomes.values()) == workers.made
    assert set(workers.outcomes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    assert max(echo.executed.values()) == 1
    assert grown < 16 * 2**20


async def test_closed_channels_leave_nothing():
    """CB-10: a thousand channels that called, failed and were closed leave no task, thread or descriptor."""
    async with serving() as port, FlakyFront(healthy, upstream=("127.0.0.1", port)) as dead:
        await dead.refuse()

        async def use(target):
            async with aio.insecure_channel(target, options=FAST) as channel:
                await asyncio.gather(EchoStub(channel).Unary(Message()), return_exceptions=True)

        for _ in range(5):
            await asyncio.gather(use(f"127.0.0.1:{port}"), use(dead.target))
        await asyncio.sleep(0.3)
        before = resources()
        for _ in range(25):
            targets = [f"127.0.0.1:{port}", dead.target] * 20
            await asyncio.gather(*(use(target) for target in targets))
        await back_to(before)
