"""What only PostgreSQL's store does: a server that goes away, a network that is cut, locks, and waking others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import time
from dataclasses import replace
from types import SimpleNamespace

import grpc
import psycopg
import pytest

from grpc_backoff import OptionError, aio
from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.ledger import (
    Filter,
    Ledger,
    LedgerBusyError,
    LedgerSchemaError,
    LedgerUnavailableError,
    OperationState,
    postgres,
)
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.schema import Migration
from grpc_backoff.policy.presets import RETRY
from tests.echo import Message, serving
from tests.ledger import server as servers
from tests.ledger.conftest import SETTINGS, open_store, submission
from tests.ledger.shop import Shop
from tests.ledger.test_delivery import delivering, until

STEPS = RETRY["steps"]
QUICK = replace(SETTINGS, poll=0.2, timeout=1.0, policy="max_attempts: unlimited, delay: 50ms", lease=2.0, grace=1.0)
METHOD = "/echo.v1.Echo/Unary"


@pytest.fixture
def url(server):
    return server.database()


class Network:
    """A TCP proxy before the server's socket that can swallow everything, as a cut cable does, or hang up."""

    def __init__(self, directory):
        self._path = str(directory / ".s.PGSQL.5432")
        self._through = asyncio.Event()
        self._through.set()
        self._writers = []
        self._tasks = set()
        self.delay = 0.0
        """Seconds that everything takes, in each direction."""

    async def _accept(self, reader, writer):
        ours, through = await asyncio.open_unix_connection(self._path), self._through
        self._writers += [writer, ours[1]]
        for source, sink in ((reader, ours[1]), (ours[0], writer)):
            task = asyncio.ensure_future(self._pass(source, sink, through))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source, sink, through):
        with contextlib.suppress(ConnectionError):
            while some := await source.read(65536):
                await through.wait()
                await asyncio.sleep(self.delay)
                sink.write(some)
        sink.close()

    def url(self, port, url):
        """Return the URL of a database, by way of this proxy."""
        return f"postgresql://postgres@127.0.0.1:{port}/{psycopg.conninfo.conninfo_to_dict(url)['dbname']}"

    def cut(self):
        self._through.clear()

    def mend(self):
        self._through.set()

    def lose(self):
        """Swallow what goes over the present connections, for good; new ones pass."""
        self._through.clear()
        self._through = asyncio.Event()
        self._through.set()

    def hang_up(self):
        for writer in self._writers:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        self.mend()
        self.hang_up()
        server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_lock_acquired_released_timed_out(url, settings):
    """LG-2, seed 001: a row's lock is waited for, then had; not in time, the error says that nothing was written."""
    store = open_store(url, replace(settings, lock_timeout=0.3))
    await store.migrate(apply=True)
    await store.submit([submission(1), submission(2)])
    reports = [AttemptReport(submission(n).id, None, STEPS, FailedAttempt("UNAVAILABLE"), draw=0.5) for n in (1, 2)]
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("SELECT 1 FROM grpc_backoff.operations WHERE id = %s FOR UPDATE", (reports[0].id,))
        first, second = await store.record(reports)
        waits = asyncio.ensure_future(store.record(reports[:1]))
        await asyncio.sleep(0.1)
        await other.rollback()
        [then] = await waits

    assert isinstance(first, LedgerBusyError)
    assert "for 0.3 s; nothing was written" in str(first)
    assert (second.state, second.attempts) == (OperationState.WAITING, 1)
    assert (then.state, then.attempts) == (OperationState.WAITING, 1)
    await store.close()


async def test_a_locked_row_is_passed_over(url, settings):
    """LG-6: claiming waits for nobody: a row that somebody holds is left to them."""
    store = open_store(url, settings)
    await store.migrate(apply=True)
    await store.submit([submission(1), submission(2)])
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("SELECT 1 FROM grpc_backoff.operations WHERE id = %s FOR UPDATE", (submission(1).id,))
        claimed = await store.claim("shop:443", 10, "me", 30.0)
        await other.rollback()

    assert [operation.id for operation in claimed] == [submission(2).id]
    await store.close()


