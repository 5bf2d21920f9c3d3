"""Hedged calls to real servers that end a connection on which too many calls are cancelled, on both APIs (HG-11).

Each copy that loses could be cancelled, and there are more of them than these servers bear. The modes of running are
those of `test_servers.py`. `--junitxml=FILE -o junit_family=xunit1` keeps the figures.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import grpc.aio
import numpy as np
import pytest

import grpc_backoff
from grpc_backoff import CallHedged, Connected, aio
from grpc_judge.runner.build import peers_required
from tests.interop_suite.servers.processes import SERVERS, running

pytestmark = pytest.mark.timeout(240)

METHOD = "/grpc.testing.TestService/EmptyCall"
POLICY = "hedge: 10ms, attempts: 2"
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
ANSWER_MS = 100
DEADLINE = 20.0
LIMIT = 500  # cancelled calls: more than any of these servers bears within a minute
TURN = 20  # calls that are cancelled together


@dataclass(frozen=True)
class Load:
    """Workers that make calls, each of them one after another: `every` so many seconds, or as soon as it can."""

    workers: int
    calls: int
    every: float = 0.0


@dataclass
class Hedged:
    """What was seen of a channel: how long its calls took, in seconds, how those failed that did, and its events."""

    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    events: list[object] = field(default_factory=list)

    def of(self, kind):
        return sum(isinstance(event, kind) for event in self.events)


BUSY = Load(workers=20, calls=1000)
STEADY = Load(workers=2, calls=1200, every=0.2)  # ten calls a second for two minutes


def against():
    """Parametrise a test with the servers that count cancelled calls. It is slow with those of the full run alone."""
    counting = ("uvicorn server", "Vert.x server", "Armeria server")
    wanted = [server for server in SERVERS if server.name in counting and peers_required()]
    cases = [pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.full else []) for each in wanted]
    return pytest.mark.parametrize("server", cases)


class Worker:
    """Makes the calls of one worker, one by one: `begin` waits for its turn, `end` notes what came of the call."""

    def __init__(self, load, seen):
        self.calls = range(load.calls // load.workers)
        self._every, self._seen = load.every, seen
        self._due = time.monotonic()

    def wait(self):
        """Return the seconds until the next call."""
        self._due += self._every
        return max(0.0, self._due - time.monotonic()) if self._every else 0.0

    def answered(self, began):
        self._seen.took.append(time.monotonic() - began)

    def failed(self, error):
        self._seen.failed.append(f"{error.code().name}: {error.details()}")


HOW = {"metadata": (("answer-after-ms", str(ANSWER_MS)),), "timeout": DEADLINE}


async def with_tasks(target, load):
    seen = Hedged()
    async with aio.insecure_channel(target, OPTIONS, retry=POLICY, listeners=[seen.events.append]) as channel:
        method = channel.unary_unary(METHOD)

        async def work():
            worker = Worker(load, seen)
            for _ in worker.calls:
                await asyncio.sleep(worker.wait())
                began = time.monotonic()
                try:
                    await method(b"", **HOW)
                except grpc.aio.AioRpcError as error:
                    worker.failed(error)
                else:
                    worker.answered(began)

        await asyncio.gather(*(work() for _ in range(load.workers)))
    return seen


async def with_threads(target, load):
    return await asyncio.to_thread(call_with_threads, target, load)


def call_with_threads(target, load):
    seen = Hedged()
    with (
        grpc_backoff.insecure_channel(target, OPTIONS, retry=POLICY, listeners=[seen.events.append]) as channel,
        ThreadPoolExecutor(load.workers) as pool,
    ):
        method = channel.unary_unary(METHOD)

        def work(_):
            worker = Worker(load, seen)
            for _ in worker.calls:
                time.sleep(worker.wait())
                began = time.monotonic()
                try:
                    method(b"", **HOW)
                except grpc.RpcError as error:
                    worker.failed(error)
                else:
                    worker.answered(began)

        list(pool.map(work, range(load.workers)))
    return seen


APIS = {"asyncio": with_tasks, "threads": with_threads}


@pytest.fixture
def hedged(tmp_path, record_property):
    """Return a function that makes hedged calls to a server, with several APIs at a time, and checks them."""

    async def hedged(server, apis, load):
        async with running(server, tmp_path) as up:
            seen = await asyncio.gather(*(APIS[api](f"127.0.0.1:{up.port}", load) for api in apis))
        for api, each in zip(apis, seen, strict=True):
            p99 = np.quantile(each.took, 0.99) if each.took else float("nan")
            figures = (len(each.took), len(each.failed), each.of(CallHedged), each.of(Connected), round(1000 * p99))
            record_property(api, " ".join(map(str, figures)))
        for each in seen:
            assert not each.failed, f"{len(each.failed)} of {load.calls} calls failed: {set(each.failed)}"
            assert each.of(CallHedged) > LIMIT, "too few copies were sent to meet any server's limit"
            assert each.of(Connected) == 1, "the server ended the connection"

    return hedged


@against()
@pytest.mark.parametrize("api", APIS)
async def test_hedged(server, api, hedged):
    """HG-11: a busy channel whose every call is hedged loses no call, and the server does not end its connection."""
    await hedged(server, [api], BUSY)


@pytest.mark.slow
@against()
async def test_hedged_for_two_minutes(server, hedged):
    """HG-11: nor does it at ten calls a second for two minutes, in which the server's limits could fill up."""
    await hedged(server, list(APIS), STEADY)


@against()
async def test_cancelled(server, tmp_path, record_property):
    """HG-11: if its calls are just cancelled, the server ends the connection, and every call on it, as it should."""
    async with running(server, tmp_path) as up:
        cancelled, code = await asyncio.to_thread(cancel_calls, f"127.0.0.1:{up.port}")
    record_property("cancelled", cancelled)
    assert code is grpc.StatusCode.UNAVAILABLE


def cancel_calls(target):
    """Cancel calls of plain grpcio beside one that runs on; return how many it took to end that one, and its code."""
    with grpc.insecure_channel(target, OPTIONS) as channel:
        method = channel.unary_unary(METHOD)
        running_on = method.future(b"", timeout=60, metadata=(("answer-after-ms", "60000"),), wait_for_ready=True)
        cancelled = 0
        while not running_on.done() and cancelled < 4 * LIMIT:
            calls = [method.future(b"", **HOW) for _ in range(TURN)]
            time.sleep(0.01)
            for call in calls:
                call.cancel()
            cancelled += TURN
        return cancelled, running_on.code() if running_on.done() else None
