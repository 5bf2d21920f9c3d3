"""Behaviour specific to the PostgreSQL store: lost servers and networks, locks, and notifications."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import psycopg
import pytest
from psycopg.pq import TransactionStatus

from grpc_backoff import OptionError, aio
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import (
    Filter,
    Ledger,
    LedgerBusyError,
    LedgerLimitError,
    LedgerUnavailableError,
    OperationState,
)
from grpc_backoff.ledger.delivery import calling
from grpc_backoff.ledger.records import AttemptReport, Lease
from grpc_backoff.ledger.stores.postgres import store as postgres
from grpc_backoff.ledger.stores.store import SOON
from grpc_backoff.ledger.transactions import claiming, counting, manual, order_keys, queries, recording, submitting
from tests.echo import Message
from tests.ledger import server as servers
from tests.ledger.conftest import SETTINGS, execute, locking, open_store, opened_store, submission
from tests.ledger.delivery.test_delivery import at_work, delivering, done, until
from tests.ledger.steps import SHOP, STEPS, claimed, did, eventually, policy_of, submitted
from tests.peers import peer

QUICK = replace(
    SETTINGS, poll=0.2, timeout=1.0, policy="max_attempts: unlimited, deadline: 1d, delay: 50ms", lease=2.0, grace=1.0
)
METHOD = "/echo.v1.Echo/Unary"


@pytest.fixture
def url(postgres_url):
    return postgres_url


LONG = "timestamp with time zone"
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"


class Network:
    """A TCP proxy in front of the server's socket that can hold back all data, or break its connections."""

    def __init__(self, directory):
        self._path = str(directory / ".s.PGSQL.5432")
        self._through = asyncio.Event()
        self._through.set()
        self._writers = []
        self.delay = 0.0
        """The delay of all data in each direction, in seconds."""

    async def _carry(self, reader, writer):
        there, here = await asyncio.open_unix_connection(self._path)
        self._writers += [writer, here]
        through = self._through
        await asyncio.gather(self._pass(reader, here, through), self._pass(there, writer, through))

    async def _pass(self, source, sink, through):
        with contextlib.suppress(ConnectionError):
            while some := await source.read(65536):
                await through.wait()
                await asyncio.sleep(self.delay)
                sink.write(some)
        sink.close()

    def cut(self):
        self._through.clear()

    def mend(self):
        self._through.set()

    def lose(self):
        """Hold back all data on the current connections forever, but not on new ones."""
        self._through.clear()
        self._through = asyncio.Event()
        self._through.set()

    def hang_up(self):
        for writer in self._writers:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def open(self, url):
        """Yield the URL of a database through this proxy."""
        async with peer(self._carry) as target:
            yield f"postgresql://postgres@{target}/{psycopg.conninfo.conninfo_to_dict(url)['dbname']}"
            self.mend()
            self.hang_up()


@pytest.fixture
def network(server):
    return Network(server.directory)


async def test_lock_acquired_released_timed_out(url, settings):
    """LG-2, seed 001: a report waits for the row's lock; after a timeout, the error says that nothing was written."""
    async with opened_store(url, replace(settings, lock_timeout=0.3)) as store:
        await submitting.submit(store, [submission(1), submission(2)])
        reports = [AttemptReport(submission(n).id, None, STEPS, FailedAttempt("UNAVAILABLE"), draw=0.5) for n in (1, 2)]
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM grpc_backoff.operations WHERE id = %s FOR UPDATE", (reports[0].id,))
            first, second = await recording.record_ends(store, reports)
            waits = asyncio.ensure_future(recording.record_ends(store, reports[:1]))
            await asyncio.sleep(0.1)
            await other.rollback()
            [then] = await waits

        assert isinstance(first, LedgerBusyError)
        assert "after 0.3 s waiting for another transaction's lock; nothing was written" in str(first)
        assert (second.state, second.attempts) == (OperationState.WAITING, 1)
        assert (then.state, then.attempts) == (OperationState.WAITING, 1)


async def test_a_locked_row_is_passed_over(store, url):
    """LG-6: a claim skips rows that are locked instead of waiting for them."""
    await submitting.submit(store, [submission(1), submission(2)])
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("SELECT 1 FROM grpc_backoff.operations WHERE id = %s FOR UPDATE", (submission(1).id,))
        taken = await claimed(store, 10)
        await other.rollback()

    assert [operation.id for operation in taken] == [submission(2).id]


async def test_sql_with_numbered_parameters(ledger, url):
    """LG-9: `statement` can write parameters as asyncpg and others do; any other style is an error."""
    prepared = ledger.prepared("t", "/m/m", b"a", idempotency_key="k")
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as other:
        other.execute(*ledger.statement(prepared, "numeric_dollar"))

    assert (await ledger.get(prepared.id)).request == b"a"
    with pytest.raises(OptionError, match="style='named': expected one of: format, qmark, numeric_dollar"):
        ledger.statement(prepared, "named")