async def did(method, *given, **how):
    answer = method(*given, **how)
    return await answer if asyncio.iscoroutine(answer) else answer


@pytest.mark.parametrize("kind", [psycopg.AsyncConnection, psycopg.Connection])
async def test_in_the_callers_transaction(url, kind):
    """LG-9: inside a psycopg transaction, async or not: committed it is there, rolled back it never was."""
    async with await Ledger.open(url) as ledger:
        mine = await did(kind.connect, url)
        kept = await ledger.submit("t", "/m/m", b"a", idempotency_key="k", within=mine)
        again = await ledger.submit("t", "/m/m", b"a", idempotency_key="k", within=mine)
        assert await ledger.find() == []
        await did(mine.commit)
        await ledger.submit("t", "/m/m", b"b", within=mine)
        await did(mine.rollback)
        await did(mine.close)

        assert [operation.id for operation in await ledger.find()] == [kept.id]
        assert (again.id, again.new) == (kept.id, False)
        with pytest.raises(TypeError, match="expected a psycopg connection"):
            await ledger.submit("t", "/m/m", b"d", within=object())


@pytest.mark.parametrize("kind", [psycopg.AsyncConnection, psycopg.Connection])
async def test_a_connection_of_any_kind(url, kind):
    """LG-9: rows as dicts and cursors with `$1` parameters are the caller's own affair."""
    raw = psycopg.AsyncRawCursor if kind is psycopg.AsyncConnection else psycopg.RawCursor
    how = {"row_factory": psycopg.rows.dict_row, "cursor_factory": raw}
    async with await Ledger.open(url) as ledger:
        mine = await did(kind.connect, url, **how)
        kept = await ledger.submit("t", "/m/m", b"a", idempotency_key="k", within=mine)
        again = await ledger.submit("t", "/m/m", b"a", idempotency_key="k", within=mine)
        await did(mine.commit)
        await did(mine.close)

        assert [operation.id for operation in await ledger.find()] == [kept.id]
        assert (again.id, again.new) == (kept.id, False)


async def test_sql_for_any_driver(url):
    """LG-9: the statement and its parameters store an operation in anybody's transaction, with `$1` parameters."""
    async with await Ledger.open(url) as ledger:
        prepared = ledger.prepared("t", "/m/m", b"a", idempotency_key="k")
        statement, values = ledger.statement(prepared)
        async with await psycopg.AsyncConnection.connect(url, cursor_factory=psycopg.AsyncRawCursor) as other:
            await other.execute(statement, values)

        assert (await ledger.get(prepared.id)).request == b"a"


