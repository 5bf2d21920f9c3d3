"""What every store does if the database does not: its tables, its locks, and what cannot be written."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from grpc_backoff.ledger import Ledger, LedgerBusyError, LedgerSchemaError, LedgerUnavailableError
from grpc_backoff.ledger.records import Filter
from grpc_backoff.ledger.transactions import queries, submitting
from tests.ledger.conftest import execute, locking, open_store, opened_store, submission
from tests.ledger.steps import submitted


async def test_migrating_twice(url, settings):
    """LG-13: of ten stores that migrate at once, only one applies the migrations; existing tables are kept."""
    stores = [open_store(url, settings) for _ in range(10)]
    try:
        told = await asyncio.gather(*(each.migrate(apply=True) for each in stores))
        newest = told[0][1]
        await submitted(stores[0], 1)
        again = await stores[1].migrate(apply=True)
        only_looked = await stores[1].migrate(apply=False)
        kept = await queries.find(stores[1], Filter(), 10)
    finally:
        await asyncio.gather(*(each.close() for each in stores))

    assert sorted(told) == [(0, newest)] + [(newest, newest)] * 9
    assert again == only_looked == (newest, newest)
    assert len(kept) == 1


async def test_a_newer_schema(url):
    """LG-13: tables of a newer version are refused, and so are missing ones with `migrate=False`."""
    with pytest.raises(LedgerSchemaError, match=r"run `grpc-backoff ledger --db .* migrate`"):
        await Ledger.open(url, migrate=False)
    async with await Ledger.open(url) as ledger:
        _, newest = await ledger.store.migrate(apply=False)
    execute(url, f"UPDATE {'grpc_backoff.schema' if '://' in url else 'ledger_schema'} SET version = 99")

    with pytest.raises(
        LedgerSchemaError, match=f"newer grpc-backoff has upgraded the tables to version 99; this one knows {newest}"
    ):
        await Ledger.open(url)


async def test_busy(url, settings):
    """LG-2, seed 001: a lock timeout raises an error and writes nothing; `submit` works again once the lock is free."""
    async with opened_store(url, replace(settings, lock_timeout=0.2)) as store:
        message = r"after 0\.2 s waiting for another (process|transaction)'s lock; nothing was written"
        with locking(url), pytest.raises(LedgerBusyError, match=message):
            await submitting.submit(store, [submission(1)])

        assert await queries.find(store, Filter(), 1) == []
        assert (await submitting.submit(store, [submission(1)]))[0].new


async def test_what_is_read_only(url):
    """LG-9: submitting to a read-only database raises an error with that reason; reading still works."""
    async with await Ledger.open(url) as ledger:
        await ledger.submit("t", "/m/m", b"a")
    read_only = f"{url}&options=-cdefault_transaction_read_only%3Don" if "://" in url else f"file:{url}?mode=ro"
    async with await Ledger.open(read_only) as ledger:
        with pytest.raises(LedgerUnavailableError, match=r"read-only.*; nothing was stored"):
            await ledger.submit("t", "/m/m", b"b")
        assert len(await ledger.find()) == 1
