"""Behaviour specific to the SQLite store: durability, clock changes, locks, and file errors."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import Ledger, LedgerSchemaError, LedgerStateError, LedgerUnavailableError, OperationState
from grpc_backoff.ledger.inbox import AioInbox
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.transactions import claiming, counting, manual, recording
from tests.ledger.conftest import SETTINGS, execute, opened_store
from tests.ledger.steps import SHOP, STEPS, claimed, eventually, failed, one, policy_of, submitted

HOUR = 3600.0


class Clock:
    """A clock for the store that the test sets."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "ledger.db")


@pytest.fixture
async def timed(path):
    clock = Clock()
    async with opened_store(path, SETTINGS, clock=clock) as store:
        store.hands = clock
        yield store


async def waiting(store):
    """Let an operation have failed once and be due again in one second."""
    await submitted(store, 1)
    await failed(store, (await claimed(store))[0])


async def pragma(ledger, text):
    """Execute a pragma on the ledger's own connection; return its value."""
    [value] = await ledger.store._on_thread(lambda connection: connection.execute(f"PRAGMA {text}").fetchone())
    return value


async def test_durable(path):
    """LG-9: SQLite runs in WAL mode and syncs each commit, so an operation is on disk when `submit` returns."""
    async with await Ledger.open(path) as ledger:
        modes = [await pragma(ledger, name) for name in ("journal_mode", "synchronous")]
    assert modes == ["wal", 3]


async def test_durable_without_wal(path):
    """LG-9: where SQLite cannot use WAL, it also syncs the directory, so that no journal comes back."""
    async with await Ledger.open(f"file:{path}?vfs=unix-dotfile") as ledger:
        modes = [await pragma(ledger, name) for name in ("journal_mode", "synchronous")]
        await ledger.submit("t", "/m/m", b"a")
    assert modes == ["delete", 3]


async def test_a_clock_that_jumps_ahead(timed):
    """LG-12: if the clock jumps ahead, a waiting operation is due at once; the policy sets its next wait as usual."""
    await waiting(timed)

    timed.hands.now += HOUR

    assert await claiming.next_due(timed, SHOP) == 0
    told = await failed(timed, (await claimed(timed))[0])
    assert (told.delay, await claiming.next_due(timed, SHOP)) == (2.0, 2.0)


async def test_a_clock_that_is_set_back(timed):
    """LG-12: if the clock is set back, waits and leases start again from the new time with their normal length."""
    await waiting(timed)
    await submitted(timed, 2)
    [running] = await claimed(timed)

    timed.hands.now -= HOUR
    await recording.lost(timed, SHOP, policy_of, 10)

    assert await claiming.next_due(timed, SHOP) == 1.0
    assert (await one(timed, running.id)).lease_until == timed.hands.now + 30.0
    timed.hands.now += 1.0
    assert len(await claimed(timed, 9)) == 1


@pytest.mark.parametrize("replayed", [False, True])
async def test_what_was_submitted_before_the_clock_was_set_back(timed, replayed):
    """LG-12: an operation that was submitted or replayed is due at once even if the clock is set back by an hour."""
    [id_] = await submitted(timed, 1)
    if replayed:
        await recording.record_ends(timed, [AttemptReport(id_, None, STEPS, FailedAttempt("INTERNAL"))])
        timed.hands.now += 2 * HOUR
        await manual.begin_anew(timed, [id_], [OperationState.FAILED], None)
    created = (await one(timed, id_)).created

    timed.hands.now -= HOUR
    await recording.lost(timed, SHOP, policy_of, 10)

    assert await claiming.next_due(timed, SHOP) == 0
    assert (await counting.queue(timed, None)).oldest == 0
    assert (await one(timed, id_)).created == min(created, timed.hands.now)


async def test_an_error_within_the_callers_transaction(path):
    """LG-9: if the database refuses one of many operations in the caller's transaction, the error says why."""
    async with await Ledger.open(path) as ledger:
        prepared = [ledger.prepared("t", "/m/m", b"a"), ledger.prepared("t", "/m/m", b"a")._replace(method=None)]
        with contextlib.closing(sqlite3.connect(path)) as mine, pytest.raises(LedgerStateError, match="NOT NULL"):
            await ledger.submit_many(prepared, within=mine)