async def listening(url):
    """Wait until somebody listens in a database; at most ten seconds."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(500):
            cursor = await connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' "
                "AND query LIKE 'LISTEN %'"
            )
            if await cursor.fetchall():
                return
            await asyncio.sleep(0.02)
    raise AssertionError("nobody listens")


async def test_waiters_are_woken(url):
    """LG-12: what another process submits is delivered long before this one would have polled."""
    shop = Shop()
    slow = replace(QUICK, poll=30.0)
    async with (
        serving(shop) as port,
        await Ledger.open(url, settings=slow) as ledger,
        await Ledger.open(url, settings=slow) as other,
        aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        delivering(ledger, channel),
    ):
        await listening(url)
        told = await other.submit(channel.target, METHOD, b"")
        began = time.monotonic()
        await until(other, told.id, OperationState.SUCCEEDED)

    assert time.monotonic() - began < 9


async def test_without_listening_polling_alone(url, monkeypatch):
    """LG-12: where LISTEN does not pass, as behind PgBouncer, polling alone delivers."""
    from grpc_backoff.ledger.postgres import PostgresStore

    monkeypatch.setattr(PostgresStore, "listen", lambda *_: None)
    shop = Shop()
    async with (
        serving(shop) as port,
        await Ledger.open(url, settings=QUICK) as ledger,
        await Ledger.open(url, settings=QUICK) as other,
        aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        delivering(ledger, channel),
    ):
        told = await other.submit(channel.target, METHOD, b"")
        await until(other, told.id, OperationState.SUCCEEDED)


@pytest.mark.parametrize("trouble", ["hang up", "cut"])
async def test_the_network_to_it_is_cut(server, url, trouble):
    """LG-9, LG-12: `submit` fails in its time and says that nothing was stored; deliveries resume within 10 s after."""
    shop, network = Shop(), Network(server.directory)
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    async with (
        network.open() as port,
        serving(shop) as shop_port,
        await Ledger.open(f"postgresql://postgres@127.0.0.1:{port}/{database}", settings=QUICK) as ledger,
        await Ledger.open(url, settings=QUICK) as direct,
        aio.insecure_channel(f"127.0.0.1:{shop_port}") as channel,
        delivering(ledger, channel),
    ):
        await until(direct, (await ledger.submit(channel.target, METHOD, b"")).id, OperationState.SUCCEEDED)
        network.cut()
        if trouble == "hang up":
            network.hang_up()
        began = time.monotonic()
        with pytest.raises(LedgerUnavailableError, match="nothing was stored") as caught:
            await ledger.submit(channel.target, METHOD, b"")
        took = time.monotonic() - began
        told = await direct.submit(channel.target, METHOD, b"")
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


async def test_a_lost_commit_says_that_nobody_knows(server, url):
    """LG-9: where the answer to COMMIT is lost nobody claims that nothing was stored; the key makes it safe."""
    network = Network(server.directory)
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    async with (
        network.open() as port,
        await Ledger.open(f"postgresql://postgres@127.0.0.1:{port}/{database}", settings=QUICK) as ledger,
    ):
        await ledger.queue()
        [connection] = ledger.store._free
        execute = connection.execute

        async def cutting(statement, *given, **how):
            if statement == "COMMIT":
                network.cut()
            return await execute(statement, *given, **how)

        connection.execute = cutting
        with pytest.raises(LedgerUnavailableError, match="not known whether it was stored") as caught:
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
async def test_a_write_without_an_answer(server, url, trouble, write, monkeypatch):
    """LG-9: where the answer to any write is lost nobody claims that nothing was stored."""
    network = Network(server.directory)
    async with network.open() as port, await Ledger.open(network.url(port, url), settings=QUICK) as ledger:
        id_ = (await ledger.submit("t", "/m/m", b"")).id
        execute = psycopg.AsyncConnection.execute
        command = psycopg.AsyncConnection._exec_command

        def cut():
            network.cut()
            if trouble == "hang up":
                asyncio.get_running_loop().call_later(0.2, network.hang_up)

        async def cutting(connection, statement, *given, **how):
            if "DELETE" in str(statement):
                cut()
            return await execute(connection, statement, *given, **how)

        def cutting_commit(connection, text, *given, **how):
            if text == b"COMMIT":
                cut()
            return command(connection, text, *given, **how)

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", cutting)
        monkeypatch.setattr(psycopg.AsyncConnection, "_exec_command", cutting_commit)
        with pytest.raises(LedgerUnavailableError, match="not known whether it was stored") as caught:
            await write(ledger, id_)

    assert caught.value.stored is None


async def test_callers_that_gave_up(server, url):
    """LG-10: what a cancelled caller left on a network that is cut ends in its time, and the store serves others."""
    network = Network(server.directory)
    async with network.open() as port, await Ledger.open(network.url(port, url), settings=QUICK) as ledger:
        await asyncio.gather(*(ledger.queue() for _ in range(4)))
        network.lose()
        callers = [asyncio.ensure_future(ledger.queue()) for _ in range(8)]
        await asyncio.sleep(0.1)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        await asyncio.sleep(2 * QUICK.timeout + 0.5)  # four have a connection, the others then a place

        assert (await ledger.queue()).length == 0


@pytest.mark.parametrize("work", ["submit", "queue", "record"])
async def test_connections_that_the_server_has_ended(server, url, work):
    """LG-12: what is asked first after the server ended its connections is asked once more, on a new one."""
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    async with await Ledger.open(url, settings=QUICK) as ledger:
        id_ = (await ledger.submit("t", "/m/m", b"")).id
        for _ in range(3):
            await asyncio.gather(*(ledger.queue() for _ in range(4)))
            assert len(ledger.store._free) > 1
            server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
            await asyncio.sleep(0.2)
            if work == "submit":
                await ledger.submit("t", "/m/m", b"")
            elif work == "queue":
                await ledger.queue()
            else:
                await ledger.store.set_backoff(id_, 1.0)
            assert len(ledger.store._free) == 1


async def test_submit_waits_for_a_lock_no_longer_than_it_may(url):
    """LG-2: behind a transaction that has the same key, `submit` says that it is busy; nothing was written."""
    async with (
        await Ledger.open(url, settings=replace(QUICK, lock_timeout=0.3, timeout=20.0)) as ledger,
        await psycopg.AsyncConnection.connect(url) as other,
    ):
        kept = await ledger.submit("t", "/m/m", b"", idempotency_key="k", within=other)
        with pytest.raises(LedgerBusyError, match=r"for 0\.3 s; nothing was written"):
            await ledger.submit("t", "/m/m", b"", idempotency_key="k")
        await other.commit()
        again = await ledger.submit("t", "/m/m", b"", idempotency_key="k")

    assert (again.id, again.new) == (kept.id, False)


@pytest.mark.slow
async def test_a_restart(server):
    """LG-12: PostgreSQL is restarted, LISTEN is lost with it: deliveries resume within 10 s of its return."""
    shop = Shop()
    with servers.running() as own:
        url = own.database()
        async with (
            serving(shop) as port,
            await Ledger.open(url, settings=QUICK) as ledger,
            aio.insecure_channel(f"127.0.0.1:{port}") as channel,
            delivering(ledger, channel),
        ):
            first = await ledger.submit(channel.target, METHOD, b"")
            await until(ledger, first.id, OperationState.SUCCEEDED)
            waiting = [
                (await ledger.submit(channel.target, METHOD, Message(text=str(n)).SerializeToString())).id
                for n in range(20)
            ]
            await asyncio.to_thread(own.stop)
            with pytest.raises(LedgerUnavailableError, match="nothing was stored"):
                await ledger.submit(channel.target, METHOD, b"")
            await asyncio.sleep(1)
            await asyncio.to_thread(own.start)
            began = time.monotonic()
            for id_ in waiting:
                await until(ledger, id_, OperationState.SUCCEEDED)

        assert time.monotonic() - began < 10


@pytest.mark.parametrize("hours", [1, -1])
async def test_client_clocks_change_nothing(url, monkeypatch, hours):
    """LG-12: a client whose clock is wrong by an hour delivers at the same times as any other."""
    from grpc_backoff.ledger import delivery

    # Only for the library: grpc's core reads the real clock, and would take every deadline for past or far off.
    monkeypatch.setattr(
        delivery, "time", SimpleNamespace(time=lambda: time.time() + hours * 3600, monotonic=time.monotonic)
    )
    shop = Shop()
    shop.script["*"] = [grpc.StatusCode.UNAVAILABLE]
    async with (
        serving(shop) as port,
        await Ledger.open(url, settings=replace(QUICK, policy="retry: 3, delay: 300ms")) as ledger,
        aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        delivering(ledger, channel),
    ):
        told = await ledger.submit(channel.target, METHOD, b"")
        await until(ledger, told.id, OperationState.SUCCEEDED)
        first, second = await ledger.attempts(told.id)

    assert 0.3 <= second.started - first.ended < 5
    assert abs(first.ended - time.time()) < 60


async def test_a_wrong_password(server):
    """LG-9: a password that is wrong is one clear error, which does not show it."""
    server.execute("CREATE ROLE clerk LOGIN PASSWORD 'right'")
    hba = server.directory / "data" / "pg_hba.conf"
    before = hba.read_text()
    hba.write_text(f"local all clerk scram-sha-256\n{before}")
    try:
        server.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(0.3)
        url = f"postgresql://clerk:hunter2@/postgres?host={server.directory}"
        with pytest.raises(LedgerUnavailableError, match="password authentication failed") as caught:
            await Ledger.open(url)
    finally:
        hba.write_text(before)
        server.execute("SELECT pg_reload_conf()")

    assert "hunter2" not in str(caught.value)
    assert "nothing was stored" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter%zz2@h/db",
        "postgresql://u:hun/ter2@h/db",
        "postgresql://u:hun@ter2@h/db",
        "postgresql://u:hun?ter2@h/db",
        "postgresql://h:hun,ter2/db",
        "host=h user=u password=hunter2",
        "password = hunter2",
        "mysql://u:hunter2@h/db",
    ],
)
async def test_a_password_in_a_url_that_is_wrong(url, monkeypatch, tmp_path):
    """LG-11: whatever is wrong with a URL, no part of its password is shown, and no file is named after it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises((LedgerUnavailableError, OptionError)) as caught:
        await Ledger.open(url)

    assert not [part for part in ("hun", "ter2") if part in str(caught.value)], str(caught.value)
    assert [*tmp_path.iterdir()] == []


