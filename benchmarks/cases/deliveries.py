"""Measures the ledger's deliveries beside those of a loop that one writes by hand, and of procrastinate.

All of them make the same call, to a server in another process, for each of the operations that wait in a database. The
bare loop is 16 tasks, each of which has a connection, locks a row with SKIP LOCKED, makes the call, and marks the row
as done. It knows neither retries, leases, attempts, order nor idempotency keys.

The CPU of a delivery is that of the worker's process and of all of the server's processes, until the last result is
recorded; another row shows the worker's part. For workers that are idle, another process submits an operation now and
then, and the server notes when each arrives: the database's part then contains the submission, and the bare loop
listens. Each measurement has a database of its own. Without PostgreSQL, only the rows of SQLite are measured, and
without procrastinate (of the group `bench`) not its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import itertools
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from benchmarks.apart import Peer, Served, at_once, in_child, serving
from benchmarks.benchmark import Benchmark, Effort, Goal, Measure, Row
from benchmarks.measure import by_round, turns
from grpc_backoff import aio
from grpc_backoff.ledger import Ledger, LedgerSettings
from grpc_backoff.ledger.stores.statements import batches
from grpc_backoff.ledger.transactions import counting
from grpc_backoff.policy.presets import LEDGER
from tests.ledger.server import binaries, running

__all__ = ["BENCHMARK"]

BARE, BARE_CONTROL = "a bare loop", "a bare loop, again"
OURS, ORDERED = "ledger", "ledger, order keys"
SUBJECTS = (BARE, OURS, BARE_CONTROL)
QUEUE = "procrastinate"
CPU = Measure("CPU of a delivery, worker and database", "ms")
WORKER = Measure("CPU of a delivery, worker alone", "ms")
RATE = Measure("deliveries per second", "")
BACKLOG = Measure("deliveries per second from a large backlog", "")
IN_ORDER = Measure("deliveries per second with order keys", "")
LATER = Measure("deliveries per second from SQLite, at the end of a backlog", "")
WAKE = Measure("time from commit to execution, p50", "ms")
IDLE_CPU = Measure("CPU of an operation for an idle worker", "ms")
FIRST, LAST = "the first quarter", "the last quarter"
METHOD = "/shop.Orders/Place"
CONCURRENCY = 16
KEYS = 100
REQUEST = b"x" * 100
_POLL = 0.05  # seconds
_SETTLES_IN = 1.5  # seconds, until a worker listens, and until the last operation is recorded
_SELDOM = 0.25
_BREAK = 0.1  # seconds at most between two operations for idle workers


@dataclass(frozen=True, slots=True)
class Size:
    """How many operations wait, how large the backlog is, how many wake workers, and how often each is measured."""

    operations: int
    rounds: int
    backlog: int
    backlogs: int
    wakes: int


SIZES = {
    Effort.FULL: Size(5000, 9, 100_000, 3, 200),
    Effort.QUICK: Size(1000, 3, 2000, 2, 50),
    Effort.TINY: Size(60, 1, 80, 1, 5),
}


class Delivered(NamedTuple):
    """What a number of deliveries took, in seconds."""

    seconds: float
    worker: float
    database: float
    quarters: tuple[float, float] = (0.0, 0.0)


def has_queue() -> bool:
    """Return whether procrastinate is installed."""
    return importlib.util.find_spec("procrastinate") is not None


def run(effort: Effort) -> list[Row]:
    """Measure each worker in a new process."""
    size, rows = SIZES[effort], list[Row]()
    with serving(_placing) as peer:
        if binaries() is not None:
            with running(durable=True) as server:
                rows += _on_postgres(server, peer, size)
        rows += _on_sqlite(peer, size)
    return rows


def _on_postgres(server, peer: Peer, size: Size) -> Iterator[Row]:
    def deliver(subject: str, operations: int) -> Delivered:
        with server.lending() as url:
            return in_child(_WORKERS[subject], url, peer.target, operations, server.pid)

    queue = (QUEUE,) if has_queue() else ()
    subjects = (*SUBJECTS, *queue)
    taken: dict[str, list[Delivered]] = {subject: [] for subject in (*subjects, ORDERED)}
    for subject in turns([*taken], size.rounds):
        taken[subject].append(deliver(subject, size.operations))
    case = f"{size.operations:,} operations on PostgreSQL"
    each = 1000 / size.operations
    for what, sample in (
        (CPU, lambda one: (one.worker + one.database) * each),
        (WORKER, lambda one: one.worker * each),
        (RATE, lambda one: size.operations / one.seconds),
    ):
        yield from by_round(case, what, {subject: [*map(sample, taken[subject])] for subject in subjects}, BARE)
    rates = {subject: [size.operations / one.seconds for one in taken[subject]] for subject in (OURS, ORDERED)}
    yield from by_round(f"{case}, {KEYS} order keys", IN_ORDER, rates, OURS)

    drained: dict[str, list[float]] = {BARE: [], OURS: []}
    for subject in turns([*drained], size.backlogs):
        drained[subject].append(size.backlog / deliver(subject, size.backlog).seconds)
    yield from by_round(f"{size.backlog:,} operations on PostgreSQL", BACKLOG, drained, BARE)

    yield from _on_idle_workers(server, peer, size, (*queue, OURS, BARE))


def _on_idle_workers(server, peer: Peer, size: Size, subjects: tuple[str, ...]) -> Iterator[Row]:
    took: dict[str, list[float]] = {subject: [] for subject in subjects}
    cpu: dict[str, list[float]] = {subject: [] for subject in subjects}
    for subject in turns(subjects, size.rounds):
        with server.lending() as url:
            both = [(_idle, subject, url, peer.target, server.pid), (_submit, subject, url, peer.target, size.wakes)]
            taken, committed = at_once(_call, both)
        arrived = peer.ask()
        waits = sorted(1000 * (arrived[request] - when) for request, when in committed.items())
        took[subject].append(waits[len(waits) // 2])
        cpu[subject].append((taken.worker + taken.database) * 1000 / size.wakes)
    case = "an operation now and then on PostgreSQL"
    yield from by_round(case, WAKE, took, subjects[0] if subjects[0] == QUEUE else None)
    yield from by_round(case, IDLE_CPU, cpu, BARE)


def _on_sqlite(peer: Peer, size: Size) -> Iterator[Row]:
    rates: dict[str, list[float]] = {FIRST: [], LAST: []}
    for _ in range(size.backlogs):
        with tempfile.TemporaryDirectory(prefix="grpc-backoff-ledger-") as directory:
            url = str(Path(directory) / "ledger.db")
            first, last = in_child(_deliver, url, peer.target, size.backlog, None).quarters
        rates[FIRST].append(size.backlog / 4 / first)
        rates[LAST].append(size.backlog / 4 / last)
    yield from by_round(f"{size.backlog:,} operations on SQLite", LATER, rates, FIRST)


class _Handler(grpc.GenericRpcHandler):
    """Answers each call, and notes when each request arrived first since it was asked last."""

    def __init__(self) -> None:
        self._arrived: dict[bytes, float] = {}

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(self._place)

    async def _place(self, request, _context):
        self._arrived.setdefault(request, time.monotonic())
        return b""

    def answer(self, _question) -> dict[bytes, float]:
        arrived, self._arrived = self._arrived, {}
        return arrived


@contextlib.asynccontextmanager
async def _placing() -> AsyncIterator[Served]:
    handler = _Handler()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Served(f"127.0.0.1:{port}", handler.answer)
    finally:
        await server.stop(None)


class _Meter:
    """Measures the CPU of this process, and of a PostgreSQL server with its children, those that have ended as well."""

    def __init__(self, server: int | None) -> None:
        self._server = server
        self._began = time.monotonic(), time.process_time(), self._database()

    def read(self, quarters: tuple[float, float] = (0.0, 0.0)) -> Delivered:
        now = time.monotonic(), time.process_time(), self._database()
        return Delivered(*(end - begin for begin, end in zip(self._began, now, strict=True)), quarters)

    def _database(self) -> float:
        if self._server is None:
            return 0.0
        import psutil  # noqa: PLC0415 - only here

        server = psutil.Process(self._server)
        total = sum(server.cpu_times()[:4])
        for child in server.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(child.cpu_times()[:2])
        return total


def _deliver(url: str, target: str, operations: int, server: int | None, keys: int = 0) -> Delivered:
    return asyncio.run(_deliver_from_ledger(url, target, operations, server, keys))


def _deliver_in_order(url: str, target: str, operations: int, server: int | None) -> Delivered:
    return _deliver(url, target, operations, server, KEYS)


async def _deliver_from_ledger(url: str, target: str, operations: int, server: int | None, keys: int) -> Delivered:
    settings = replace(LedgerSettings(**LEDGER), concurrency=CONCURRENCY)
    numbers, reached = itertools.count(1), dict[int, float]()
    quarter, last = operations // 4, operations - operations // 4

    def count(_event: object) -> None:
        if (number := next(numbers)) in (quarter, last):
            reached[number] = time.monotonic()

    listeners = [count] if server is None else []
    async with await Ledger.open(url, settings=settings, listeners=listeners) as ledger:
        order_keys = [str(index % keys) if keys else None for index in range(operations)]
        for some in batches(order_keys):
            await ledger.submit_many([ledger.prepared(target, METHOD, REQUEST, order_key=key) for key in some])
        async with aio.insecure_channel(target) as channel:
            await channel.channel_ready()
            meter, began = _Meter(server), time.monotonic()
            delivering = asyncio.ensure_future(ledger.deliver(channel))
            while await counting.waiting(ledger.store, 1):  # noqa: ASYNC110 - polls the database
                await asyncio.sleep(_POLL)
            ended = time.monotonic()
            taken = meter.read()
            if reached:
                taken = taken._replace(quarters=(reached[quarter] - began, ended - reached[last]))
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)
    return taken


def _deliver_by_hand(url: str, target: str, operations: int, server: int) -> Delivered:
    return asyncio.run(_deliver_in_a_loop(url, target, operations, server))


async def _deliver_in_a_loop(url: str, target: str, operations: int, server: int) -> Delivered:
    async with _loops(url, target) as (connection, work):
        text = "INSERT INTO jobs (request) SELECT convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, %s)"
        await connection.execute(text, (operations,))
        meter = _Meter(server)
        await asyncio.gather(*(each() for each in work))
        return meter.read()


@contextlib.asynccontextmanager
async def _loops(url: str, target: str) -> AsyncIterator[tuple]:
    """Yield a connection and functions that each deliver until no operation waits."""
    import psycopg  # noqa: PLC0415 - only for PostgreSQL

    async with contextlib.AsyncExitStack() as stack:
        connect = psycopg.AsyncConnection.connect
        first = await stack.enter_async_context(await connect(url, autocommit=True))
        await first.execute("CREATE TABLE jobs (id bigserial PRIMARY KEY, request bytea, done bool DEFAULT false)")
        await first.execute("CREATE INDEX ON jobs (id) WHERE NOT done")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        await channel.channel_ready()
        place = channel.unary_unary(METHOD)

        async def work(connection: psycopg.AsyncConnection) -> None:
            find = "SELECT id, request FROM jobs WHERE NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
            while row := await (await connection.execute(find)).fetchone():
                await place(row[1])
                await connection.execute("UPDATE jobs SET done = true WHERE id = %s", (row[0],))
                await connection.commit()
            await connection.commit()

        connections = [await stack.enter_async_context(await connect(url)) for _ in range(CONCURRENCY)]
        yield first, [functools.partial(work, each) for each in connections]


def _deliver_from_queue(url: str, target: str, operations: int, server: int) -> Delivered:
    return asyncio.run(_deliver_from_procrastinate(url, target, operations, server))


async def _deliver_from_procrastinate(url: str, target: str, operations: int, server: int) -> Delivered:
    async with _procrastinate(url, target) as (app, work):
        await app.schema_manager.apply_schema_async()
        for some in batches(range(operations)):
            await work.batch_defer_async(*({"text": REQUEST.decode()} for _ in some))
        meter = _Meter(server)
        await app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, listen_notify=False, install_signal_handlers=False
        )
        return meter.read()


@contextlib.asynccontextmanager
async def _procrastinate(url: str, target: str) -> AsyncIterator[tuple]:
    """Yield an app with its task."""
    import procrastinate  # noqa: PLC0415 - optional

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    async with grpc.aio.insecure_channel(target) as channel:
        await channel.channel_ready()
        place = channel.unary_unary(METHOD)

        @app.task(name="place")
        async def work(text: str) -> None:
            await place(text.encode())

        async with app.open_async():
            yield app, work


# Idle workers, and a process that submits. Both meet by tables that they create.


def _call(function, *args):
    return function(*args)


def _idle(subject: str, url: str, target: str, server: int) -> Delivered:
    return asyncio.run(_wait_for_operations(_IDLERS[subject], url, target, server))


async def _wait_for_operations(idle, url: str, target: str, server: int) -> Delivered:
    async with idle(url, target) as working:
        task = asyncio.ensure_future(working)
        await asyncio.sleep(_SETTLES_IN)
        meter = _Meter(server)
        await _say(url, "waiting")
        await _hear(url, "submitted")
        taken = meter.read()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return taken


def _submit(subject: str, url: str, target: str, number: int) -> dict[bytes, float]:
    return asyncio.run(_submit_now_and_then(_SUBMITTERS[subject], url, target, number))


async def _submit_now_and_then(submitting, url: str, target: str, number: int) -> dict[bytes, float]:
    """Return when each operation was committed."""
    rng, committed = random.Random(0), dict[bytes, float]()
    await _hear(url, "waiting")
    async with submitting(url, target) as submit:
        for index in range(number):
            await asyncio.sleep(rng.uniform(_BREAK / 3, _BREAK))
            await submit(str(index))
            committed[str(index).encode()] = time.monotonic()
        await asyncio.sleep(_SETTLES_IN)
        await _say(url, "submitted")
    return committed


async def _say(url: str, what: str) -> None:
    import psycopg  # noqa: PLC0415 - only for PostgreSQL

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(f"CREATE TABLE {what} ()")


async def _hear(url: str, what: str) -> None:
    import psycopg  # noqa: PLC0415 - only for PostgreSQL

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while (await (await connection.execute("SELECT to_regclass(%s)", (what,))).fetchone()) == (None,):  # noqa: ASYNC110
            await asyncio.sleep(_SELDOM)


@contextlib.asynccontextmanager
async def _idle_ledger(url: str, target: str) -> AsyncIterator:
    async with await Ledger.open(url) as ledger, aio.insecure_channel(target) as channel:
        await channel.channel_ready()
        yield ledger.deliver(channel)


@contextlib.asynccontextmanager
async def _submitting_to_ledger(url: str, target: str) -> AsyncIterator:
    async with await Ledger.open(url) as ledger:
        yield lambda text: ledger.submit(target, METHOD, text.encode())


@contextlib.asynccontextmanager
async def _idle_queue(url: str, target: str) -> AsyncIterator:
    async with _procrastinate(url, target) as (app, _):
        await app.schema_manager.apply_schema_async()
        yield app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


@contextlib.asynccontextmanager
async def _submitting_to_queue(url: str, target: str) -> AsyncIterator:
    async with _procrastinate(url, target) as (_, work):
        yield lambda text: work.defer_async(text=text)


@contextlib.asynccontextmanager
async def _idle_loops(url: str, target: str) -> AsyncIterator:
    import psycopg  # noqa: PLC0415 - only for PostgreSQL

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("LISTEN jobs")
            async for _ in connection.notifies():
                free = functions.pop()
                task = asyncio.ensure_future(free())
                task.add_done_callback(lambda _, free=free: functions.append(free))

    async with _loops(url, target) as (_, functions):
        yield work()


@contextlib.asynccontextmanager
async def _submitting_to_loops(url: str, _target: str) -> AsyncIterator:
    import psycopg  # noqa: PLC0415 - only for PostgreSQL

    text = "WITH new AS (INSERT INTO jobs (request) VALUES (%s) RETURNING 1) SELECT pg_notify('jobs', '') FROM new"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield lambda request: connection.execute(text, (request.encode(),))


_WORKERS = {
    BARE: _deliver_by_hand,
    BARE_CONTROL: _deliver_by_hand,
    OURS: _deliver,
    ORDERED: _deliver_in_order,
    QUEUE: _deliver_from_queue,
}
_IDLERS = {OURS: _idle_ledger, QUEUE: _idle_queue, BARE: _idle_loops}
_SUBMITTERS = {OURS: _submitting_to_ledger, QUEUE: _submitting_to_queue, BARE: _submitting_to_loops}

BENCHMARK = Benchmark(
    name="deliveries",
    says="deliveries of the ledger",
    beside=(BARE, QUEUE),
    goals=(
        Goal(subject=OURS, measure=CPU, most=2.0),
        Goal(subject=OURS, measure=RATE, least=0.9),
        Goal(subject=OURS, measure=BACKLOG, least=0.9),
        Goal(subject=ORDERED, measure=IN_ORDER, least=0.8),
        Goal(subject=LAST, measure=LATER, least=0.9),
        Goal(subject=OURS, measure=WAKE, most=1.0),
        Goal(subject=OURS, measure=IDLE_CPU, most=2.0),
    ),
    run=run,
)