async def test_a_full_disk(path):
    """LG-9: a full disk raises LedgerUnavailableError and loses no data; `submit` works again once there is room."""
    async with await Ledger.open(path) as ledger:
        kept = await ledger.submit("t", "/m/m", b"a")
        await pragma(ledger, "max_page_count = 1")
        with pytest.raises(LedgerUnavailableError, match="the disk is full; nothing was stored") as caught:
            await ledger.submit("t", "/m/m", b"x" * 500_000)
        assert caught.value.stored is False
        await pragma(ledger, "max_page_count = 1000000")
        await ledger.submit("t", "/m/m", b"x" * 500_000)

        assert len(await ledger.find()) == 2
        assert (await ledger.get(kept.id)).request == b"a"


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("opened", [0, 1])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_is_gone(path, how, opened, before):
    """LG-9: if the file is deleted or replaced while it is open, `submit` raises an error instead of losing it.

    That includes the first write, to a new file and to one that was there already.
    """
    for _ in range(opened):
        async with await Ledger.open(path):
            pass
    async with await Ledger.open(path) as ledger:
        for _ in range(before):
            await ledger.submit("t", "/m/m", b"a")
        Path(path).rename(f"{path}.old")
        if how == "replaced":
            async with await Ledger.open(path):
                pass
        with pytest.raises(LedgerUnavailableError, match="moved or deleted while it was open; nothing was stored"):
            await ledger.submit("t", "/m/m", b"b")


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_is_gone_under_the_callers_transaction(path, how):
    """LG-9: if the file is deleted or replaced, `within` refuses the connection to the old file."""
    async with await Ledger.open(path) as ledger:
        with contextlib.closing(sqlite3.connect(path)) as mine:
            mine.execute("SELECT count(*) FROM ledger_operations").fetchall()
            Path(path).rename(f"{path}.old")
            if how == "replaced":
                async with await Ledger.open(path):
                    pass
            with pytest.raises(LedgerUnavailableError, match="moved or deleted while it was open; nothing was stored"):
                await ledger.submit("t", "/m/m", b"b", within=mine)


async def test_another_working_directory(tmp_path, monkeypatch):
    """LG-9: a ledger with a relative path is not affected if the program changes its directory."""
    monkeypatch.chdir(tmp_path)
    async with await Ledger.open("ledger.db") as ledger:
        monkeypatch.chdir("/")
        await ledger.submit("t", "/m/m", b"a")


async def test_a_database_in_memory():
    """LG-9: a database without a file cannot lose one."""
    for url in (":memory:", "file:tests?mode=memory", "file::memory:"):
        async with await Ledger.open(url) as ledger:
            await ledger.submit("t", "/m/m", b"a")


class Failing:
    """A connection on which COMMIT fails with one of SQLite's errors."""

    def __init__(self, connection, name):
        self._connection, self._name = connection, name

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, text, *given):
        if text == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = self._name
            raise error
        return self._connection.execute(text, *given)


@pytest.mark.parametrize(
    ("name", "stored"), [("SQLITE_IOERR_FSYNC", None), ("SQLITE_IOERR_WRITE", False), ("SQLITE_FULL", False)]
)
async def test_a_commit_that_fails(path, name, stored):
    """LG-9: if only syncing fails, it is unknown whether the operation is stored, because it has been written."""
    async with await Ledger.open(path) as ledger:
        store = ledger.store
        store._connection = Failing(store._connection, name)
        with pytest.raises(LedgerUnavailableError) as caught:
            await ledger.submit("t", "/m/m", b"a")
        with pytest.raises(LedgerUnavailableError) as keyed:
            await ledger.submit("t", "/m/m", b"a", idempotency_key="k")

    assert caught.value.stored is stored
    assert ("without one, look for operation" in str(caught.value)) is (stored is None)
    assert ("submit again with the same idempotency key" in str(keyed.value)) is (stored is None)


