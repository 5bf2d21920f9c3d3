"""A ledger in one SQLite file, for the processes of one host.

A dedicated thread uses the connection, with WAL and `synchronous=EXTRA`. Every transaction that writes begins with
`BEGIN IMMEDIATE`, so that none writes on the basis of an outdated read. The clock is the host's. If it is set back,
waits that appear to begin in the future start again from now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerSchemaError, LedgerUnavailableError, rejection, wrong_type
from grpc_backoff.ledger.schema import check_version, migrations, upgrade
from grpc_backoff.ledger.stores.dialect import SQLITE
from grpc_backoff.ledger.stores.statements import Access, Plan, ResultT, Row, Statement, follow
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.policy.ledger_settings import LedgerSettings

_URI = "file:"
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
"""What the names of errors about a lock begin with."""
_OLDEST = (3, 35, 0)  # the first version with RETURNING
_JUMP = 1.0  # if the clock is more than this many seconds behind a stored time, it was set back


class SQLiteStore(Store):
    """A store in one file; see `Store`."""

    sql = SQLITE
    oldest = 2
    waiting = 0.1

    def __init__(self, path: str, settings: LedgerSettings, clock: Callable[[], float] = time.time) -> None:
        """Open the file, or create it; `clock` returns the seconds since the epoch.

        Raises:
            LedgerUnavailableError: the file cannot be opened, or is not a database.
            LedgerSchemaError: the SQLite library is too old.
        """
        super().__init__(path, settings)
        self._now = clock
        if sqlite3.sqlite_version_info < _OLDEST:
            needed = ".".join(map(str, _OLDEST))
            raise LedgerSchemaError(f"sqlite={sqlite3.sqlite_version}: expected at least {needed}")
        self._file = _file_of(path)
        self._identity: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "grpc-backoff-ledger")

    # Execution.

    async def _transact(self, plan: Callable[[], Plan[ResultT]], access: Access, share: float) -> ResultT:  # noqa: ARG002 - SQLite's only limit is `lock_timeout`
        def run(connection: sqlite3.Connection) -> ResultT:
            with contextlib.nullcontext() if access is Access.READ else self._writing(connection):
                return follow(plan(), self._executor(connection.cursor()))

        return await self._on_thread(run)

    def _executor(self, cursor: sqlite3.Cursor) -> Callable[[list[Statement]], list[list[Row]]]:
        """Return a function that executes statements; they all use the time of this call as the current time."""
        times = self.times()
        return lambda some: [cursor.execute(text, {**times, **params}).fetchall() for text, params, _ in some]

    def times(self) -> dict[str, float]:
        """Return the time, and one that only a clock that was set back has not reached."""
        now = self._now()
        return {"now": now, "soon": now + _JUMP}

    def table(self, columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, dict[str, object]]:
        """Return a query that returns these rows, and its parameters."""
        if not rows:
            return f"SELECT {', '.join(['NULL'] * len(columns))} WHERE false", {}
        named = [{f"{name}_{i}": value for name, value in zip(columns, row, strict=True)} for i, row in enumerate(rows)]
        params = {name: value for row in named for name, value in row.items()}
        return "VALUES " + ", ".join(f"(:{', :'.join(row)})" for row in named), params

    async def _on_thread(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Run a function on the store's thread; once begun, it runs to its end even if the caller is cancelled."""
        self._check_usable()
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)
        done.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may have been cancelled
        return await asyncio.shield(done)

    def _work(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        with self._translating():
            if self._connection is None:
                self._connection = self._open()
            self._check_file()
            return work(self._connection)

    def _open(self) -> sqlite3.Connection:
        limit, uri = self._settings.lock_timeout, self._name.startswith(_URI)
        connection = sqlite3.connect(self._name, limit, isolation_level=None, uri=uri, check_same_thread=False)
        try:
            # The same as FULL with WAL; without it, which some file systems lack, a power failure could undo a commit.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA foreign_keys = ON")
            [(_, _, file), *_] = connection.execute("PRAGMA database_list").fetchall()
        except BaseException:
            connection.close()
            raise
        self._file = Path(file) if file else None  # absolute, as the program may change its directory
        self._identity = identity_of(self._file) if self._file else None
        return connection

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except OverflowError as error:  # of sqlite3, for an integer of more than 64 bits
            raise rejection(self._name, error) from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(_REJECTING):
                raise rejection(self._name, error) from error
            if name.startswith(BUSY):
                waited = f"gave up after {self._settings.lock_timeout:g} s waiting for another process's lock"
                raise LedgerBusyError(f"{self._name}: {waited}; nothing was written") from error
            stored = None if name in _IN_DOUBT else False
            raise LedgerUnavailableError(f"{self._name}: {_PROBLEMS.get(name, str(error))}", stored=stored) from error

    @contextlib.contextmanager
    def _writing(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Hold the file's lock for one transaction (LG-2)."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._check_file()
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        """Close the file when pending work is done, even if the caller is cancelled."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:  # the file belongs to the parent
            return
        closing = asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(closing)

    # The tables.

    async def migrate(self, *, apply: bool, needed_only: bool = False) -> tuple[int, int]:
        """Bring the tables to this library's version (LG-13); a file that is rejected is left unchanged."""
        if not apply and self._file is not None and await asyncio.to_thread(is_missing, self._file):
            advice = f"run `grpc-backoff ledger --db {shlex.quote(self._name)} migrate` to create it"
            raise LedgerSchemaError(f"{self._name}: there is no such file; {advice}")
        return await self._on_thread(lambda connection: self._migrate(connection, apply=apply, needed_only=needed_only))

    def _check_file(self) -> None:
        """Reject a file that was deleted or replaced since it was opened, because nothing written to it would last."""
        if self._file is not None and (self._identity is None or identity_of(self._file) != self._identity):
            raise LedgerUnavailableError(f"{self._name}: {_PROBLEMS['SQLITE_READONLY_DBMOVED']}")

    def _migrate(self, connection: sqlite3.Connection, *, apply: bool, needed_only: bool) -> tuple[int, int]:
        known = migrations("sqlite")
        before = version_of(connection, "ledger_schema")
        newest = len(known)
        check_version(self._name, before, newest, apply=apply, oldest=self.oldest)
        connection.execute("PRAGMA journal_mode = WAL")
        if not apply or before >= (self.oldest if needed_only else newest):
            self._version = before
            return before, before
        with self._writing(connection):
            before = upgrade_file(connection, known, "ledger_schema")
        self._version = newest
        return before, newest

    def run_within(self, connection: object, plan: Callable[[], Plan[ResultT]], *, blocking: bool) -> ResultT:  # noqa: ARG002 - it always is
        """Run a plan in the caller's own transaction, on a connection to the ledger's file."""
        self._check_usable()
        if not isinstance(connection, sqlite3.Connection):
            raise TypeError(wrong_type("within", connection, "a sqlite3.Connection for an SQLite ledger"))
        cursor = connection.cursor()
        cursor.row_factory = None  # the connection's own row factory may be anything
        [(_, _, file), *_] = cursor.execute("PRAGMA database_list").fetchall()
        self._check_file()
        if self._file is not None and file and identity_of(Path(file)) != self._identity:
            raise OptionError("within", file, f"a connection to the ledger's own file ({self._file})")
        automatic = connection.isolation_level is None or getattr(connection, "autocommit", None) is True  # Python 3.12
        if automatic and not connection.in_transaction:  # a transaction begun here would never be committed
            allowed = "a connection with an open transaction: execute BEGIN first"
            raise OptionError("within", "sqlite3.Connection in autocommit mode", allowed)
        with self._translating():
            if not connection.in_transaction:
                cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("SAVEPOINT grpc_backoff")  # all or none, however the caller handles an error
            try:
                return follow(plan(), self._executor(cursor))
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK TO grpc_backoff")
                raise
            finally:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("RELEASE grpc_backoff")


def _file_of(path: str) -> Path | None:
    """Return the file of a database; None if it is in memory."""
    if path.startswith(_URI):
        path = unquote(path.removeprefix(_URI).partition("?")[0])
    return None if path in ("", ":memory:") else Path(path)


def identity_of(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one at its path; None if there is no file that can be reached."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_missing(file: Path) -> bool:
    """Return whether it is certain that there is no such file; connecting says what else is wrong with a path."""
    try:
        file.stat()
    except (OSError, ValueError) as error:  # ValueError: it has a NUL character
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def version_of(connection: sqlite3.Connection, table: str) -> int:
    """Return the version that a table of versions contains; 0 if there is none."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    row = connection.execute(f"SELECT version FROM {table}").fetchone() if found else None
    return 0 if row is None else int(row[0])


def upgrade_file(connection: sqlite3.Connection, known: list[str], table: str) -> int:
    """Bring a file to the newest version in the open transaction; return the version before."""
    before = version_of(connection, table)
    statement = ""
    for sql in upgrade(known, before, table):
        for line in f"{sql.rstrip().removesuffix(';')};".splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):  # `executescript` would commit the transaction
                connection.execute(statement)
                statement = ""
    return before


_PROBLEMS = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR_WRITE": "the disk cannot be written",
    "SQLITE_READONLY": "the file is read-only",
    "SQLITE_READONLY_DIRECTORY": "the directory is read-only",
    "SQLITE_READONLY_DBMOVED": "the file was moved or deleted while it was open",
    "SQLITE_CANTOPEN": "the file cannot be opened",
    "SQLITE_NOTADB": "the file is not a SQLite database",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_CORRUPT_INDEX": "the file is damaged",
}
"""The meaning of SQLite's error names, for messages."""

_REJECTING = ("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG")  # errors about a row

_IN_DOUBT = ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")
"""What fails after a commit was written: whether it reached the disk is then unknown."""
