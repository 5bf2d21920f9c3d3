"""A ledger in one SQLite file, for the processes of one host.

A dedicated thread uses the connection, with WAL and `synchronous=FULL`. Every transaction that writes begins with
`BEGIN IMMEDIATE`, so that none writes on the basis of an outdated read. The clock is the host's. If it is set back,
waits that appear to begin in the future start again from now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from grpc_backoff.base_errors import OptionError
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerSchemaError, LedgerUnavailableError
from grpc_backoff.ledger.metadata import encode_metadata
from grpc_backoff.ledger.records import (
    LOST,
    AttemptReport,
    Filter,
    Lease,
    Operation,
    OperationAttempt,
    OperationState,
    Queue,
    Readiness,
    Recorded,
    Submission,
    Submitted,
)
from grpc_backoff.ledger.schema import migrations
from grpc_backoff.ledger.store import (
    COLUMNS,
    PolicyOf,
    attempt_of,
    check_process,
    check_version,
    operation_of,
    queue_of,
    readiness,
)
from grpc_backoff.ledger.transitions import Change, Standing, after_failure, after_loss, after_success, ledger_policy
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.ledger import LedgerSettings

ResultT = TypeVar("ResultT")

_URI = "file:"
_OLDEST = (3, 35, 0)  # the first version with RETURNING
_JUMP = 1.0
"""If the clock is more than this many seconds behind a stored time, it was set back."""

_SUBMIT = (
    "INSERT INTO ledger_operations (id, target, method, request, metadata, policy, state, attempts, recorded, step, "
    "refreshed, next_attempt_at, trace_id, lease_token, idempotency_key, created, began) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', 0, 0, 0, 0, ?9, ?7, 0, ?8, ?9, ?9) "
    "ON CONFLICT DO NOTHING"  # on the id or on the key: an existing row is left unchanged
)
_COLUMNS = ", ".join(COLUMNS)
_OPERATION = f"SELECT {_COLUMNS} FROM ledger_operations"
_CLAIM = (
    "UPDATE ledger_operations SET state = 'in_progress', lease_owner = :owner, lease_began = :now, "
    "lease_until = :now + :lease, lease_seconds = :lease, lease_token = lease_token + 1, "
    "claimed_from = next_attempt_at, next_attempt_at = NULL WHERE seq IN ("
    "SELECT seq FROM ledger_operations WHERE target = :target AND next_attempt_at <= :now "
    f"ORDER BY next_attempt_at, seq LIMIT :limit) RETURNING seq, {_COLUMNS}"
)
_NO_LEASE = "lease_owner = NULL, lease_began = NULL, lease_until = NULL, lease_seconds = NULL, claimed_from = NULL"
_RELEASE = (
    "UPDATE ledger_operations SET state = CASE attempts WHEN 0 THEN 'pending' ELSE 'waiting_for_retry' END, "
    f"next_attempt_at = claimed_from, {_NO_LEASE} WHERE id = ? AND lease_token = ? AND state = 'in_progress'"
)
_STANDING = (
    "SELECT state, attempts, step, previous, refreshed, lease_token, began, recorded, lease_began "
    "FROM ledger_operations WHERE id = ?"
)


class SQLiteStore:
    """A store in one file; see `Store`."""

    def __init__(self, path: str, settings: LedgerSettings, clock: Callable[[], float] = time.time) -> None:
        """Open the file, or create it; `clock` returns the seconds since the epoch.

        Raises:
            LedgerUnavailableError: the file cannot be opened, or is not a database.
            LedgerSchemaError: the SQLite library is too old.
        """
        self._path = path
        self._settings = settings
        self._now = clock
        if sqlite3.sqlite_version_info < _OLDEST:
            needed = ".".join(map(str, _OLDEST))
            raise LedgerSchemaError(f"sqlite={sqlite3.sqlite_version}: expected at least {needed}")
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, "grpc-backoff-ledger")

    # Execution.

    async def _run(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Run a function on the store's thread; once begun, it runs to its end even if the caller is cancelled."""
        if self._closed:
            raise LedgerUnavailableError(f"{self._path}: the ledger is closed")
        check_process(self._path, self._process)
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._work, work))

    def _work(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        with self._telling():
            if self._connection is None:
                self._connection = self._open()
            return work(self._connection)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._settings.lock_timeout,
            isolation_level=None,
            uri=self._path.startswith(_URI),
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Translate the errors that SQLite raises in the block."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                seconds = self._settings.lock_timeout
                raise LedgerBusyError(
                    f"{self._path}: gave up after {seconds:g} s waiting for another process's lock; nothing was written"
                ) from error
            raise LedgerUnavailableError(f"{self._path}: {_PROBLEMS.get(name, str(error))}") from error

    @contextlib.contextmanager
    def _writing(self, connection: sqlite3.Connection) -> Iterator[float]:
        """Hold the file's lock for one transaction (LG-2), and yield the time at which it was acquired."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._now()
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        """Close the file when pending work is done."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:  # the file belongs to the parent
            return
        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)

    # The tables.

    async def migrate(self, *, apply: bool) -> tuple[int, int]:
        """Bring the tables to this library's version (LG-13); a file that is rejected is left unchanged."""
        if not apply and not await asyncio.to_thread(self._is_there):  # opening it would create it
            raise LedgerSchemaError(
                f"{self._path}: expected a database, but there is no such file; run `grpc-backoff ledger migrate`"
            )
        return await self._run(lambda connection: self._migrate(connection, apply=apply))

    def _is_there(self) -> bool:
        path = self._path
        if path.startswith(_URI):
            path = unquote(path.removeprefix(_URI).partition("?")[0])
        return path in ("", ":memory:") or Path(path).exists()

    def _migrate(self, connection: sqlite3.Connection, *, apply: bool) -> tuple[int, int]:
        known = migrations("sqlite")
        before = _version(connection)
        newest = known[-1].number
        if before != newest:
            check_version(self._path, before, newest, apply=apply)
        connection.execute("PRAGMA journal_mode = WAL")
        if before == newest:
            return before, before
        with self._writing(connection):
            before = _version(connection)  # another process may have migrated already
            connection.execute("CREATE TABLE IF NOT EXISTS ledger_schema (version INTEGER NOT NULL)")
            for migration in known[before:]:
                for statement in _statements(migration.sql):
                    connection.execute(statement)
                connection.execute("DELETE FROM ledger_schema")
                connection.execute("INSERT INTO ledger_schema (version) VALUES (?)", (migration.number,))
        return before, newest

    # Submitting.

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Store operations, all or none (LG-9)."""

        def submit(connection: sqlite3.Connection) -> list[Submitted]:
            with self._writing(connection) as now:
                return [_submit(connection.cursor(), submission, now) for submission in submissions]

        return await self._run(submit)

    def submit_within(self, connection: Any, submissions: Sequence[Submission]) -> list[Submitted]:
        """Store operations in the caller's own transaction (LG-9)."""
        if not isinstance(connection, sqlite3.Connection):
            kind = type(connection)
            raise TypeError(
                f"within={kind.__module__}.{kind.__name__}: expected a sqlite3.Connection for an SQLite ledger"
            )
        if not connection.in_transaction and _commits_by_itself(connection):
            raise OptionError(
                "within",
                "sqlite3.Connection in autocommit mode",
                "a connection with an open transaction: execute BEGIN first",
            )
        cursor = connection.cursor()
        cursor.row_factory = None  # the connection's own row factory may be anything
        with self._telling():
            if not connection.in_transaction:
                cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("SAVEPOINT grpc_backoff")  # all or none, however the caller handles an error
            try:
                now = self._now()
                return [_submit(cursor, submission, now) for submission in submissions]
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK TO grpc_backoff")
                raise
            finally:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("RELEASE grpc_backoff")

    def statement(self, submission: Submission) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL that stores an operation, for any driver with `?1` parameters."""
        return _SUBMIT, _parameters(submission, self._now())

    # Delivering.

    async def claim(self, target: str, limit: int, owner: str, lease: float) -> list[Operation]:
        """Claim ready operations, oldest first (LG-6)."""

        def claim(connection: sqlite3.Connection) -> list[Operation]:
            with self._writing(connection) as now:
                given = {"owner": owner, "now": now, "lease": lease, "target": target, "limit": limit}
                rows = connection.execute(_CLAIM, given).fetchall()
            return [operation_of(row[1:]) for row in sorted(rows, key=lambda row: row[0])]

        return await self._run(claim)

    async def extend(self, leases: Sequence[Lease], lease: float) -> set[str]:
        """Extend the leases that are still held (LG-6)."""

        def extend(connection: sqlite3.Connection) -> set[str]:
            with self._writing(connection) as now:
                statement = (
                    "UPDATE ledger_operations SET lease_until = ?, lease_seconds = ? "
                    "WHERE id = ? AND lease_token = ? AND state = 'in_progress'"
                )
                return {
                    each.id
                    for each in leases
                    if connection.execute(statement, (now + lease, lease, each.id, each.token)).rowcount
                }

        return await self._run(extend)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Return claimed operations to the state before their claim (LG-10)."""

        def release(connection: sqlite3.Connection) -> None:
            with self._writing(connection):
                connection.executemany(_RELEASE, leases)

        await self._run(release)

    async def record(self, reports: Sequence[AttemptReport]) -> list[Recorded | LedgerBusyError]:
        """Record the ends of attempts in one transaction (LG-2)."""

        def record(connection: sqlite3.Connection) -> list[Recorded | LedgerBusyError]:
            with self._writing(connection) as now:
                return [self._record(connection, report, now) for report in reports]

        return await self._run(record)

    def _record(self, connection: sqlite3.Connection, report: AttemptReport, now: float) -> Recorded:
        row = connection.execute(_STANDING, (report.id,)).fetchone()
        if row is None:
            return Recorded(report.id, None)
        standing = _standing(row, now)
        if report.failure is None:
            code, change = "OK", after_success(standing, report.token)
        else:
            code = report.failure.code
            change = after_failure(
                ledger_policy(report.policy),
                standing,
                report.token,
                report.failure,
                draw=report.draw,
                can_refresh=report.can_refresh,
            )
        started = row[8] if change.live and report.token is not None else None
        end = _End(report.id, report.token, started, now, code, report.details)
        return _write(connection, end, standing, change, row[7])

    async def lost(self, target: str | None, policy_of: PolicyOf, rng: Random, limit: int) -> list[Recorded]:
        """End the leases that have expired, and record their attempts as lost (LG-6)."""

        def lost(connection: sqlite3.Connection) -> list[Recorded]:
            now = self._now()
            if not self._any_lost(connection, now):
                return []
            with self._writing(connection) as now:
                _set_back(connection, now)
                rows = connection.execute(
                    "SELECT id, policy, lease_token FROM ledger_operations WHERE lease_until <= ? "
                    "AND (?2 IS NULL OR target = ?2) ORDER BY lease_until LIMIT ?3",
                    (now, target, limit),
                ).fetchall()
                return [self._lose(connection, *row, policy_of=policy_of, rng=rng, now=now) for row in rows]

        return await self._run(lost)

    def _any_lost(self, connection: sqlite3.Connection, now: float) -> bool:
        ended = "EXISTS (SELECT 1 FROM ledger_operations WHERE lease_until <= ?1)"
        return bool(connection.execute(f"SELECT {ended} OR {_IN_THE_FUTURE}", (now, now + _JUMP)).fetchone()[0])

    def _lose(
        self,
        connection: sqlite3.Connection,
        operation: str,
        policy: str,
        token: int,
        *,
        policy_of: PolicyOf,
        rng: Random,
        now: float,
    ) -> Recorded:
        row = connection.execute(_STANDING, (operation,)).fetchone()
        standing = _standing(row, now)
        change = after_loss(ledger_policy(policy_of(policy)), standing, draw=rng.random())
        return _write(connection, _End(operation, token, row[8], now, LOST, None), standing, change, row[7])

    async def next_due(self, target: str) -> float | None:
        """Return the seconds until the next operation may be claimed; None if there is none."""

        def due(connection: sqlite3.Connection) -> float | None:
            row = connection.execute(
                "SELECT min(next_attempt_at) FROM ledger_operations WHERE target = ? AND next_attempt_at IS NOT NULL",
                (target,),
            ).fetchone()
            return None if row[0] is None else max(0.0, row[0] - self._now())

        return await self._run(due)

    async def set_backoff(self, id: str, seconds: float) -> bool:  # noqa: A002 - the term used for operations
        """Write a backoff and its timestamp atomically; return whether a waiting operation had this id."""

        def write(connection: sqlite3.Connection) -> bool:
            with self._writing(connection) as now:
                return bool(
                    connection.execute(
                        "UPDATE ledger_operations SET state = 'waiting_for_retry', backoff_request_seconds = ?1, "
                        "last_attempted_at = ?2, next_attempt_at = ?2 + ?1 WHERE id = ?3 "
                        "AND state IN ('pending', 'waiting_for_retry')",
                        (seconds, now, id),
                    ).rowcount
                )

        return await self._run(write)

    # Queries.

    async def ready(self, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""

        def look(connection: sqlite3.Connection) -> list[Readiness]:
            now = self._now()
            where, given = _where(which, now)
            rows = connection.execute(
                "SELECT id, state, policy, step, backoff_request_seconds, last_attempted_at, next_attempt_at, "
                f"lease_until FROM ledger_operations{where} ORDER BY seq LIMIT ?",
                (*given, limit),
            ).fetchall()
            return [readiness(row, now, policy_of) for row in rows]

        return await self._run(look)

    async def find(self, which: Filter, limit: int) -> list[Operation]:
        """Return the operations that match a filter, oldest first."""

        def find(connection: sqlite3.Connection) -> list[Operation]:
            where, given = _where(which, self._now())
            rows = connection.execute(f"{_OPERATION}{where} ORDER BY seq LIMIT ?", (*given, limit)).fetchall()
            return [operation_of(row) for row in rows]

        return await self._run(find)

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order."""

        def read(connection: sqlite3.Connection) -> list[OperationAttempt]:
            rows = connection.execute(
                "SELECT number, started, ended, code, delay, source FROM ledger_attempts WHERE operation_id = ? "
                "ORDER BY number",
                (id,),
            )
            return [attempt_of(row) for row in rows]

        return await self._run(read)

    async def queue(self, target: str | None) -> Queue:
        """Return how many operations there are in each state, and the age of the oldest unfinished one."""

        def look(connection: sqlite3.Connection) -> Queue:
            rows = connection.execute(
                "SELECT state, count(*), min(created) FROM ledger_operations WHERE ?1 IS NULL OR target = ?1 "
                "GROUP BY state",
                (target,),
            ).fetchall()
            now = self._now()
            return queue_of((state, count, now - created) for state, count, created in rows)

        return await self._run(look)

    async def waiting(self, limit: int) -> int:
        """Return how many operations are unfinished."""

        def count(connection: sqlite3.Connection) -> int:
            statement = (
                "SELECT count(*) FROM (SELECT 1 FROM ledger_operations "
                "WHERE state IN ('pending', 'waiting_for_retry', 'in_progress') LIMIT ?)"
            )
            return int(connection.execute(statement, (limit,)).fetchone()[0])

        return await self._run(count)

    # Manual actions.

    async def begin_anew(
        self, ids: Sequence[str], states: Sequence[OperationState], request: bytes | None
    ) -> list[str]:
        """Make operations in these states pending again (LG-7)."""

        def begin(connection: sqlite3.Connection) -> list[str]:
            with self._writing(connection) as now:
                statement = (
                    "UPDATE ledger_operations SET state = 'pending', attempts = 0, step = 0, previous = NULL, "
                    "refreshed = 0, backoff_request_seconds = NULL, next_attempt_at = ?1, began = ?1, finished = NULL, "
                    f"request = coalesce(?2, request) WHERE id = ?3 AND state IN ({_texts(states)})"
                )
                return [each for each in ids if connection.execute(statement, (now, request, each)).rowcount]

        return await self._run(begin)

    async def discard(self, ids: Sequence[str]) -> list[str]:
        """Discard operations that have not succeeded (LG-7)."""

        def discard(connection: sqlite3.Connection) -> list[str]:
            with self._writing(connection) as now:
                statement = (
                    "UPDATE ledger_operations SET state = 'discarded', finished = ?, next_attempt_at = NULL, "
                    f"{_NO_LEASE} WHERE id = ? AND state NOT IN ('succeeded', 'discarded')"
                )
                return [each for each in ids if connection.execute(statement, (now, each)).rowcount]

        return await self._run(discard)

    async def prune(self, keep: float, states: Sequence[OperationState], limit: int) -> int:
        """Delete operations that finished long ago (LG-11)."""

        def prune(connection: sqlite3.Connection) -> int:
            with self._writing(connection) as now:
                statement = (
                    "DELETE FROM ledger_operations WHERE seq IN (SELECT seq FROM ledger_operations "
                    f"WHERE state IN ({_texts(states)}) AND finished <= ? LIMIT ?)"
                )
                return connection.execute(statement, (now - keep, limit)).rowcount

        return await self._run(prune)

    # Notifications. SQLite has none, so the processes poll.

    async def notify(self, target: str) -> None:
        """Do nothing, because SQLite has no notifications; other processes poll."""

    def listen(self, heard: Callable[[str], None]) -> None:
        """Do nothing, because SQLite has no notifications."""


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

_IN_THE_FUTURE = (
    "EXISTS (SELECT 1 FROM ledger_operations WHERE next_attempt_at IS NOT NULL AND last_attempted_at > ?2) "
    "OR EXISTS (SELECT 1 FROM ledger_operations WHERE state = 'pending' AND began > ?2) "
    "OR EXISTS (SELECT 1 FROM ledger_operations WHERE lease_until IS NOT NULL AND lease_until - lease_seconds > ?2)"
)


def _set_back(connection: sqlite3.Connection, now: float) -> None:
    """Restart waits that begin in the future because the host's clock was set back (LG-12)."""
    given = (now, now + _JUMP)
    connection.execute(
        "UPDATE ledger_operations SET last_attempted_at = ?1, "
        "next_attempt_at = ?1 + coalesce(backoff_request_seconds, 0) "
        "WHERE next_attempt_at IS NOT NULL AND last_attempted_at > ?2",
        given,
    )
    connection.execute(
        "UPDATE ledger_operations SET created = min(created, ?1), began = ?1, next_attempt_at = ?1 "
        "WHERE state = 'pending' AND began > ?2",
        given,
    )
    connection.execute(
        "UPDATE ledger_operations SET lease_until = ?1 + lease_seconds "
        "WHERE lease_until IS NOT NULL AND lease_until - lease_seconds > ?2",
        given,
    )


class _End:
    """An attempt's end, as recorded in its row."""

    def __init__(
        self, operation: str, token: int | None, started: float | None, ended: float, code: str, details: str | None
    ) -> None:
        self.operation = operation
        self.token = token
        self.started = started
        self.ended = ended
        self.code = code
        self.details = details


def _write(connection: sqlite3.Connection, end: _End, standing: Standing, change: Change, recorded: int) -> Recorded:
    """Write the row of an attempt and the operation's new state together (LG-2)."""
    added = not _completed(connection, end)
    if added:
        connection.execute(
            "INSERT INTO ledger_attempts (operation_id, number, token, started, ended, code, delay, source) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (end.operation, recorded + 1, end.token, end.started, end.ended, end.code, change.delay, change.source),
        )
    attempts = standing.attempts + added
    told = Recorded(
        end.operation, change.state, attempts, end.code, change.delay, change.source, change.reason, change.live
    )
    if not change.live and change.state is standing.state:  # another attempt, but the same state
        connection.execute(
            "UPDATE ledger_operations SET attempts = ?, recorded = ? WHERE id = ?",
            (attempts, recorded + added, end.operation),
        )
        return told
    waits = change.delay is not None
    connection.execute(
        "UPDATE ledger_operations SET state = ?, attempts = ?, recorded = ?, step = ?, previous = ?, refreshed = ?, "
        "backoff_request_seconds = ?, last_attempted_at = ?, next_attempt_at = ?, code = ?, details = ?, finished = ?, "
        f"{_NO_LEASE} WHERE id = ?",
        (
            change.state.value,
            attempts,
            recorded + added,
            change.step,
            change.previous,
            change.refreshed,
            change.delay,
            end.ended,
            end.ended + change.delay if change.delay is not None else None,
            end.code,
            end.details,
            None if waits else end.ended,
            end.operation,
        ),
    )
    return told


def _completed(connection: sqlite3.Connection, end: _End) -> bool:
    """Complete the row of an attempt that was recorded as lost; return whether there is such a row."""
    if end.token is None:
        return False
    return bool(
        connection.execute(
            "UPDATE ledger_attempts SET code = ?, ended = ? WHERE operation_id = ? AND token = ?",
            (end.code, end.ended, end.operation, end.token),
        ).rowcount
    )


def _commits_by_itself(connection: sqlite3.Connection) -> bool:
    """Return whether the connection is in autocommit mode, where a transaction begun here would never be committed."""
    return connection.isolation_level is None or getattr(connection, "autocommit", None) is True  # since Python 3.12


def _submit(cursor: sqlite3.Cursor, submission: Submission, now: float) -> Submitted:
    if cursor.execute(_SUBMIT, _parameters(submission, now)).rowcount:
        return Submitted(submission.id, new=True)
    row = cursor.execute(
        "SELECT id FROM ledger_operations WHERE id = ? OR method = ? AND idempotency_key = ?",
        (submission.id, submission.method, submission.idempotency_key),
    ).fetchone()
    return Submitted(row[0], new=False)


def _parameters(submission: Submission, now: float) -> tuple[Any, ...]:
    id_, target, method, request, metadata, policy, trace_id, key = submission
    return id_, target, method, request, encode_metadata(metadata), policy, trace_id, key, now


def _standing(row: Sequence[Any], now: float) -> Standing:
    state, attempts, step, previous, refreshed, token, began = row[:7]
    return Standing(OperationState(state), attempts, step, previous, bool(refreshed), token, now - began)


def _where(which: Filter, now: float) -> tuple[str, list[Any]]:
    terms: list[str] = []
    given: list[Any] = []
    if which.ids is not None:
        terms.append(f"id IN ({', '.join('?' * len(which.ids))})")
        given += which.ids
    if which.states:
        terms.append(f"state IN ({_texts(which.states)})")
    for column, value in (("target", which.target), ("method", which.method)):
        if value is not None:
            terms.append(f"{column} = ?")
            given.append(value)
    if which.older_than is not None:
        terms.append("created <= ?")
        given.append(now - which.older_than)
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), given


def _texts(states: Sequence[OperationState]) -> str:
    return ", ".join(f"'{state.value}'" for state in states)


def _version(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ledger_schema'").fetchone()
    row = connection.execute("SELECT version FROM ledger_schema").fetchone() if found else None
    return 0 if row is None else int(row[0])


def _statements(sql: str) -> Iterator[str]:
    """Split a file into its statements, because `executescript` would commit an open transaction."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
