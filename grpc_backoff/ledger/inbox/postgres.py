"""An inbox's table in PostgreSQL, and the transactions of both APIs. Needs psycopg 3 with its pool."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from grpc_backoff.base.base_errors import MissingExtra
from grpc_backoff.ledger.errors import LedgerSchemaError, LedgerUnavailableError, first_line
from grpc_backoff.ledger.inbox.decision import AioExecute, Busy, Execute, Query, Statements, Trouble
from grpc_backoff.ledger.schema import MIGRATION_LOCK, check_version, migrations, upgrade

try:
    import psycopg
    import psycopg_pool
    from psycopg.rows import TupleRow, tuple_row
except ImportError as error:
    raise MissingExtra("postgres", "an inbox in PostgreSQL") from error

_TIMEOUT = 5  # how long a call waits for a connection, in seconds
_BUSY = frozenset({"55P03", "40001", "40P01"})
"""A lock that was not acquired, a serialization failure and a deadlock."""
_UNAVAILABLE = frozenset({"08", "40", "53", "57", "58"})
"""Classes of errors: connections, transactions that were rolled back, resources, the operator, the system."""
_READ_ONLY = "25006"  # a standby, or a server that is being replaced
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "connect_timeout": _TIMEOUT}
_POOL: dict[str, Any] = {"min_size": 0, "open": False, "kwargs": _OPTIONS}


def trouble_of(error: Exception) -> Trouble:
    """Return what an error of psycopg or its pool means."""
    state = getattr(error, "sqlstate", None)
    if state in _BUSY or isinstance(error, Busy):
        return Trouble.BUSY
    if state is None:  # it comes from the client
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Trouble.UNAVAILABLE if lost else Trouble.OTHER
    if isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return Trouble.UNAVAILABLE  # it ended the connection, so a COMMIT may have been executed
    if state == _READ_ONLY:
        return Trouble.READ_ONLY
    return Trouble.UNAVAILABLE if state[:2] in _UNAVAILABLE else Trouble.OTHER


class _Postgres:
    """What both APIs share: the statements, the table, its pruning and the pool."""

    statements = Statements(
        "grpc_backoff.inbox",
        "%s",
        "now() - make_interval(secs => %s)",
        "SELECT set_config('lock_timeout', NULL, true)",  # back to the database's own
    )
    errors = (psycopg.Error, Busy)
    trouble = staticmethod(trouble_of)

    def __init__(self, url: str) -> None:
        self._url = url

    @contextlib.contextmanager
    def connected(self) -> Iterator[psycopg.Connection[TupleRow]]:
        """Yield a connection apart from those of the calls."""
        try:
            with psycopg.connect(self._url, row_factory=tuple_row, **_OPTIONS) as connection:
                yield connection
        except psycopg.Error as error:
            if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
                # libpq's own message quotes what it cannot parse, which may be part of a password.
                raise LedgerUnavailableError("database URL: expected a URL that libpq can parse") from None
            raise LedgerUnavailableError(f"inbox: {first_line(error)}") from error

    def migrate(self, *, apply: bool) -> None:
        """Bring the table to this library's version (LG-13)."""
        known = migrations("inbox_postgres")
        newest = len(known)
        with self.connected() as connection:
            before = _version(connection)
            if before == newest:
                return
            if before < newest and not apply:
                raise LedgerSchemaError("inbox: the table is missing or old; open it with migrate=True")
            check_version("inbox", before, newest, apply=apply)
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                before = _version(connection)  # another process may have migrated already
                if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'grpc_backoff'").fetchall():
                    connection.execute("CREATE SCHEMA grpc_backoff")
                for sql in upgrade(known, before, "grpc_backoff.inbox_schema"):
                    connection.execute(sql.encode())


class SyncPostgres(_Postgres):
    """The transactions of a threaded server."""

    def __init__(self, url: str, connections: int) -> None:
        super().__init__(url)
        kind = psycopg_pool.ConnectionPool
        self._pool = kind(url, max_size=connections, check=kind.check_connection, **_POOL)
        self.open, self.close = self._pool.open, self._pool.close

    @contextlib.contextmanager
    def transaction(self, seconds: float) -> Iterator[tuple[psycopg.Connection[TupleRow], Execute]]:
        """Run the block in a transaction, whose claim waits for up to this many seconds for another's."""
        with self._pool.connection(timeout=_TIMEOUT) as connection:
            try:
                with connection.transaction():
                    connection.execute(_limit(seconds))

                    def execute(statement: Query) -> list[TupleRow]:
                        cursor = psycopg.Cursor(connection, row_factory=tuple_row)  # the handler may have set another
                        return cursor.execute(statement.text.encode(), statement.params).fetchall()

                    yield connection, execute
            except psycopg.errors.ReadOnlySqlTransaction:
                connection.close()  # the pool replaces it
                raise


class AioPostgres(_Postgres):
    """The transactions of an asyncio server."""

    def __init__(self, url: str, connections: int) -> None:
        super().__init__(url)
        kind = psycopg_pool.AsyncConnectionPool
        self._pool = kind(url, max_size=connections, check=kind.check_connection, **_POOL)
        self.open, self.close = self._pool.open, self._pool.close

    @contextlib.asynccontextmanager
    async def transaction(self, seconds: float) -> AsyncIterator[tuple[psycopg.AsyncConnection[TupleRow], AioExecute]]:
        """Run the block in a transaction, whose claim waits for up to this many seconds for another's."""
        async with self._pool.connection(timeout=_TIMEOUT) as connection:
            try:
                async with connection.transaction():
                    await connection.execute(_limit(seconds))

                    async def execute(statement: Query) -> list[TupleRow]:
                        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)  # as above
                        return await (await cursor.execute(statement.text.encode(), statement.params)).fetchall()

                    yield connection, execute
            except psycopg.errors.ReadOnlySqlTransaction:
                await connection.close()  # the pool replaces it
                raise


def _limit(seconds: float) -> bytes:
    return b"SET LOCAL lock_timeout TO %d" % max(1, round(seconds * 1000))


def _version(connection: psycopg.Connection[TupleRow]) -> int:
    there = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'grpc_backoff' AND tablename = 'inbox_schema'"
    if not connection.execute(there).fetchall():
        return 0
    row = connection.execute("SELECT version FROM grpc_backoff.inbox_schema").fetchone()
    return 0 if row is None else int(row[0])
