"""Compares the rate of deliveries before and after five faults, which are those of a public harness for job queues.

The faults are defined in hardbyte/postgresql-job-queue-benchmarking. Operations are submitted at a steady rate, without
making up for a time in which that was impossible. The rate is the median number of operations that arrive at the server
in a second, each counted once. A run has three phases of the same length: before, during and after the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import grpc
import grpc.aio
import psycopg

from benchmarks.ledger.kills import SETTINGS
from grpc_backoff import aio
from grpc_backoff.ledger import Ledger, LedgerError, OperationState
from grpc_backoff.ledger.transactions import counting
from tests.ledger.server import Server, running

__all__ = ["FAULTS", "Fault", "fault"]

_METHOD = "/shop.Orders/Place"
_TICK = 0.05
_SETTINGS = replace(SETTINGS, lease=5.0, poll=1.0, timeout=10.0, lock_timeout=5.0)
_KILLS = 3  # in a phase of the fault that kills again and again: every 20 s of a minute


@dataclass(frozen=True, slots=True)
class Fault:
    """The outcome: rates in operations per second, and what became of all operations in the end."""

    fault: str
    seconds: float
    before: float
    during: float
    after: float
    submitted: int
    lost: int
    stuck: int
    twice: int

    @property
    def kept(self) -> float:
        """The rate after the fault, as a part of the rate before."""
        return self.after / self.before


class _Handler(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(self._place)

    async def _place(self, request, _context):
        self.seen[request] += 1
        return request


def _deliver(url: str, target: str) -> None:
    async def deliver() -> None:
        async with await Ledger.open(url, settings=_SETTINGS) as ledger, aio.insecure_channel(target) as channel:
            await ledger.deliver(channel)

    asyncio.run(deliver())


class _Run:
    def __init__(self, server: Server, url: str, target: str) -> None:
        self.server = server
        self.url = url
        self.submitted: list[bytes] = []
        self._target = target
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["grpc_backoff.aio", "benchmarks.ledger.faults"])

    async def deliverer(self):
        process = self._context.Process(target=_deliver, args=(self.url, self._target), daemon=True)
        await asyncio.to_thread(process.start)
        return process

    async def feed(self, ledger: Ledger, rate: float) -> None:
        while True:
            began = time.monotonic()
            requests = [uuid.uuid4().bytes for _ in range(round(rate * _TICK))]
            prepared = [ledger.prepared(self._target, _METHOD, request) for request in requests]
            while True:  # the same operations, so that none is stored twice
                try:
                    await ledger.submit_many(prepared)
                    break
                except LedgerError:
                    await asyncio.sleep(_TICK)
            self.submitted += requests
            await asyncio.sleep(max(0.0, began + _TICK - time.monotonic()))


@contextlib.asynccontextmanager
async def _restart(run: _Run, seconds: float) -> AsyncIterator[None]:
    """PostgreSQL is down for the first half of the phase."""

    async def restart() -> None:
        await asyncio.to_thread(run.server.stop)
        await asyncio.sleep(seconds / 2)
        await asyncio.to_thread(run.server.start)

    restarting = asyncio.ensure_future(restart())
    yield
    await restarting


@contextlib.asynccontextmanager
async def _backends(run: _Run, _seconds: float) -> AsyncIterator[None]:
    """Twice a second, all connections to the database are terminated."""
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"

    async def terminate() -> None:
        async with await psycopg.AsyncConnection.connect(run.server.url(), autocommit=True) as connection:
            while True:
                await connection.execute(kill, (run.url.partition("@/")[2].partition("?")[0],))
                await asyncio.sleep(0.5)

    terminating = asyncio.ensure_future(terminate())
    yield
    terminating.cancel()
    await asyncio.gather(terminating, return_exceptions=True)


@contextlib.asynccontextmanager
async def _connections(run: _Run, _seconds: float) -> AsyncIterator[None]:
    """Idle connections are opened until PostgreSQL refuses more."""
    idle: list[psycopg.Connection] = []

    def exhaust() -> None:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                idle.append(psycopg.connect(run.server.url(), autocommit=True))

    await asyncio.to_thread(exhaust)
    yield
    for connection in idle:
        connection.close()


@contextlib.asynccontextmanager
async def _one_of_two(run: _Run, _seconds: float) -> AsyncIterator[None]:
    """One of two deliverers is killed with SIGKILL, and started again after the phase."""
    await _kill(run.processes[0])
    yield
    run.processes[0] = await run.deliverer()


@contextlib.asynccontextmanager
async def _again_and_again(run: _Run, seconds: float) -> AsyncIterator[None]:
    """The only deliverer is killed with SIGKILL and started again three times."""

    async def kill() -> None:
        for _ in range(_KILLS):
            await _kill(run.processes[0])
            run.processes[0] = await run.deliverer()
            await asyncio.sleep(seconds / _KILLS)

    killing = asyncio.ensure_future(kill())
    yield
    await killing


async def _kill(process) -> None:
    process.kill()
    await asyncio.to_thread(process.join)


FAULTS: dict[str, tuple[Callable[[_Run, float], contextlib.AbstractAsyncContextManager[None]], int]] = {
    "restart": (_restart, 1),
    "backends": (_backends, 1),
    "connections": (_connections, 1),
    "one-of-two": (_one_of_two, 2),
    "again-and-again": (_again_and_again, 1),
}
"""The faults, and how many deliverers each has."""


async def _rate(handler: _Handler, seconds: float) -> float:
    """Return the median number of requests that arrive first in a second."""
    counts = []
    for _ in range(max(1, round(seconds))):
        before = len(handler.seen)
        await asyncio.sleep(1.0)
        counts.append(len(handler.seen) - before)
    return statistics.median(counts)


async def fault(name: str, seconds: float, rate: float) -> Fault:
    """Run one fault, with phases of this many seconds."""
    cause, deliverers = FAULTS[name]
    handler = _Handler()
    grpc_server = grpc.aio.server()
    grpc_server.add_generic_rpc_handlers((handler,))
    target = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    await grpc_server.start()
    with running(durable=True) as server:
        run = _Run(server, server.database(), target)
        async with await Ledger.open(run.url, settings=_SETTINGS) as ledger:
            run.processes = [await run.deliverer() for _ in range(deliverers)]
            feeding = asyncio.ensure_future(run.feed(ledger, rate))
            try:
                async with asyncio.timeout(60):
                    while len(handler.seen) < rate:  # noqa: ASYNC110 - the server counts
                        await asyncio.sleep(0.05)
                before = await _rate(handler, seconds)
                async with cause(run, seconds):
                    during = await _rate(handler, seconds)
                after = await _rate(handler, seconds)
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
                for _ in range(1200):
                    if not await counting.waiting(ledger.store, 1):
                        break
                    await asyncio.sleep(0.05)
                counts = (await ledger.queue()).counts
            finally:
                feeding.cancel()
                for process in run.processes:
                    await _kill(process)
                await grpc_server.stop(None)
    return Fault(
        name,
        seconds,
        before,
        during,
        after,
        len(run.submitted),
        sum(request not in handler.seen for request in run.submitted),
        sum(number for state, number in counts.items() if state is not OperationState.SUCCEEDED),
        sum(times > 1 for times in handler.seen.values()),
    )