async def test_waiters_are_woken(url, shop):
    """LG-12: an operation that another process submits is delivered long before the next poll."""
    slow = replace(QUICK, poll=30.0)
    listening = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN %'"
    )
    async with at_work(url, shop, slow), await Ledger.open(url, settings=slow) as other:
        with psycopg.connect(url, autocommit=True) as connection:
            await eventually(lambda: connection.execute(listening).fetchall())
        told = await other.submit(shop.target, METHOD, b"")
        began = time.monotonic()
        await until(other, told.id, OperationState.SUCCEEDED)

    assert time.monotonic() - began < 9


async def test_without_listening_polling_alone(url, shop, monkeypatch):
    """LG-12: if LISTEN is not available, as with PgBouncer, operations are delivered by polling alone."""
    monkeypatch.setattr(postgres.PostgresStore, "listen", lambda *_: None)
    async with at_work(url, shop, QUICK), await Ledger.open(url, settings=QUICK) as other:
        told = await other.submit(shop.target, METHOD, b"")
        await until(other, told.id, OperationState.SUCCEEDED)


async def test_listening_without_an_answer(network, url, monkeypatch):
    """LG-12: if the network loses the connection just before LISTEN, another one listens after a while."""
    async with network.open(url) as remote, opened_store(remote, QUICK) as store:
        connect, connected = store._pool.connect, 0

        async def connect_and_lose():
            nonlocal connected
            session = await connect()
            connected += 1
            if connected == 1:
                network.lose()
            return session

        monkeypatch.setattr(store._pool, "connect", connect_and_lose)
        store.listen(lambda _: None)
        async with asyncio.timeout(40):
            while not store.hears:
                await asyncio.sleep(0.02)

    assert connected > 1


@pytest.mark.parametrize("trouble", ["hang up", "cut"])
async def test_the_network_to_it_is_cut(network, url, shop, trouble):
    """LG-9, LG-12: if the network is cut, `submit` fails within its timeout; deliveries resume within 10 s."""
    async with (
        network.open(url) as remote,
        at_work(remote, shop, QUICK) as (ledger, _),
        await Ledger.open(url, settings=QUICK) as direct,
    ):
        await until(direct, (await ledger.submit(shop.target, METHOD, b"")).id, OperationState.SUCCEEDED)
        network.cut()
        if trouble == "hang up":
            network.hang_up()
        began = time.monotonic()
        with pytest.raises(LedgerUnavailableError, match="nothing was stored") as caught:
            await ledger.submit(shop.target, METHOD, b"")
        took = time.monotonic() - began
        told = await direct.submit(shop.target, METHOD, b"")
        await asyncio.sleep(1.5)
        before = (await direct.get(told.id)).state
        network.mend()
        began = time.monotonic()
        await until(direct, told.id, OperationState.SUCCEEDED)
        after = time.monotonic() - began
        stored = len(await direct.find())

    assert caught.value.stored is False
    assert took < QUICK.timeout + 2
    assert before in (OperationState.PENDING, OperationState.IN_PROGRESS)
    assert after < 10
    assert stored == 2


async def test_a_lost_commit_says_that_nobody_knows(network, url):
    """LG-9: if the answer to COMMIT is lost, the error says that the outcome is unknown; a key prevents duplicates."""
    async with network.open(url) as remote, await Ledger.open(remote, settings=QUICK) as ledger:
        await ledger.queue()
        [connection] = ledger.store._pool._free
        execute = connection.execute

        async def cutting(statement, *given, **how):
            if statement == "COMMIT":
                network.cut()
            return await execute(statement, *given, **how)

        connection.execute = cutting
        with pytest.raises(LedgerUnavailableError, match="same idempotency key; it is not known whether") as caught:
            await ledger.submit("t", "/m/m", b"", idempotency_key="k")
        network.mend()
        again = await ledger.submit("t", "/m/m", b"", idempotency_key="k")

        assert caught.value.stored is None
        assert len(await ledger.find()) == 1
        assert (await ledger.get(again.id)).idempotency_key == "k"


@pytest.mark.parametrize(
    "write",
    [
        lambda ledger, id_: ledger.record_failure(id_, "UNAVAILABLE"),
        lambda ledger, id_: ledger.replay(id_),
        lambda ledger, id_: ledger.resolve(id_),
        lambda ledger, id_: ledger.discard(id_),
        lambda ledger, id_: ledger.set_backoff(id_, 1.0),
        lambda ledger, _: ledger.prune(),
    ],
)
@pytest.mark.parametrize("trouble", ["hang up", "cut"])
async def test_a_write_without_an_answer(network, url, trouble, write, monkeypatch):
    """LG-9: if the answer to a write of any kind is lost, the error says that the outcome is unknown."""
    async with network.open(url) as remote, await Ledger.open(remote, settings=QUICK) as ledger:
        id_ = (await ledger.submit("t", "/m/m", b"")).id
        execute = psycopg.AsyncCursor.execute

        async def cutting(cursor, statement, *given, **how):
            if "DELETE" in str(statement) or statement == "COMMIT":
                network.cut()
                if trouble == "hang up":
                    asyncio.get_running_loop().call_later(0.2, network.hang_up)
            return await execute(cursor, statement, *given, **how)

        monkeypatch.setattr(psycopg.AsyncCursor, "execute", cutting)
        with pytest.raises(LedgerUnavailableError, match="not known whether it was stored") as caught:
            await write(ledger, id_)

    assert caught.value.stored is None