async def test_a_role_with_a_schema_of_its_own(server):
    """LG-13: a role that may not make schemas is served by one that was made for it."""
    url = server.database()
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    server.execute("CREATE ROLE tenant LOGIN")
    server.execute("CREATE SCHEMA grpc_backoff AUTHORIZATION tenant", name)

    async with await Ledger.open(server.url(name, "tenant")) as ledger:
        assert (await ledger.submit("t", "/m/m", b"")).new


async def test_nobody_there(tmp_path):
    """LG-9: a server that is not there is one clear error."""
    with pytest.raises(LedgerUnavailableError, match="cannot connect"):
        await Ledger.open(f"postgresql://postgres@/postgres?host={tmp_path}")
    with pytest.raises(LedgerUnavailableError, match="database URL"):
        await Ledger.open("postgresql://postgres@/postgres?nonsense=1")


async def test_a_read_only_database(server, url):
    """LG-9: a standby, or a database that is set read-only, says so."""
    async with await Ledger.open(url) as ledger:
        await ledger.submit("t", "/m/m", b"")
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")

    async with await Ledger.open(url) as ledger:
        with pytest.raises(LedgerUnavailableError, match="read-only transaction; nothing was stored"):
            await ledger.submit("t", "/m/m", b"")
        assert len(await ledger.find()) == 1


