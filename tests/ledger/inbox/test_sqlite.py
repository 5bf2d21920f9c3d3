"""What is SQLite's own in an inbox: its errors, and a file that goes away."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.ledger import LedgerUnavailableError
from grpc_backoff.ledger.inbox.decision import Busy, Trouble
from grpc_backoff.ledger.inbox.sqlite import trouble_of
from tests.ledger.inbox.servers import Sql, holding, once

Code = grpc.StatusCode


@pytest.fixture
def url(tmp_path):
    """Only SQLite."""
    return str(tmp_path / "inbox.db")


def named(name):
    error = sqlite3.OperationalError()
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Busy(), Trouble.BUSY),
        (named("SQLITE_BUSY"), Trouble.BUSY),
        (named("SQLITE_BUSY_SNAPSHOT"), Trouble.BUSY),
        (named("SQLITE_FULL"), Trouble.UNAVAILABLE),
        (named("SQLITE_IOERR_WRITE"), Trouble.UNAVAILABLE),
        (named("SQLITE_CONSTRAINT_UNIQUE"), Trouble.OTHER),
        (sqlite3.ProgrammingError(), Trouble.OTHER),
    ],
)
def test_trouble(error, expected):
    """IB-6: errors that a repeat can mend are distinguished from those that it cannot."""
    assert trouble_of(error) is expected


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "BEGIN"])
def test_the_handler_cannot_end_the_transaction(shop, statement):
    """IB-6: SQLite refuses the handler's own COMMIT, so nothing can be committed without its record."""

    def ends(text, context):
        yield from once(text, context)
        yield Sql(statement)
        return text

    shop.service.handler = ends
    assert shop.refused().code() is Code.UNKNOWN
    assert (shop.effects(), shop.recorded()) == ([], 0)


def test_savepoints_are_allowed(shop):
    """IB-6: a handler may use savepoints."""

    def saves(text, context):
        yield Sql("SAVEPOINT a")
        yield from once(text, context)
        yield Sql("ROLLBACK TO a")
        yield Sql("RELEASE a")
        return text

    shop.service.handler = saves
    assert shop.call() == "a"
    assert (shop.effects(), shop.recorded()) == ([], 1)


def test_another_program_holds_the_file(shop, url):
    """IB-2: a call waits for another program's lock on the file and then is executed."""
    with ThreadPoolExecutor(1) as pool:
        other = sqlite3.connect(url, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        call = pool.submit(shop.call)
        with pytest.raises(TimeoutError):
            call.result(0.8)
        other.execute("COMMIT")
        other.close()

        assert call.result(20).startswith("a ")


def test_the_file_is_deleted(shop, tmp_path):
    """IB-6: a file that is deleted before COMMIT makes the call UNAVAILABLE, because nothing in it would last."""
    with holding(shop, shop.refused, before=once) as call:
        (tmp_path / "inbox.db").unlink()

    assert call.result(20).code() is Code.UNAVAILABLE
    assert shop.refused().code() is Code.UNAVAILABLE


NO_URLS = [
    "",
    ":memory:",
    "mysql://user:hunter2@host/name",
    "sqlite:///mysql://user:hunter2@host/name",
    "file:inbox.db?mode=ro",
    "host=db password=hunter2",
    "dbname = shop",
    "application_name=shop password=hunter2 options=a://b",
    "user:hunter2@host://name",
    "sqlite:///user:hunter2@host://name",
]


@pytest.mark.parametrize("url", NO_URLS)
def test_urls_that_are_none(place, url, tmp_path, monkeypatch):
    """IB-5: a URL that is neither a file nor PostgreSQL is an error that says what is expected, and no file."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(OptionError, match=r"url=.*: expected a path") as caught:
        place.open(url)

    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_directory(place, tmp_path):
    """IB-6: a file that cannot be opened is a LedgerUnavailableError."""
    with pytest.raises(LedgerUnavailableError):
        place.open(tmp_path)