class Pooler(Network):
    """A pooler that loses the server once it has executed a statement, and tells the client in its own words."""

    def __init__(self, directory, mark, severity, state):
        super().__init__(directory)
        self._mark = mark
        fields = {"S": severity, "V": severity, "C": state, "M": "server conn crashed?"}
        text = b"".join(f"{kind}{value}\0".encode() for kind, value in fields.items()) + b"\0"
        self._error = b"E" + (len(text) + 4).to_bytes(4, "big") + text
        self.armed = False

    async def _carry(self, reader, writer):
        there, here = await asyncio.open_unix_connection(self._path)
        self._writers += [writer, here]
        sent = asyncio.Event()

        async def up():
            while some := await reader.read(65536):
                if self.armed and self._mark in some:
                    sent.set()
                here.write(some)

        async def down():
            while some := await there.read(65536):
                if sent.is_set():
                    writer.write(self._error)
                    writer.close()
                    here.close()
                    return
                writer.write(some)

        with contextlib.suppress(ConnectionError):
            await asyncio.gather(up(), down())


@pytest.mark.parametrize(
    ("mark", "write"),
    [
        (b"COMMIT", lambda ledger, _: ledger.submit("t", "/m/m", b"")),
        (b"COMMIT", lambda ledger, id_: ledger.record_failure(id_, "UNAVAILABLE")),
        (b"COMMIT", lambda ledger, id_: ledger.set_backoff(id_, 1.0)),
        (b"COMMIT", lambda ledger, id_: ledger.discard(id_)),
        (b"DELETE", lambda ledger, _: ledger.prune()),
        (b"INSERT", lambda ledger, _: ledger.pause("t")),
    ],
)
@pytest.mark.parametrize(("severity", "state"), [("FATAL", "08P01"), ("ERROR", "08P01"), ("FATAL", "57P01")])
async def test_a_pooler_that_loses_the_server(server, url, mark, write, severity, state):
    """LG-9: if a pooler says that it lost the server after COMMIT, it is unknown what was stored.

    PgBouncer sends an error of its own for that, with a code, and not only an end of the connection.
    """
    pooler = Pooler(server.directory, mark, severity, state)
    async with pooler.open(url) as remote, await Ledger.open(remote, settings=QUICK) as ledger:
        id_ = (await ledger.submit("t", "/m/m", b"")).id
        await asyncio.sleep(0.2)  # for the notification
        pooler.armed = True
        with pytest.raises(LedgerUnavailableError, match="not known whether it was stored") as caught:
            await write(ledger, id_)
        pooler.armed = False
        assert await ledger.find()

    assert caught.value.stored is None


async def test_what_is_said_while_backends_are_terminated(url):
    """LG-9: while connections end at random moments, no submission that was stored is said not to have been."""
    async with opened_store(url, replace(QUICK, timeout=5.0)) as store:
        failed = {}

        async def submit(first):
            for number in range(first, first + 150):
                try:
                    await submitting.submit(store, [submission(number, key=f"k{number}")])
                except LedgerUnavailableError as error:
                    failed[submission(number).id] = error

        async def terminate():
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
                while True:
                    await other.execute(f"{END} pid <> pg_backend_pid()")
                    await asyncio.sleep(random.uniform(0, 0.01))

        terminating = asyncio.ensure_future(terminate())
        await asyncio.gather(*(submit(1000 * task) for task in range(8)))
        terminating.cancel()
        await asyncio.gather(terminating, return_exceptions=True)
        stored = {operation.id for operation in await queries.find(store, Filter(), 5000)}

    assert failed
    assert {str(failed[id_]) for id_ in stored & failed.keys() if failed[id_].stored is not None} == set()
    unknown = [str(error) for error in failed.values() if error.stored is None]
    assert unknown
    assert all("submit again with the same idempotency key" in said for said in unknown)


