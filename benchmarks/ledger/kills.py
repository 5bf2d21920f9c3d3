"""Kills submitters and deliverers with SIGKILL at random moments and checks that no operation is lost or stuck.

A submitter records each key once `submit` has returned. A deliverer calls a server that counts how often it has
received each key. Both are killed again and again. At the end, every recorded key must have been delivered. A key that
was delivered more than once must have an attempt recorded for each delivery, and at most one of them may have
succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, replace

import grpc
import grpc.aio

from grpc_backoff import aio
from grpc_backoff.ledger import Filter, Ledger, LedgerSettings, OperationState
from grpc_backoff.policy.presets import LEDGER

__all__ = ["LIVES", "SETTINGS", "Verdict", "deliverer", "kill", "kill_repeatedly"]

_METHOD = "/shop.Orders/Place"
SETTINGS = replace(
    LedgerSettings(**LEDGER),
    policy="max_attempts: unlimited, deadline: 1d, delay: 50ms, jitter: none",
    lease=1.0,
    poll=0.05,
    grace=0.0,
    concurrency=8,
    timeout=30.0,
    lock_timeout=20.0,
)
LIVES = (0.03, 0.35)  # seconds from a process being ready to its kill


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the run."""

    kills: int
    submitted: int
    unheard: int
    lost: int
    twice: int
    unexplained: int
    stuck: int
    seconds: float


def _submitter(url: str, target: str, run: int, pipe: int) -> None:
    async def submit() -> None:
        ledger = await Ledger.open(url, settings=SETTINGS)
        os.write(pipe, b"ready\n")
        number = 0
        while True:
            key = f"{run}-{number}"
            await ledger.submit(target, _METHOD, key.encode(), idempotency_key=key)
            os.write(pipe, f"{key}\n".encode())
            number += 1
            await asyncio.sleep(0.002)

    asyncio.run(submit())


def deliverer(url: str, target: str, _run: int, pipe: int) -> None:
    async def deliver() -> None:
        ledger = await Ledger.open(url, settings=SETTINGS)
        async with aio.insecure_channel(target) as channel:
            await channel.channel_ready()
            os.write(pipe, b"ready\n")
            await ledger.deliver(channel)

    asyncio.run(deliver())


class _Server(grpc.GenericRpcHandler):
    """Counts each key that it receives and takes a random time to answer."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(self._place)

    async def _place(self, request, context):
        self.seen[dict(context.invocation_metadata())["idempotency-key"]] += 1
        await asyncio.sleep(random.uniform(0, 0.01))
        return request


async def kill_repeatedly(work, url: str, target: str, moments: int, written: set[str], rng: random.Random) -> None:
    context = multiprocessing.get_context("forkserver")
    for run in range(moments):
        reading, writing = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(work, url, target, run, writing), daemon=True)
        await asyncio.to_thread(process.start)
        writing.close()
        fd = reading.fileno()
        await asyncio.to_thread(_line, fd)  # "ready"
        await asyncio.sleep(rng.uniform(*LIVES))
        process.kill()
        await asyncio.to_thread(process.join)
        written.update(line for line in _all(fd).split("\n") if line)
        reading.close()


def _run(work, url, target, run, writing):
    work(url, target, run, writing.fileno())


def _line(fd: int) -> None:
    while (byte := os.read(fd, 1)) not in (b"\n", b""):
        assert byte


def _all(fd: int) -> str:
    read = b""
    while some := os.read(fd, 65536):
        read += some
    whole, _, _ = read.rpartition(b"\n")
    return whole.decode()


async def kill(url: str, moments: int, seed: int = 0) -> Verdict:
    """Kill a submitter and a deliverer, concurrently, at this many random moments each."""
    began = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grpc_backoff.ledger", "grpc_backoff.aio", "benchmarks.ledger.kills", "psycopg"])
    rng = random.Random(seed)
    ledger = await Ledger.open(url, settings=SETTINGS)
    handler = _Server()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    written: set[str] = set()
    try:
        await asyncio.gather(
            kill_repeatedly(_submitter, url, target, moments, written, rng),
            kill_repeatedly(deliverer, url, target, moments, set(), rng),
        )
        async with aio.insecure_channel(target) as channel:
            last = asyncio.ensure_future(ledger.deliver(channel))
            for _ in range(3000):
                if not (await ledger.queue()).length:
                    break
                await asyncio.sleep(0.05)
            last.cancel()
            await asyncio.gather(last, return_exceptions=True)
        return await _verdict(ledger, handler.seen, written, moments, time.monotonic() - began)
    finally:
        await server.stop(None)
        with contextlib.suppress(Exception):
            await ledger.close()


async def _verdict(ledger: Ledger, seen: Counter[str], written: set[str], moments: int, seconds: float) -> Verdict:
    operations = await ledger.find(Filter(), limit=10_000_000)
    by_key = {operation.idempotency_key: operation for operation in operations}
    unexplained = 0
    for key, times in seen.items():
        if times > 1:
            codes = [attempt.code for attempt in await ledger.attempts(by_key[key].id)]
            unexplained += times > len(codes) or codes.count("OK") > 1
    return Verdict(
        kills=2 * moments,
        submitted=len(operations),
        unheard=len(set(by_key) - written),
        lost=len(written - set(by_key)) + sum(1 for key in written if not seen[key]),
        twice=sum(1 for times in seen.values() if times > 1),
        unexplained=unexplained,
        stuck=sum(1 for operation in operations if operation.state is not OperationState.SUCCEEDED),
        seconds=seconds,
    )
