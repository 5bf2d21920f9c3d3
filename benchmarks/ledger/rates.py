"""Measures submits, claims and deliveries; the latter also of procrastinate and of a bare loop, in the same run."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

import grpc
import grpc.aio
import psycopg

from grpc_backoff import aio
from grpc_backoff.ledger import Ledger, LedgerSettings
from grpc_backoff.ledger.records import Lease, Submission
from grpc_backoff.ledger.stores.statements import batches
from grpc_backoff.ledger.stores.urls import open_store
from grpc_backoff.ledger.transactions import claiming, counting, submitting
from grpc_backoff.policy.presets import LEDGER

__all__ = [
    "METHOD",
    "Compared",
    "Rate",
    "claim_latency",
    "deliveries",
    "procrastinate_deliveries",
    "serving",
    "submits",
]

_SETTINGS = LedgerSettings(**LEDGER)
METHOD = "/shop.Orders/Place"


@dataclass(frozen=True, slots=True)
class Rate:
    """The number of operations and the seconds they took; for claims, also the 50th and 99th percentiles in ms."""

    what: str
    number: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def per_second(self) -> float:
        return self.number / self.seconds


@dataclass(frozen=True, slots=True)
class Compared:
    """Operations per second in one way and in another, and the first divided by the second."""

    what: str
    operations: int
    rate: float
    other: float
    ratio: float


async def compared(
    rounds: int, one: Callable[[], Coroutine[None, None, Rate]], other: Callable[[], Coroutine[None, None, Rate]]
) -> Compared:
    """Measure in both ways in turn, so that other work on the machine slows both."""
    pairs = [(await one(), await other()) for _ in range(rounds)]
    number = sum(each.number for each, _ in pairs)
    seconds, its = (sum(pair[index].seconds for pair in pairs) for index in (0, 1))
    what = f"{pairs[0][0].what}; other: {pairs[0][1].what}"
    return Compared(what, number, number / seconds, number / its, its / seconds)


async def submits(url: str, number: int, batch: int = 10) -> Rate:
    """Submit batches one after another. Each batch is durable when the call returns."""
    async with await Ledger.open(url) as ledger:
        began = time.monotonic()
        for _ in range(number // batch):
            await ledger.submit_many([ledger.prepared("t", METHOD, b"x" * 100) for _ in range(batch)])
        return Rate(f"submits in batches of {batch}", number, time.monotonic() - began)


async def claim_latency(url: str, rows: int, claims: int) -> Rate:
    """Claim ten of many waiting rows and release them, repeatedly."""
    store = open_store(url, _SETTINGS)
    await store.migrate(apply=True)
    for _ in range(rows // 1000):
        await submitting.submit(
            store,
            [Submission(str(uuid.uuid4()), "t", METHOD, b"x" * 100, (), "steps", None, None) for _ in range(1000)],
        )
    took = []
    began = time.monotonic()
    for _ in range(claims):
        begin = time.monotonic()
        taken = await claiming.claim(store, "t", 10, "me", 60.0)
        took.append(time.monotonic() - begin)
        await claiming.release(store, [Lease(each.id, each.lease_token) for each in taken])
    seconds = time.monotonic() - began
    await store.close()
    return _percentiles(f"claims of 10 at {rows} rows waiting", seconds, sorted(took))


def _percentiles(what: str, seconds: float, took: list[float]) -> Rate:
    return Rate(what, len(took), seconds, 1000 * took[len(took) // 2], 1000 * took[int(len(took) * 0.99)])


class _Handler(grpc.GenericRpcHandler):
    """Counts calls, and notes when each request arrived first."""

    def __init__(self) -> None:
        self.calls = 0
        self.arrived: dict[bytes, float] = {}

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(self._place)

    async def _place(self, request, _context):
        self.calls += 1
        self.arrived.setdefault(request, time.monotonic())
        return request


@contextlib.asynccontextmanager
async def serving():
    handler = _Handler()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield handler, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def deliveries(url: str, number: int, concurrency: int, keys: int = 0) -> Rate:
    """Deliver waiting operations, with this many order keys, until all of them are recorded as done."""
    settings = replace(_SETTINGS, concurrency=concurrency)
    async with serving() as (handler, target), await Ledger.open(url, settings=settings) as ledger:
        order_keys = [str(index % keys) if keys else None for index in range(number)]
        for some in batches(order_keys):
            await ledger.submit_many([ledger.prepared(target, METHOD, b"x" * 100, order_key=key) for key in some])
        async with aio.insecure_channel(target) as channel:
            await channel.channel_ready()
            began = time.monotonic()
            task = asyncio.ensure_future(ledger.deliver(channel))
            while await counting.waiting(ledger.store, 1):  # noqa: ASYNC110 - polls the database
                await asyncio.sleep(0.05)
            seconds = time.monotonic() - began
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert handler.calls == number, handler.calls
    order = f", {keys} order keys" if keys else ""
    return Rate(f"deliveries, {concurrency} at a time{order}", number, seconds)


async def bare_deliveries(url: str, number: int, concurrency: int) -> Rate:
    """Make the same calls with what one writes by hand: each worker locks a row, calls, and marks it as done."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("DROP TABLE IF EXISTS jobs")
        await connection.execute("CREATE TABLE jobs (id bigserial PRIMARY KEY, request bytea, done bool DEFAULT false)")
        await connection.execute("CREATE INDEX ON jobs (id) WHERE NOT done")
        await connection.execute(
            "INSERT INTO jobs (request) SELECT convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, %s)",
            (number,),
        )
        await connection.commit()

    async with serving() as (handler, target), grpc.aio.insecure_channel(target) as channel:
        place = channel.unary_unary(METHOD)

        async def work() -> None:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                while True:
                    found = await connection.execute(
                        "SELECT id, request FROM jobs WHERE NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
                    )
                    row = await found.fetchone()
                    if row is None:
                        return
                    await place(row[1])
                    await connection.execute("UPDATE jobs SET done = true WHERE id = %s", (row[0],))
                    await connection.commit()

        began = time.monotonic()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        seconds = time.monotonic() - began
    assert handler.calls == number, handler.calls
    return Rate(f"a bare loop's, {concurrency} at a time", number, seconds)