@pytest.mark.slow
async def test_a_failover(shop):
    """LG-12: once the primary is back, nothing stays on the standby, whose connections can only read."""
    with servers.running() as primary:
        url = primary.database()
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        async with await Ledger.open(url):
            pass
        with servers.running(primary=primary) as standby:
            both = f"postgresql://postgres@/{name}?host={primary.directory},{standby.directory}"
            async with at_work(both, shop, QUICK) as (ledger, unary):
                await done(ledger, unary)
                primary.stop(signal.SIGQUIT)
                await asyncio.gather(*(ledger.queue() for _ in range(8)))
                with pytest.raises(LedgerUnavailableError, match=r"read-only.*target_session_attrs=read-write"):
                    await ledger.submit("t", "/m/m", b"")
                primary.start()
                await ledger.submit("t", "/m/m", b"")
                await done(ledger, unary, "b")

    assert shop.executed == {"a": 1, "b": 1}


async def test_connections_that_have_become_read_only(url, shop):
    """LG-12: a connection that answers that it is read-only is not used again, by submissions or deliveries."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    setting = f"ALTER DATABASE {name} SET default_transaction_read_only = {{}}"
    async with at_work(url, shop, QUICK) as (ledger, unary):
        await done(ledger, unary)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(setting.format("on"))
            other.execute(f"{END} pid <> pg_backend_pid()")
            await eventually(lambda: ledger._waking.deliveries.copy().pop()._state.troubled)
            await asyncio.gather(*(ledger.queue() for _ in range(8)))
            with pytest.raises(LedgerUnavailableError, match="read-only"):
                await ledger.submit("t", "/m/m", b"")
            other.execute("SET default_transaction_read_only = off")
            other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await ledger.submit("t", "/m/m", b"")
        await done(ledger, unary, "b")


async def test_a_database_in_sql_ascii(server, shop):
    """LG-1: the ledger works in a database that knows no encoding; a transaction without one is refused."""
    server.execute("DROP DATABASE IF EXISTS ascii")
    server.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    url = server.url("ascii")
    async with at_work(url, shop, QUICK) as (ledger, unary):
        operation = await done(ledger, unary)
        again = await ledger.submit("t", "/m/m", b"", order_key="größer", idempotency_key="k")
        known = await ledger.submit("t", "/m/m", b"", order_key="größer", idempotency_key="k")
        assert (operation.target, (await ledger.get(again.id)).order_key) == (shop.target, "größer")
        assert (known.id, known.new) == (again.id, False)
        async with await psycopg.AsyncConnection.connect(url) as theirs:
            with pytest.raises(OptionError, match="client_encoding=SQL_ASCII"):
                await ledger.submit("t", "/m/m", b"", within=theirs)
        async with await psycopg.AsyncConnection.connect(url, client_encoding="UTF8") as theirs:
            known = await ledger.submit("t", "/m/m", b"", idempotency_key="k", within=theirs)
        assert (known.id, known.new) == (again.id, False)


async def test_keys_too_long_for_an_index(url):
    """LG-9, LG-11: what an index of PostgreSQL cannot hold is refused with an error that says so."""
    async with await Ledger.open(url) as ledger:
        key = "".join(map(chr, random.Random(1).sample(range(0x4E00, 0x9FFF), 680)))
        await ledger.submit("t", "/m/m", b"", order_key=key)
        with pytest.raises(LedgerLimitError, match=r"too long together for an index of PostgreSQL.*2704"):
            await ledger.submit("t", f"/m/{key}{key}", b"", idempotency_key="k")
        assert len(await ledger.find()) == 1


async def test_callers_that_gave_up(network, url):
    """LG-10: if callers are cancelled while the network is cut, their requests time out; then the store works again."""
    async with network.open(url) as remote, await Ledger.open(remote, settings=QUICK) as ledger:
        await asyncio.gather(*(ledger.queue() for _ in range(4)))
        network.lose()
        callers = [asyncio.ensure_future(ledger.queue()) for _ in range(8)]
        await asyncio.sleep(0.1)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        await asyncio.sleep(2 * QUICK.timeout + 0.5)  # four hold a connection, and four more wait for one

        assert (await ledger.queue()).length == 0


@pytest.mark.slow
async def test_a_restart(server, url, shop):
    """LG-12: after PostgreSQL restarts, deliveries resume within 10 s."""
    async with at_work(url, shop, QUICK) as (ledger, unary):
        await done(ledger, unary)
        waiting = [(await ledger.submit(unary, Message(text=str(n)))).id for n in range(20)]
        await asyncio.to_thread(server.stop)
        try:
            with pytest.raises(LedgerUnavailableError, match="nothing was stored"):
                await ledger.submit(unary, Message())
            await asyncio.sleep(1)
        finally:
            await asyncio.to_thread(server.start)
        began = time.monotonic()
        for id_ in waiting:
            await until(ledger, id_, OperationState.SUCCEEDED)

    assert time.monotonic() - began < 10


@pytest.mark.parametrize("hours", [1, -1])
async def test_client_clocks_change_nothing(url, shop, monkeypatch, hours):
    """LG-12: a delivery makes its attempts on time even if the client's clock is wrong by an hour."""
    # Change only the library's clock: grpc's core reads the system clock, and changing that would distort every
    # deadline.
    monkeypatch.setattr(
        calling, "time", SimpleNamespace(time=lambda: time.time() + hours * 3600, monotonic=time.monotonic)
    )
    shop.script["*"] = [grpc.StatusCode.UNAVAILABLE]
    async with at_work(url, shop, replace(QUICK, policy="retry: 3, delay: 300ms")) as (ledger, unary):
        first, second = await ledger.attempts((await done(ledger, unary)).id)

    assert 0.3 <= second.started - first.ended < 5
    assert abs(first.ended - time.time()) < 60