async def test_a_close_that_is_cancelled(path):
    """LG-10, CB-10: if `close` is cancelled at once, the ledger is closed all the same, and its thread ends."""
    before = threading.active_count()
    ledger = await Ledger.open(path)
    closing = asyncio.ensure_future(ledger.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await ledger.close()

    assert ledger.store._connection is None
    await eventually(lambda: threading.active_count() <= before)


FULL = """
import asyncio, resource, sys
from grpc_backoff.ledger import Ledger, LedgerUnavailableError

async def main():
    async with await Ledger.open(sys.argv[1]) as ledger:
        await ledger.submit("t", "/m/m", b"a")
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        try:
            await ledger.submit("t", "/m/m", b"x" * 900_000)
        except LedgerUnavailableError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await ledger.submit("t", "/m/m", b"b")
        print(len(await ledger.find()))

asyncio.run(main())
"""


def test_a_disk_that_refuses_writes(path):
    """LG-9: if the system refuses a write, the error gives the reason; stored data stays, and later writes succeed."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [f"{path}: the disk cannot be written; nothing was stored", "2"]


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to be read as one" * 99, b"SQLite format 3\x00" * 999]
)
async def test_no_database(path, content):
    """LG-9: a file that is not a SQLite database is refused and not changed."""
    Path(path).write_bytes(content)

    with pytest.raises(LedgerUnavailableError, match=r"not a SQLite database|damaged"):
        await Ledger.open(path)
    assert Path(path).read_bytes() == content


async def test_a_damaged_file(path):
    """LG-9: reading a damaged part of the file raises an error that says that the file is damaged."""
    async with await Ledger.open(path) as ledger:
        await ledger.submit_many([ledger.prepared("t", "/m/m", b"x" * 1000) for _ in range(200)])
    content = bytearray(Path(path).read_bytes())
    content[4096 * 10 : 4096 * 40] = b"\xff" * 4096 * 30
    Path(path).write_bytes(content)

    async with await Ledger.open(path) as ledger:
        with pytest.raises(LedgerUnavailableError, match="the file is damaged"):
            await ledger.find(limit=1000)


async def test_a_directory_that_is_not_there(tmp_path):
    """LG-9: a path that cannot be opened raises LedgerUnavailableError."""
    with pytest.raises(LedgerUnavailableError, match="the file cannot be opened; nothing was stored"):
        await Ledger.open(tmp_path / "nowhere" / "ledger.db")


@pytest.mark.parametrize("migrate", [True, False])
async def test_a_name_that_is_too_long(tmp_path, migrate):
    """LG-9, IB-6: a path that the system refuses raises LedgerUnavailableError, also if it must exist already."""
    for opening in (Ledger.open, AioInbox.open):
        with pytest.raises(LedgerUnavailableError, match="open"):
            await opening(tmp_path / ("a" * 300), migrate=migrate)


async def test_a_strangers_file_is_left_as_it_is(path):
    """LG-13: if a database is refused because it is not ours or has a newer schema, the file is not changed."""
    execute(path, "CREATE TABLE orders (id TEXT)")
    before = Path(path).read_bytes()
    with pytest.raises(LedgerSchemaError, match="run `grpc-backoff ledger --db URL migrate`"):
        await Ledger.open(path, migrate=False)
    assert Path(path).read_bytes() == before

    execute(path, "CREATE TABLE ledger_schema AS SELECT 99 AS version")
    before = Path(path).read_bytes()
    with pytest.raises(LedgerSchemaError, match="to version 99"):
        await Ledger.open(path)
    assert Path(path).read_bytes() == before


async def test_cancelled_submits_are_whole(path):
    """LG-9: if `submit_many` is cancelled, either all of its operations are stored or none."""
    async with await Ledger.open(path) as ledger:
        for _ in range(20):
            prepared = [ledger.prepared("t", "/m/m", b"a") for _ in range(5)]
            task = asyncio.ensure_future(ledger.submit_many(prepared))
            await asyncio.sleep(random.uniform(0, 0.02))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        operations = await ledger.find()

    assert operations
    assert len(operations) % 5 == 0
    assert {operation.state for operation in operations} <= {OperationState.PENDING}


async def test_nothing_is_left(path):
    """LG-10, CB-10: closing a ledger ends its thread."""
    before = threading.active_count()
    async with await Ledger.open(path) as ledger:
        await ledger.submit("t", "/m/m", b"a")
    await eventually(lambda: threading.active_count() <= before)
