"""Creating the tables of every store."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff.ledger import Ledger, LedgerSchemaError
from grpc_backoff.ledger.records import Filter
from tests.ledger.conftest import execute, open_store
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
        kept = await stores[1].find(Filter(), 10)
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