async def test_a_role_with_a_schema_of_its_own(server):
    """LG-13: a role that may not create schemas can use a schema that was created for it."""
    url = server.database()
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    server.execute("CREATE ROLE tenant LOGIN")
    server.execute("CREATE SCHEMA grpc_backoff AUTHORIZATION tenant", name)

    async with await Ledger.open(server.url(name, "tenant")) as ledger:
        assert (await ledger.submit("t", "/m/m", b"")).new


async def test_a_full_disk(ledger, url):
    """LG-9: if the server reports that its disk is full, the error contains that reason."""
    execute(
        url,
        "CREATE FUNCTION grpc_backoff.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; "
        "CREATE TRIGGER full_disk BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION grpc_backoff.full()",
    )
    with pytest.raises(LedgerUnavailableError, match="No space left on device; nothing was stored"):
        await ledger.submit("t", "/m/m", b"")
    assert await ledger.find() == []


async def test_a_slow_migration(url, monkeypatch):
    """LG-13: a migration may take longer than a request's timeout."""
    slow = [*postgres.migrations("postgres"), "SELECT pg_sleep(1)"]
    monkeypatch.setattr(postgres, "migrations", lambda _: slow)
    store = open_store(url, replace(SETTINGS, timeout=0.5))
    other = open_store(url, replace(SETTINGS, timeout=0.5, lock_timeout=0.1))
    told = await asyncio.gather(store.migrate(apply=True), other.migrate(apply=True))
    await store.close()
    await other.close()
    assert sorted(told) == [(0, len(slow)), (len(slow), len(slow))]


async def test_a_migration_behind_a_lock(url, monkeypatch):
    """LG-2, LG-13: a migration waits at most `lock_timeout` for a table's lock, so writers never queue for longer."""
    async with opened_store(url, replace(SETTINGS, lock_timeout=0.3)) as store:
        more = "CREATE INDEX more ON grpc_backoff.operations (code)"
        known = [*postgres.migrations("postgres"), more]
        monkeypatch.setattr(postgres, "migrations", lambda _: known)
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("LOCK TABLE grpc_backoff.operations IN ROW EXCLUSIVE MODE")
            with pytest.raises(LedgerBusyError, match="nothing was written"):
                await store.migrate(apply=True)
        assert await store.migrate(apply=True) == (len(known) - 1, len(known))


async def test_many_losses_far_away(network, url):
    """LG-6: a hundred expired leases are recorded as lost within the request timeout, even over a slow network."""
    network.delay = 0.02
    async with opened_store(url) as near:
        await submitted(near, *range(100))
        await claimed(near, 100, lease=0.001)
        async with network.open(url) as remote:
            store = open_store(remote, replace(SETTINGS, timeout=2.0))
            told = await recording.lost(store, SHOP, policy_of, 1000)
            await store.close()
        queue = await counting.queue(near, None)
    assert {each.code for each in told} == {"LOST"}
    assert len({each.id for each in told if each.live}) == 100
    assert queue.counts == {OperationState.WAITING: 100}


async def test_what_is_due_and_locked(url, shop, monkeypatch):
    """LG-6, LG-12: while all due operations are locked, a delivery asks again at intervals, not in a tight loop."""
    claims = 0
    async with await Ledger.open(url, settings=QUICK) as ledger, aio.insecure_channel(shop.target) as channel:
        await channel.channel_ready()
        told = await ledger.submit(channel.target, METHOD, Message(text="a").SerializeToString())
        claim = claiming.claim

        async def counted(*given, **named):
            nonlocal claims
            claims += 1
            return await claim(*given, **named)

        monkeypatch.setattr(claiming, "claim", counted)
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM grpc_backoff.operations FOR UPDATE")
            async with delivering(ledger, channel):
                await asyncio.sleep(1)
                while_locked = claims
                await other.rollback()
                await until(ledger, told.id, OperationState.SUCCEEDED)

    assert 1 < while_locked <= 40