async def test_a_full_disk(server, url):
    """LG-9: where the server says that its disk is full, so does the error."""
    async with await Ledger.open(url) as ledger:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        server.execute(
            "CREATE FUNCTION grpc_backoff.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
            name,
        )
        server.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON grpc_backoff.operations FOR EACH ROW "
            "EXECUTE FUNCTION grpc_backoff.full()",
            name,
        )
        with pytest.raises(LedgerUnavailableError, match="No space left on device; nothing was stored"):
            await ledger.submit("t", "/m/m", b"")
        assert await ledger.find() == []


async def test_a_newer_schema(server, url):
    """LG-13: tables of a newer library are refused, and left as they are; so are older ones with `migrate=False`."""
    with pytest.raises(LedgerSchemaError, match="run `grpc-backoff ledger migrate`"):
        await Ledger.open(url, migrate=False)
    async with await Ledger.open(url):
        pass
    server.execute("UPDATE grpc_backoff.schema SET version = 99", psycopg.conninfo.conninfo_to_dict(url)["dbname"])

    with pytest.raises(LedgerSchemaError, match=r"schema=99: expected at most 3"):
        await Ledger.open(url)


async def test_ten_that_migrate_at_once(url):
    """LG-13: migrations are applied under a lock: of ten that open an empty database at once, each finds its tables."""
    ledgers = await asyncio.gather(*(Ledger.open(url) for _ in range(10)))
    for ledger in ledgers:
        await ledger.submit("t", "/m/m", b"")
    assert len(await ledgers[0].find(Filter())) == 10
    for ledger in ledgers:
        await ledger.close()


async def test_a_slow_migration(url, monkeypatch):
    """LG-13: a migration may take longer than a request: an index of many rows does, however often one tries."""
    slow = [*postgres.migrations("postgres"), Migration(99, "slow", "SELECT pg_sleep(1)")]
    monkeypatch.setattr(postgres, "migrations", lambda _: slow)
    store = open_store(url, replace(SETTINGS, timeout=0.5))
    other = open_store(url, replace(SETTINGS, timeout=0.5, lock_timeout=0.1))
    told = await asyncio.gather(store.migrate(apply=True), other.migrate(apply=True))
    await store.close()
    await other.close()
    assert sorted(told) == [(0, 99), (99, 99)]


