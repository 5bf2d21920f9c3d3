"""Connections to PostgreSQL: those that are lost, limited in time, or refused."""

from __future__ import annotations

import asyncio
import os
import resource
from dataclasses import replace

import psycopg
import pytest

from grpc_backoff.ledger import Filter, Ledger, LedgerUnavailableError
from grpc_backoff.ledger.transactions import queries, submitting
from tests.ledger.conftest import SETTINGS, execute, opened_store, submission
from tests.ledger.stores.postgres.test_store import END, QUICK


@pytest.fixture
def url(postgres_url):
    return postgres_url


@pytest.mark.parametrize(
    "work",
    [
        lambda ledger, _: ledger.submit("t", "/m/m", b""),
        lambda ledger, _: ledger.queue(),
        lambda ledger, id_: ledger.set_backoff(id_, 1.0),
    ],
)
async def test_connections_that_the_server_has_ended(url, work):
    """LG-12: if the server has ended its connections, the next request is repeated on a new connection."""
    async with await Ledger.open(url, settings=QUICK) as ledger:
        id_ = (await ledger.submit("t", "/m/m", b"")).id
        for _ in range(3):
            await asyncio.gather(*(ledger.queue() for _ in range(4)))
            assert len(ledger.store._pool._free) > 1
            execute(url, f"{END} pid <> pg_backend_pid()")
            await asyncio.sleep(0.2)
            await work(ledger, id_)
            assert len(ledger.store._pool._free) == 1


async def test_another_event_loop(ledger):
    """LG-9: a ledger that is used on a second event loop says what to use instead."""
    with pytest.raises(LedgerUnavailableError, match=r"another event loop; threads share a .*sync\.Ledger"):
        await asyncio.to_thread(lambda: asyncio.run(ledger.find()))


async def test_a_timeout_without_files_to_open(url):
    """LG-9: a timed-out `submit` stores nothing, even if the process cannot open any more files."""
    async with opened_store(url, replace(SETTINGS, timeout=0.5)) as store:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with await psycopg.AsyncConnection.connect(url) as other:
            await submitting.submit_within(store, other, [submission(1, key="a")])
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                with pytest.raises(LedgerUnavailableError, match=r"no answer within 0\.5 s; nothing was stored"):
                    await submitting.submit(store, [submission(2, key="a")])
                await other.rollback()
                await asyncio.sleep(0.3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await queries.find(store, Filter(), 9) == []


async def test_a_wrong_password(server):
    """LG-9: a wrong password raises LedgerUnavailableError, which does not show the password."""
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


async def test_nobody_there(tmp_path):
    """LG-9: an unreachable server or an invalid database URL raises LedgerUnavailableError."""
    with pytest.raises(LedgerUnavailableError, match="cannot connect"):
        await Ledger.open(f"postgresql://postgres@/postgres?host={tmp_path}")
    with pytest.raises(LedgerUnavailableError, match="database URL"):
        await Ledger.open("postgresql://postgres@/postgres?nonsense=1")