async def test_a_success_in_one_statement(url):
    """LG-2: a success for which nothing is to be decided is written as the transaction for all reports writes it."""
    written, numbers = [], itertools.count(1)
    for record in (recording._record_all, recording.record_ends):
        async with opened_store(url) as store:
            for failures in range(2):
                await submitted(store, next(numbers))
                for last in range(failures + 1):
                    [operation] = await claimed(store)
                    report = AttemptReport(operation.id, operation.lease_token, STEPS)
                    if last < failures:
                        await recording.record_ends(store, [report._replace(failure=FailedAttempt("UNAVAILABLE"))])
                        execute(url, "UPDATE {} SET next_attempt_at = now() WHERE state = 'waiting_for_retry'")
                told = await record(store, [report])
                with psycopg.connect(url) as connection:
                    text = (
                        "SELECT to_jsonb(o) - '{id,seq,due,created,began,last_attempted_at,finished}'::text[], "
                        "began = created, began = first.started, finished = last_attempted_at, "
                        "(SELECT array_agg((number, token, code, delay IS NULL, started <= ended, finished >= ended)) "
                        "FROM grpc_backoff.attempts WHERE operation_id = o.id) FROM grpc_backoff.operations o "
                        "JOIN grpc_backoff.attempts first ON operation_id = id AND number = 1 WHERE id = %s"
                    )
                    row = connection.execute(text, (operation.id,)).fetchone()
                written.append(([each._replace(id="") for each in told], row))

    assert written[:2] == written[2:]


@pytest.mark.parametrize("single", [True, False])
async def test_a_success_behind_a_lock(url, single):
    """LG-2: a success that waits for a lock gives up after `lock_timeout`, and nothing was written."""
    async with opened_store(url, replace(SETTINGS, lock_timeout=0.1)) as store:
        await submitted(store, 1)
        [operation] = await claimed(store)
        report = AttemptReport(operation.id, operation.lease_token, STEPS, response=None if single else b"")
        with locking(url):
            [told] = await recording.record_ends(store, [report])
        assert isinstance(told, LedgerBusyError)
        assert await queries.attempts(store, operation.id) == []


async def test_a_locked_row_that_is_set_aside(store, url):
    """LG-15: recording does not wait for the next operation of an order key if that is locked; it is taken up later."""
    first, second = await submitted(store, 1, 2, order_key="k")
    await order_keys.set_aside(store, SHOP, 10, 10)
    [operation] = await claimed(store)
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("SELECT 1 FROM grpc_backoff.operations WHERE id = %s FOR UPDATE", (second,))
        began = time.monotonic()
        [told] = await recording.record_ends(store, [AttemptReport(first, operation.lease_token, STEPS)])
        took = time.monotonic() - began
        await other.rollback()
    await order_keys.take_up(store)

    assert told.state is OperationState.SUCCEEDED
    assert took < SETTINGS.timeout * SOON / 2
    assert [each.id for each in await claimed(store)] == [second]


async def test_two_that_store_the_same_keys_in_another_order(store, url):
    """LG-2: a deadlock between two submits raises LedgerBusyError, and nothing is written."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await submitting.submit_within(store, other, [submission(1, key="b")])
        ours = asyncio.ensure_future(submitting.submit(store, [submission(2, key="a"), submission(3, key="b")]))
        await asyncio.sleep(0.3)  # shorter than the second after which the server looks for deadlocks
        await submitting.submit_within(store, other, [submission(4, key="a")])
        with pytest.raises(LedgerBusyError, match="a deadlock with another transaction; nothing was written"):
            await ours
    assert [operation.id for operation in await queries.find(store, Filter(), 9)] == [
        submission(1).id,
        submission(4).id,
    ]


async def test_a_key_is_locked_until_the_transaction_ends(ledger, url):
    """LG-15: operations of one order key are numbered in the order in which their transactions commit."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        first = await ledger.submit("t", "/m/m", b"", order_key="a", within=connection)
        second = asyncio.ensure_future(ledger.submit("t", "/m/m", b"", order_key="a"))
        other = await ledger.submit("t", "/m/m", b"", order_key="b")
        await asyncio.sleep(0.2)
        waits = not second.done()
        await connection.commit()
        found = [each.id for each in await ledger.find()]
        await second
        text, given = ledger.statement(ledger.prepared("t", "/m/m", b"", order_key="a", not_before=2e9))
        await connection.execute(text, given)
        await connection.commit()
        last = (await ledger.find(newest_first=True, limit=1))[0]

    assert waits
    assert found[:2] == [first.id, other.id], "the second may be stored by now"
    assert (last.order_key, last.next_attempt_at) == ("a", 2e9)


async def _waiting_for_locks(url, count):
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as connection:
        await eventually(lambda: connection.execute(waits).fetchone() == (count,))