async def test_a_migration_behind_a_lock(url, monkeypatch):
    """LG-2, LG-13: a migration waits for a table's lock as others do, lest all who write wait behind it."""
    store = open_store(url, replace(SETTINGS, lock_timeout=0.3))
    await store.migrate(apply=True)
    more = "CREATE INDEX more ON grpc_backoff.operations (code)"
    known = [*postgres.migrations("postgres"), Migration(99, "more", more)]
    monkeypatch.setattr(postgres, "migrations", lambda _: known)
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("LOCK TABLE grpc_backoff.operations IN ROW EXCLUSIVE MODE")
        with pytest.raises(LedgerBusyError, match="nothing was written"):
            await store.migrate(apply=True)
    assert await store.migrate(apply=True) == (3, 99)
    await store.close()


async def test_many_losses_far_away(server, url):
    """LG-6: leases that have ended are recorded as lost, also where a round trip for each would take too long."""
    network = Network(server.directory)
    network.delay = 0.02
    near = open_store(url)
    await near.migrate(apply=True)
    await near.submit([submission(n) for n in range(100)])
    await near.claim("shop:443", 100, "dead", 0.001)
    async with network.open() as port:
        store = open_store(network.url(port, url), replace(SETTINGS, timeout=2.0))
        told = await store.lost(None, lambda _: STEPS, random.Random(1), 1000)
        await store.close()
    assert {each.code for each in told} == {"LOST"}
    assert len({each.id for each in told if each.live}) == 100
    assert (await near.queue(None)).counts == {OperationState.WAITING: 100}
    await near.close()


async def test_what_is_due_and_locked(url):
    """LG-6, LG-12: while somebody else has the lock of what is due, it is asked for again in a while, not in a loop."""
    shop, claims = Shop(), 0
    async with (
        serving(shop) as port,
        await Ledger.open(url, settings=QUICK) as ledger,
        aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        await channel.channel_ready()
        told = await ledger.submit(channel.target, METHOD, Message(text="a").SerializeToString())
        claim = ledger.store.claim

        async def counted(*given):
            nonlocal claims
            claims += 1
            return await claim(*given)

        ledger.store.claim = counted
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM grpc_backoff.operations FOR UPDATE")
            async with delivering(ledger, channel):
                await asyncio.sleep(1)
                while_locked = claims
                await other.rollback()
                await until(ledger, told.id, OperationState.SUCCEEDED)

    assert 1 < while_locked <= 40


async def test_two_that_store_the_same_keys_in_another_order(url):
    """LG-2: a deadlock is somebody else's lock, too: `LedgerBusyError`, and nothing was written."""
    store = open_store(url)
    await store.migrate(apply=True)
    async with await psycopg.AsyncConnection.connect(url) as other:
        await store.submit_within(other, [submission(1, key="b")])
        ours = asyncio.ensure_future(store.submit([submission(2, key="a"), submission(3, key="b")]))
        await asyncio.sleep(0.3)  # the server looks for deadlocks after a second of waiting
        await store.submit_within(other, [submission(4, key="a")])
        with pytest.raises(LedgerBusyError, match="a deadlock with another transaction; nothing was written"):
            await ours
    assert [operation.id for operation in await store.find(Filter(), 9)] == [submission(1).id, submission(4).id]
    await store.close()


async def test_a_timeout_without_files_to_open(url):
    """LG-9: what was said not to be stored is not stored, also where the process may open no file any more."""
    store = open_store(url, replace(SETTINGS, timeout=0.5))
    await store.migrate(apply=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with await psycopg.AsyncConnection.connect(url) as other:
        await store.submit_within(other, [submission(1, key="a")])
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises(LedgerUnavailableError, match=r"no answer within 0\.5 s; nothing was stored"):
                await store.submit([submission(2, key="a")])
            await other.rollback()
            await asyncio.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert await store.find(Filter(), 9) == []
    await store.close()