async def wake_ups(url: str, number: int) -> Rate:
    """Submit operations now and then to an idle deliverer; measure from the commit to the handler's start.

    The deliverer is another ledger, which learns of operations only by NOTIFY, as another process does.
    """
    rng = random.Random(0)
    committed: dict[bytes, float] = {}
    async with (
        serving() as (handler, target),
        await Ledger.open(url) as submitting,
        await Ledger.open(url) as delivering,
        aio.insecure_channel(target) as channel,
    ):
        await channel.channel_ready()
        task = asyncio.ensure_future(delivering.deliver(channel))
        await asyncio.sleep(1.0)  # until it listens
        began = time.monotonic()
        for index in range(number):
            await asyncio.sleep(rng.uniform(0.03, 0.1))
            request = str(index).encode()
            await submitting.submit(target, METHOD, request)
            committed[request] = time.monotonic()
        await asyncio.sleep(1.0)
        seconds = time.monotonic() - began
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    took = sorted(handler.arrived[request] - committed[request] for request in committed)
    return _percentiles("from commit to execution", seconds, took)


async def procrastinate_deliveries(url: str, number: int, concurrency: int) -> Rate:
    """Have procrastinate make the same calls from its own tables to an identical server."""
    import procrastinate

    async with serving() as (handler, target), grpc.aio.insecure_channel(target) as channel:
        place = channel.unary_unary(METHOD)
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

        @app.task(name="place")
        async def work(text):
            await place(text.encode())

        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            for _ in range(number // 1000):
                await work.batch_defer_async(*({"text": "x" * 100} for _ in range(1000)))
            began = time.monotonic()
            await app.run_worker_async(
                wait=False, concurrency=concurrency, listen_notify=False, install_signal_handlers=False
            )
            seconds = time.monotonic() - began
    assert handler.calls == number, handler.calls
    return Rate(f"procrastinate's, {concurrency} at a time", number, seconds)