@pytest.mark.parametrize("kind", [psycopg.Connection, psycopg.AsyncConnection])
async def test_cancelled_within_a_transaction(ledger, url, kind):
    """LG-9: once a submit is cancelled, nothing goes on using the caller's connection; it can be rolled back."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await ledger.submit(SHOP, METHOD, b"a", order_key="k", within=other)  # which locks the key
        mine = await did(kind.connect(url))
        waits = asyncio.ensure_future(ledger.submit(SHOP, METHOD, b"b", order_key="k", within=mine))
        await _waiting_for_locks(url, 1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        status = mine.info.transaction_status
        await other.rollback()
        await did(mine.rollback())
        await did(mine.close())

    assert status is TransactionStatus.INERROR
    assert await ledger.find() == []


async def test_many_cancelled_within_a_transaction(ledger, url):
    """LG-9: so are those that wait for the key beside more than the event loop has threads, cancelled twice."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    async with await psycopg.AsyncConnection.connect(url) as other:
        await ledger.submit(SHOP, METHOD, b"a", order_key="k", within=other)  # which locks the key
        mine = [psycopg.Connection.connect(url) for _ in range(4)]
        waits = [asyncio.ensure_future(ledger.submit(SHOP, METHOD, b"b", order_key="k", within=each)) for each in mine]
        await _waiting_for_locks(url, 4)
        for _ in range(2):
            for waiting in waits:
                waiting.cancel()
            await asyncio.sleep(0)
        ended, _ = await asyncio.wait(waits, timeout=30)
        statuses = [each.info.transaction_status for each in mine]
        await other.rollback()
        for each in mine:
            each.close()

    assert len(ended) == 4
    assert all(waiting.cancelled() for waiting in waits)
    assert statuses == [TransactionStatus.INERROR] * 4


async def test_dead_tuples_are_swept(url, monkeypatch):
    """LG-11: many dead tuples are removed without waiting for autovacuum; if they must stay, `sweep` says so.

    The table is analyzed as well, because claims with old counts sort all that is due.
    """
    monkeypatch.setattr(postgres, "_UNTIDY", 5)
    dead = "SELECT sum(n_dead_tup), count(last_analyze) FROM pg_stat_all_tables WHERE schemaname = 'grpc_backoff'"
    async with await Ledger.open(url) as ledger:
        for table in ("operations", "attempts"):  # or autovacuum may be first, or hold a table that `sweep` then skips
            execute(url, f"ALTER TABLE grpc_backoff.{table} SET (autovacuum_enabled = off)")
        assert await ledger.store.sweep() is False
        with psycopg.connect(url) as reader:
            reader.execute("SELECT txid_current()")
            with psycopg.connect(url, autocommit=True) as connection:
                told = await ledger.submit_many([ledger.prepared("t", "/m/m", b"") for _ in range(50)])
                for _ in range(3):
                    connection.execute("UPDATE grpc_backoff.operations SET details = 'new'")
                connection.execute("SELECT pg_stat_force_next_flush()")
                connection.execute("SELECT 1")
                assert await ledger.store.sweep() is True

        async def swept():
            return await ledger.store.sweep() is False

        await eventually(swept)  # once the server has seen the end of the reader
        with psycopg.connect(url, autocommit=True) as connection:
            [(left, analyzed)] = connection.execute(dead).fetchall()
        assert len(await ledger.find()) == len(told)

    assert left == 0
    assert analyzed > 0


async def test_whether_operations_wait_is_read_from_an_index(url):
    """LG-11: `waiting` does not read the operations that have ended, even if the planner expects others among them."""
    async with await Ledger.open(url) as ledger:
        told = await ledger.submit_many([ledger.prepared("t", "/m/m", b"") for _ in range(2000)])
        await ledger.discard(*(each.id for each in told[:-200]))
        asked, rows = [], ledger.store.rows

        async def noted(text, *given):
            asked.append(text.replace(":limit", "1"))
            return await rows(text, *given)

        ledger.store.rows = noted
        assert await counting.waiting(ledger.store, 1) == 1
    with psycopg.connect(url) as connection:
        connection.execute("ANALYZE grpc_backoff.operations")
        plan = str(connection.execute(f"EXPLAIN {asked[0]}").fetchall())

    assert "operations_due" in plan
    assert "Seq Scan" not in plan


async def test_a_sweep_that_helps_is_not_in_vain(url, monkeypatch):
    """LG-11: while VACUUM runs, other tuples die; a sweep is in vain only if most of those that it found are left."""
    monkeypatch.setattr(postgres, "_UNTIDY", 5)
    found = iter([(100, False), (40, False), (100, False), (60, False)])
    async with await Ledger.open(url) as ledger:

        async def untidiness(_text, _params, _access):
            return [next(found)]

        monkeypatch.setattr(ledger.store, "rows", untidiness)
        left = [await ledger.store.sweep() for _ in range(2)]
        monkeypatch.undo()
    assert left == [False, True]


@pytest.fixture
async def looked(url):
    """A store that has looked for the first due operation, of which there was none."""
    async with opened_store(url) as opened:
        await claiming.find_floor(opened, SHOP)
        yield opened


OLD = "UPDATE {} SET next_attempt_at = next_attempt_at - interval '1 minute'"


