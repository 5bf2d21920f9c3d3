"""An inbox's table in an SQLite file, and the transactions of both APIs.

SQLite has one writer at a time. So an inbox has one connection, its calls take turns, and each takes the file's lock
for as long as its handler runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import LedgerSchemaError, LedgerUnavailableError
from grpc_backoff.ledger.inbox.decision import AioExecute, Busy, Execute, Query, Statements, Trouble
from grpc_backoff.ledger.schema import check_version, migrations
from grpc_backoff.ledger.stores.sqlite import BUSY, identity_of, is_missing, upgrade_file, version_of
from grpc_backoff.ledger.stores.statements import ResultT, Row
from grpc_backoff.ledger.stores.urls import SQLITE_URL, URLS

_TIMEOUT = 5.0  # how long migrations and pruning wait for the file's lock, in seconds
_VERSIONS = "ledger_inbox_schema"
_UNAVAILABLE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_NOMEM", "SQLITE_PROTOCOL")


class _Unusable(Exception):  # noqa: N818 - internal
    """The file was deleted or replaced, or the inbox is closed."""


def trouble_of(error: Exception) -> Trouble:
    """Return what an error of sqlite3 means."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if isinstance(error, Busy) or name.startswith(BUSY):
        return Trouble.BUSY
    return Trouble.UNAVAILABLE if isinstance(error, _Unusable) or name.startswith(_UNAVAILABLE) else Trouble.OTHER


def _authorize(action: int, *_about: str | None) -> int:
    """Deny BEGIN, COMMIT and ROLLBACK to the handler. Savepoints are another action, and allowed."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


class _SQLite:
    """What both APIs share: the statements, the table and the connection."""

    statements = Statements("ledger_inbox", "?", "(julianday('now') - 2440587.5) * 86400.0 - ?")
    errors = (sqlite3.Error, Busy, _Unusable)
    trouble = staticmethod(trouble_of)

    def __init__(self, url: str) -> None:
        path = url.removeprefix(SQLITE_URL)
        if "://" in path or path in ("", ":memory:") or path.startswith("file:"):  # an inbox needs a file
            raise OptionError("url", f"{path.partition(':')[0]}...", URLS)
        self._path = Path(path).absolute()  # the program may change its directory
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @contextlib.contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection apart from those of the calls."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_TIMEOUT, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise LedgerUnavailableError(f"{self._path}: {error}") from error

    def migrate(self, *, apply: bool) -> None:
        """Bring the table to this library's version (LG-13)."""
        known = migrations("inbox_sqlite")
        newest = len(known)
        if not apply and is_missing(self._path):  # connecting would create it
            raise LedgerSchemaError(f"{self._path}: there is no such file; open it with migrate=True")
        with self.connected() as connection:
            before = version_of(connection, _VERSIONS)
            if before < newest and not apply:
                raise LedgerSchemaError(f"{self._path}: the table is missing or old; open it with migrate=True")
            check_version(str(self._path), before, newest, apply=apply)
            connection.execute("PRAGMA journal_mode = WAL")
            if before == newest:
                return
            connection.execute("BEGIN IMMEDIATE")
            upgrade_file(connection, known, _VERSIONS)
            connection.execute("COMMIT")

    def _open(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = EXTRA")
        self._identity = identity_of(self._path)
        self._connection = connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check(self) -> sqlite3.Connection:
        """Return the connection, unless nothing written to it would last."""
        if self._connection is None or identity_of(self._path) != self._identity:
            raise _Unusable(f"{self._path}: closed, or moved or deleted while it was open")
        return self._connection

    def _begin(self, seconds: float) -> sqlite3.Connection:
        connection = self._check()
        connection.execute(f"PRAGMA busy_timeout = {max(1, round(seconds * 1000))}")
        connection.execute("BEGIN IMMEDIATE")
        connection.set_authorizer(_authorize)
        return connection

    def _commit(self) -> None:
        connection = self._check()
        connection.set_authorizer(None)
        connection.execute("COMMIT")

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.set_authorizer(None)
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")


class SyncSQLite(_SQLite):
    """The transactions of a threaded server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._turn = threading.Lock()

    def open(self) -> None:
        """Open the file."""
        self._open()

    def close(self) -> None:
        """Close the file when the running call has ended."""
        with self._turn:
            self._close()

    @contextlib.contextmanager
    def transaction(self, seconds: float) -> Iterator[tuple[sqlite3.Connection, Execute]]:
        """Run the block in a transaction, which waits for up to this many seconds for its turn."""
        if not self._turn.acquire(timeout=seconds):
            raise Busy
        try:
            connection = self._begin(seconds)
            yield connection, lambda statement: _rows(connection, statement)
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._turn.release()


class AioSQLite(_SQLite):
    """The transactions of an asyncio server. Taking the file's lock and COMMIT run in a thread."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Open the file."""
        self._open()

    async def close(self) -> None:
        """Close the file when the running call has ended."""
        async with self._turn:
            self._close()

    @contextlib.asynccontextmanager
    async def transaction(self, seconds: float) -> AsyncIterator[tuple[sqlite3.Connection, AioExecute]]:
        """Run the block in a transaction, which waits for up to this many seconds for its turn."""
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise Busy from None
        try:
            connection = await _in_thread(lambda: self._begin(seconds))

            async def execute(statement: Query) -> list[Row]:
                return _rows(connection, statement)

            yield connection, execute
            await _in_thread(self._commit)
        except BaseException:
            await _in_thread(self._roll_back)
            raise
        finally:
            self._turn.release()


async def _in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Run a function in a thread; return only when it has ended, even if the caller is cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled = False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        running.exception()  # mark it as read
        raise asyncio.CancelledError
    return running.result()


def _rows(connection: sqlite3.Connection, statement: Query) -> list[Row]:
    cursor = connection.cursor()
    cursor.row_factory = None  # the handler may have set another
    return cursor.execute(*statement).fetchall()
