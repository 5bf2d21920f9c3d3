"""Kills servers that have an inbox with SIGKILL, while a ledger delivers to them, and counts the application's effects.

The handler writes one effect for each call, sleeps for a moment and answers. The server is killed at random moments, so
in the handler, in COMMIT and between COMMIT and the response. The ledger repeats what was not answered. At the end,
each operation must have been delivered, and must have exactly one effect. Without the inbox, the same run shows how
many effects would have been there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import socket
import sqlite3
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
import psycopg

from grpc_backoff import aio
from grpc_backoff.ledger import Filter, Ledger, LedgerSettings, OperationDelivered, OperationState
from grpc_backoff.ledger.inbox import AioInbox, SyncInbox, connection
from grpc_backoff.policy.presets import LEDGER

__all__ = ["APIS", "Tally", "kill"]

APIS = ("asyncio", "threads")
_METHOD = "/shop.Orders/Place"
_SETTINGS = replace(
    LedgerSettings(**LEDGER),
    policy="max_attempts: unlimited, deadline: 1d, delay: 20ms, max_delay: 100ms, jitter: full",
    poll=0.05,
    concurrency=8,
    timeout=30.0,
    lock_timeout=20.0,
)
_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
_LIVES = (0.02, 0.25)  # seconds from the first call of a server to its kill
_PAUSE = 0.01  # seconds that a handler sleeps at most, before and after its effect
_ROWS = 8  # operations that wait at least, so that every kill hits calls


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of the run.

    Attributes:
        hit: the kills at which at least one attempt was running.
        repeated: operations with more than one attempt.
        twice: operations whose effect is there more than once.
        missing: operations without an effect.
        stuck: operations that were not delivered.
    """

    kills: int
    hit: int
    operations: int
    repeated: int
    twice: int
    missing: int
    stuck: int
    seconds: float


def _statement(url: str) -> str:
    return f"INSERT INTO effects VALUES ({'%s' if url.startswith('postgresql:') else '?'})"


def _connect(url: str):
    return psycopg.connect(url, autocommit=True) if url.startswith("postgresql:") else sqlite3.connect(url, timeout=30)


class _Place(grpc.GenericRpcHandler):
    def __init__(self, behaviour) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(behaviour)

    def service(self, _details):
        return self._handler


def _serve_asyncio(url: str, port: int, *, guarded: bool) -> None:
    async def place(request, _context):
        await asyncio.sleep(random.uniform(0, _PAUSE))
        if guarded:
            done = connection().execute(_statement(url), (request.decode(),))
            if asyncio.iscoroutine(done):
                await done
        else:
            with contextlib.closing(_connect(url)) as own, own:
                own.execute(_statement(url), (request.decode(),))
        await asyncio.sleep(random.uniform(0, _PAUSE))
        return request

    async def serve() -> None:
        inbox = [await AioInbox.open(url)] if guarded else []
        server = grpc.aio.server(interceptors=inbox)
        server.add_generic_rpc_handlers((_Place(place),))
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await server.wait_for_termination()

    asyncio.run(serve())


def _serve_threads(url: str, port: int, *, guarded: bool) -> None:
    def place(request, _context):
        time.sleep(random.uniform(0, _PAUSE))
        with contextlib.nullcontext(connection()) if guarded else contextlib.closing(_connect(url)) as where:
            where.execute(_statement(url), (request.decode(),))
            if not guarded and isinstance(where, sqlite3.Connection):
                where.commit()
        time.sleep(random.uniform(0, _PAUSE))
        return request

    inbox = [SyncInbox.open(url)] if guarded else []
    server = grpc.server(ThreadPoolExecutor(16), interceptors=inbox)
    server.add_generic_rpc_handlers((_Place(place),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


_SERVERS = {"asyncio": _serve_asyncio, "threads": _serve_threads}


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def _effects(url: str) -> Counter[str]:
    with contextlib.closing(_connect(url)) as own:
        return Counter(text for (text,) in own.execute("SELECT text FROM effects").fetchall())


async def kill(url: str, api: str, moments: int, *, guarded: bool = True, seed: int = 0) -> Tally:
    """Kill a server of an API at this many random moments; with `guarded` unset, one without an inbox."""
    began = time.monotonic()
    rng = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.ledger.inbox"])
    with contextlib.closing(_connect(url)) as own:
        own.execute("CREATE TABLE effects (text text)")
        own.commit()
    port = _free_port()
    target = f"127.0.0.1:{port}"
    delivered = asyncio.Event()

    def hear(event) -> None:
        if isinstance(event, OperationDelivered):
            delivered.set()

    async def serve():
        """Start a server; return when it has answered a call."""
        process = context.Process(target=_SERVERS[api], args=(url, port), kwargs={"guarded": guarded}, daemon=True)
        await asyncio.to_thread(process.start)
        delivered.clear()
        async with asyncio.timeout(60):
            await delivered.wait()
        return process

    with tempfile.TemporaryDirectory(prefix="grpc-backoff-client-") as directory:
        path = Path(directory) / "client.db"
        async with (
            await Ledger.open(path, settings=_SETTINGS, listeners=[hear]) as ledger,
            aio.insecure_channel(target, _OPTIONS) as channel,
        ):
            delivering = asyncio.ensure_future(ledger.deliver(channel))
            feeding = asyncio.ensure_future(_feed(ledger, target))
            hit = 0
            for _ in range(moments):
                process = await serve()
                await asyncio.sleep(rng.uniform(*_LIVES))
                hit += (await ledger.queue()).counts.get(OperationState.IN_PROGRESS, 0) > 0
                process.kill()
                await asyncio.to_thread(process.join)
            last = await serve()
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            for _ in range(1200):
                if not (await ledger.queue()).length:
                    break
                await asyncio.sleep(0.05)
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)
            operations = await ledger.find(Filter(), limit=10_000_000)
    last.kill()
    await asyncio.to_thread(last.join)
    effects = _effects(url)
    keys = [operation.idempotency_key for operation in operations]
    return Tally(
        kills=moments,
        hit=hit,
        operations=len(operations),
        repeated=sum(1 for operation in operations if operation.attempts > 1),
        twice=sum(1 for key in keys if effects[key] > 1),
        missing=sum(1 for key in keys if not effects[key]),
        stuck=sum(1 for operation in operations if operation.state is not OperationState.SUCCEEDED),
        seconds=time.monotonic() - began,
    )


async def _feed(ledger: Ledger, target: str) -> None:
    """Keep some operations waiting."""
    number = 0
    while True:
        for _ in range((await ledger.queue()).length, _ROWS):
            key = f"order-{number}"
            await ledger.submit(target, _METHOD, key.encode(), idempotency_key=key)
            number += 1
        await asyncio.sleep(0.005)