async def test_claims_begin_at_the_first_that_is_due(url, looked):
    """LG-6: claims do not step over what ended before; what becomes due in that past is found after another look."""
    await submitted(looked, 1)
    execute(url, OLD)
    seen = await claimed(looked, 5), await claiming.next_due(looked, SHOP)
    await claiming.find_floor(looked, SHOP)

    assert seen == ([], None)
    assert await claiming.next_due(looked, SHOP) == 0.0
    assert len(await claimed(looked, 5)) == 1


async def test_an_old_lease_that_expires(url, looked):
    """LG-6: a loss is found although the operation was claimed before the last look."""
    await submitted(looked, 1)
    execute(url, OLD)
    await claiming.find_floor(looked, SHOP)
    [taken] = await claimed(looked, 5, lease=0.05)
    await claiming.find_floor(looked, SHOP)
    await asyncio.sleep(0.1)

    assert [each.id for each in await recording.lost(looked, SHOP, policy_of, 5, first=True)] == [taken.id]


@pytest.mark.parametrize("kind", ["the next of its key", "another spelling"])
async def test_what_this_process_makes_due_in_the_past(url, looked, kind):
    """LG-6, LG-10, LG-15: an operation that is taken up or retargeted is claimed at once, whenever it became due.

    That also holds if a look is under way meanwhile.
    """
    target = SHOP if kind == "the next of its key" else f"dns:///{SHOP}"
    await submitted(looked, 1, target=target, order_key="a")
    execute(url, OLD)
    if target == SHOP:  # as if the operation before it had just succeeded
        execute(url, "UPDATE {} SET claimed_from = next_attempt_at, next_attempt_at = NULL")
    rows = looked.rows

    async def slow(*given, **named):
        answer = await rows(*given, **named)
        looked.rows = rows
        await order_keys.take_up(looked)
        await manual.retarget(looked, SHOP, SHOP, 5, due=True)
        return answer

    looked.rows = slow
    await claiming.find_floor(looked, SHOP)

    assert len(await claimed(looked, 5)) == 1


async def test_claims_are_hot_updates(url):
    """LG-6: claims, and extensions of leases, change no indexed column, so that PostgreSQL need not touch indexes."""
    async with await Ledger.open(url) as ledger:
        await ledger.submit_many([ledger.prepared("t", "/m/m", b"") for _ in range(5)])
        taken = await claiming.claim(ledger.store, "t", 5, "me", 30.0)
        await claiming.extend(ledger.store, [Lease(each.id, each.lease_token) for each in taken], 60.0)
    counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'operations'"
    with psycopg.connect(url, autocommit=True) as connection:
        # A server process reports its numbers when it ends.
        await eventually(lambda: connection.execute(counted).fetchone() == (10, 10))


async def test_sql_on_the_page(url):
    """LG-1, LG-3, LG-5: the page about the ledger shows every state, and SQL functions as the database has them."""
    page = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text("utf-8")
    section = page.partition("## The states of an operation")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [state.value for state in OperationState]
    block = section.partition("```sql\n")[2].partition("```")[0]
    _, query, *functions = re.sub(r"--.*", "", block).split("grpc_backoff.")
    shown = {}
    for function in functions:
        name, arguments, result = re.fullmatch(r"(\w+)\((.*?)\)\s*RETURNS (.*)", function.strip(), re.DOTALL).groups()
        shown[name] = (" ".join(arguments.split()), " ".join(result.split()).replace("timestamptz", LONG))
    async with await Ledger.open(url):
        pass
    async with await psycopg.AsyncConnection.connect(url) as connection:
        assert query.startswith("readiness;")
        await connection.execute(block.partition(";")[0])
        for name, (arguments, result) in shown.items():
            cursor = await connection.execute(
                "SELECT pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc "
                "WHERE proname = %s AND pronamespace = 'grpc_backoff'::regnamespace",
                [name],
            )
            assert await cursor.fetchall() == [(arguments.replace("timestamptz", LONG), result)]
    assert set(shown) == {"delay", "next_attempt_at", "ready"}


async def test_a_transaction_that_the_server_ends(url, caplog):
    """LG-12: if the server ends the connection of a transaction, the error is raised; psycopg logs no second one."""
    async with await Ledger.open(url, settings=replace(QUICK, lock_timeout=20.0, timeout=20.0)) as ledger:
        waiting = "datname = current_database() AND wait_event_type = 'Lock'"
        with locking(url), psycopg.connect(url, autocommit=True) as other:
            submitting = asyncio.ensure_future(ledger.submit("t", "/m/m", b""))
            await eventually(lambda: other.execute(f"SELECT 1 FROM pg_stat_activity WHERE {waiting}").fetchall())

            def end():
                other.execute(f"{END} {waiting}")
                return submitting.done()

            await eventually(end)
            with pytest.raises(LedgerUnavailableError) as caught:
                await submitting

    assert caught.value.stored is False
    assert [record for record in caplog.records if record.name.startswith("psycopg")] == []
