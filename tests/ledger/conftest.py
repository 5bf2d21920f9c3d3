"""Fixtures for the ledger's tests: each test gets a new, empty database of each kind."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import replace

import psycopg
import pytest

from grpc_backoff import aio
from grpc_backoff.ledger import Ledger
from grpc_backoff.ledger.records import Submission
from grpc_backoff.policy.ledger_settings import LedgerSettings
from grpc_backoff.policy.presets import LEDGER
from tests.echo import EchoStub, serving
from tests.ledger import server as servers
from tests.ledger.shop import Shop

SETTINGS = LedgerSettings(**LEDGER)
REQUIRED = "GRPC_BACKOFF_REQUIRE_PEERS"


@pytest.fixture(scope="session")
def server():
    """Run one PostgreSQL server for the session.

    If PostgreSQL is not installed, the test is skipped, or fails if GRPC_BACKOFF_REQUIRE_PEERS is set.
    """
    if servers.binaries() is None:
        reason = "PostgreSQL is not installed (Debian: postgresql)"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    with servers.running() as running:
        yield running


@pytest.fixture
def postgres_url(server):
    """The URL of an empty database in PostgreSQL."""
    with server.lending() as lent:
        yield lent


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The URL of an empty database; each test runs once with SQLite and once with PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def settings():
    return replace(SETTINGS, lock_timeout=2.0)


@pytest.fixture
async def store(url, settings):
    """A store of each kind, with its tables created."""
    async with opened_store(url, settings) as made:
        yield made


@contextlib.asynccontextmanager
async def opened_store(url, settings=SETTINGS, **how):
    """Open a store whose tables are created, and close it."""
    made = open_store(url, settings, **how)
    try:
        await made.migrate(apply=True)
        yield made
    finally:
        await made.close()


def open_store(url, settings=SETTINGS, **how):
    if url.startswith("postgresql:"):
        from grpc_backoff.ledger.stores.postgres.store import PostgresStore

        return PostgresStore(url, settings)
    from grpc_backoff.ledger.stores.sqlite import SQLiteStore

    return SQLiteStore(url, settings, **how)


@contextlib.contextmanager
def connected(url):
    """Yield a separate connection to a database, whose transaction is committed at the end of the block."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url) as connection:
            yield connection
    else:
        with contextlib.closing(sqlite3.connect(url)) as connection, connection:
            yield connection


@contextlib.contextmanager
def locking(url):
    """Hold a lock against which every write to the ledger runs."""
    with connected(url) as connection:
        lock = "LOCK TABLE grpc_backoff.operations IN EXCLUSIVE MODE" if "://" in url else "BEGIN IMMEDIATE"
        connection.execute(lock)
        yield


def execute(url, statement, *given):
    """Run a statement on a separate connection; the first `{}` is the ledger's table, the rest are the arguments."""
    table, mark = ("grpc_backoff.operations", "%s") if "://" in url else ("ledger_operations", "?")
    with connected(url) as connection:
        connection.execute(statement.format(table, *[mark] * len(given)), given)


def dump(url):
    """Return the full content of the ledger's tables as text."""
    with connected(url) as connection:
        if "://" not in url:
            return "\n".join(connection.iterdump())
        texts = "SELECT o::text FROM grpc_backoff.operations o UNION ALL SELECT a::text FROM grpc_backoff.attempts a"
        return str(connection.execute(texts).fetchall())


def submission(id_, target="shop:443", method="/shop.Orders/Place", policy="steps", key=None, **parts):
    """Return a submission whose id ends in this number."""
    made = Submission(f"00000000-0000-4000-8000-{id_:012d}", target, method, b"order", (), policy, None, key)
    return made._replace(**parts)


@pytest.fixture
async def shop():
    """A server that answers as scripted."""
    made = Shop()
    async with serving(made) as port:
        made.target = f"127.0.0.1:{port}"
        yield made


@pytest.fixture
async def ledger(url):
    async with await Ledger.open(url, settings=replace(SETTINGS, max_rows=5, max_request_bytes=100)) as opened:
        yield opened


@pytest.fixture
async def stub():
    async with aio.insecure_channel("shop.example:443") as channel:
        yield EchoStub(channel)
