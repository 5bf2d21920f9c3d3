"""A ledger in PostgreSQL, for any number of processes and hosts. Needs psycopg 3, from the extra `postgres`.

It uses a few connections, opened on demand, and one more that listens. It sets nothing for a session and prepares no
statements, so that PgBouncer can be used, even in transaction mode. Only LISTEN does not work through PgBouncer, so
deliverers then rely on polling. All times are the server's (LG-12).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import LiteralString, TypeVar

from grpc_backoff.base.base_errors import MissingExtra, OptionError
from grpc_backoff.ledger import claiming, submitting
from grpc_backoff.ledger.errors import (
    LedgerBusyError,
    LedgerError,
    LedgerLimitError,
    LedgerStateError,
    LedgerUnavailableError,
    first_line,
    rejection,
    wrong_type,
)
from grpc_backoff.ledger.records import AttemptReport, OperationState, Recorded, Submission, Submitted
from grpc_backoff.ledger.schema import MIGRATION_LOCK, migrations, upgrade
from grpc_backoff.ledger.statements import NO_LEASE, PARAMETER, Access, Plan, Row, Statement, follow, follow_async, one
from grpc_backoff.ledger.store import Store, check_version
from grpc_backoff.policy.ledger_settings import LedgerSettings

try:
    import psycopg
    from psycopg.abc import Buffer
    from psycopg.adapt import AdaptersMap, Loader
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import Format, TransactionStatus
    from psycopg.rows import TupleRow, tuple_row
except ImportError as error:
    if "libpq" in str(error):  # psycopg is installed, but neither the library nor psycopg's own copy of it
        raise ImportError(
            "psycopg needs the library libpq: install libpq5, or pip install 'psycopg[binary]'"
        ) from error
    raise MissingExtra("postgres", "a ledger in PostgreSQL") from error

ResultT = TypeVar("ResultT")
_IDLE = TransactionStatus.IDLE
_CHANNEL = "grpc_backoff_ledger"
_CONNECTIONS = 4
_HEARTBEAT = 10.0
"""Seconds of silence after which the listening connection is checked."""
_MIGRATING = 3600.0
"""Seconds that migrations may take, regardless of `timeout`, because creating an index on a large table takes a while.
"""
_RELISTEN = 1.0
"""Seconds between attempts to listen again; deliverers poll in the meantime."""
_UNTIDY = 500
"""The number of dead tuples from which they are removed without waiting for autovacuum."""
_UNTIDINESS = Statement(
    "SELECT coalesce(sum(n_dead_tup), 0), coalesce(bool_or(relname = 'operations' "
    "AND n_mod_since_analyze > 50 + 0.5 * n_live_tup), false) "
    "FROM pg_stat_all_tables WHERE schemaname = 'grpc_backoff'",
    {},
)
"""The number of dead tuples, and whether most operations have changed since they were analyzed.

Attempts are found by their key, whatever the planner knows of them.
"""
_SLACK = 10.0
"""Seconds before the first operation that is due, from which on claims look."""
_EPOCH = 946_684_800  # PostgreSQL counts from the year 2000; this is its distance to 1970, in seconds
_INFINITE = {b"\x7f" + 7 * b"\xff": math.inf, b"\x80" + 7 * b"\x00": -math.inf}
_TYPES = (
    {"id": "uuid", "token": "bigint", "request": "bytea", "response": "bytea", "refreshed": "boolean"}
    | dict.fromkeys(("attempts", "recorded", "step", "keep_response"), "integer")
    | dict.fromkeys(("started", "ended", "began", "finished", "not_before", "not_after"), "double precision")
    | dict.fromkeys(("previous", "delay"), "double precision")
)
"""The types of the columns that `_table` passes in; those of all others are text."""
_ENDED = ("08", "57P")
"""Classes of errors that end a connection, whatever their severity: PgBouncer's own, and the operator's."""
_REJECTING = ("22", "23", "44", "P0")
"""Classes of errors about a row: its data, a constraint, a view's condition, and what a trigger raised."""
_UNSENT = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.errors.PipelineAborted)
"""Errors that psycopg raises by itself for a value or a statement that it does not send, or after an error before."""
_SUCCEEDED = (
    ", held AS (SELECT o.seq, o.id, r.token, o.recorded + 1 AS number, o.lease_began, clock_timestamp() AS ended "
    "FROM grpc_backoff.operations o JOIN r ON o.id = r.id AND o.lease_token = r.token "
    "WHERE o.state = 'in_progress' AND isfinite(o.began) AND isfinite(o.lease_began) AND isfinite(o.lease_until) "
    "AND coalesce(abs(o.previous), 0) < 'Infinity' FOR UPDATE OF o SKIP LOCKED), "
    "added AS (INSERT INTO grpc_backoff.attempts (operation_id, number, token, started, ended, code) "
    "SELECT id, number, token, lease_began, ended, 'OK' FROM held) "
    "UPDATE grpc_backoff.operations AS o SET state = 'succeeded', attempts = o.attempts + 1, recorded = held.number, "
    "backoff_request_seconds = NULL, last_attempted_at = held.ended, next_attempt_at = NULL, code = 'OK', "
    "details = NULL, reason = NULL, finished = held.ended, "
    "began = CASE o.attempts WHEN 0 THEN coalesce(o.lease_began, held.ended) ELSE o.began END, "
    f"{NO_LEASE} FROM held WHERE o.seq = held.seq RETURNING o.id, held.token, o.attempts, o.order_key"
)
"""Records successes of the operations and tokens in `r`, by the rules of `recording`, if the leases are valid, and the
rows can be read."""
_IDENTITY = Statement("SELECT id FROM grpc_backoff.identity", {})
"""The id of the ledger in a database."""


class _Seconds(Loader):
    """Loads a timestamp as seconds since the epoch, like SQLite's."""

    format = Format.BINARY

    def load(self, data: Buffer) -> float:
        return _INFINITE.get(bytes(data)) or int.from_bytes(data, "big", signed=True) / 1e6 + _EPOCH


class _Id(Loader):
    """Loads a UUID as text, like SQLite's."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return str(uuid.UUID(bytes=bytes(data)))


def _load_like_sqlite(adapters: AdaptersMap) -> None:
    adapters.register_loader("timestamptz", _Seconds)
    adapters.register_loader("uuid", _Id)


class Session(psycopg.AsyncConnection[TupleRow]):
    """A connection that tracks whether a write on it may already be durable.

    Attributes:
        committing: whether a statement that commits a write has been sent. After that, a missing answer means that the
            outcome is unknown.
        stale: whether the server is read-only, as a standby is, so that the connection must not be used again.
    """

    committing = False
    stale = False


Work = Callable[[Session], Awaitable[ResultT]]


class _Request:
    """Work for one caller; it is cut off when its time is up, even if the caller no longer waits."""

    def __init__(self) -> None:
        self.connection: Session | None = None
        self.broken = False
        self.expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expire(self, task: asyncio.Task[object]) -> None:
        if task.done():
            return
        self.expired.set_result(None)
        if self.connection is None:
            task.cancel()
        else:
            _cut(self.connection)


class PostgresStore(Store):
    """A store on a PostgreSQL server; see `Store`."""

    operations = "grpc_backoff.operations"
    attempts = "grpc_backoff.attempts"
    pauses = "grpc_backoff.paused"
    versions = "grpc_backoff.schema"
    now = "now()"
    clock = "clock_timestamp()"
    lock = " FOR UPDATE OF o"
    skip = " FOR UPDATE OF o SKIP LOCKED"
    at = "to_timestamp({})"
    later = "{0} + make_interval(secs => {1})"
    style = "format"
    # No index contains the ends of leases, but operations are claimed in the order of this one.
    expired = (
        "o.seq IN (SELECT h.seq FROM grpc_backoff.operations h WHERE h.open AND h.target = :target "
        "AND h.due >= to_timestamp(:floor) AND h.due <= now() "
        "ORDER BY h.due, h.seq LIMIT :head) AND o.lease_until <= now()"
    )
    refuse = "attempts = ('operation ' || o.id || ' already has this idempotency key, with another request')::integer"
    key_lock = "pg_advisory_xact_lock(hashtextextended({} || ' ' || {}, 0))"
    oldest = 3
    of_rows = (LedgerStateError, LedgerBusyError)
    waiting = 1.0  # NOTIFY wakes those that wait for a response
    sizes = (
        "SELECT relname = 'operations_due', reltuples FROM pg_class c "
        "WHERE c.oid IN ('grpc_backoff.operations_due'::regclass, 'grpc_backoff.operations_finished'::regclass)"
    )

    def __init__(self, url: str, settings: LedgerSettings) -> None:
        """Prepare to connect on first use; `url` is any URL that libpq accepts.

        Raises:
            LedgerUnavailableError: the URL is not valid.
        """
        super().__init__(_name_of(url), settings)
        self._url = url
        self._free: list[Session] = []
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._listener: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._identity: str | None = None

    # Execution.

    async def _connect(self) -> Session:
        seconds = self._settings.timeout
        limit = max(2, round(seconds))  # libpq's minimum is two
        try:
            async with asyncio.timeout(seconds):
                session = await Session.connect(
                    self._url,
                    autocommit=True,
                    prepare_threshold=None,
                    connect_timeout=limit,
                    client_encoding="UTF8",  # with that of an SQL_ASCII database, text would be read as bytes
                )
        except TimeoutError:
            raise LedgerUnavailableError(f"{self._name}: no connection within {seconds:g} s") from None
        except psycopg.Error as error:
            raise LedgerUnavailableError(f"{self._name}: cannot connect: {first_line(error)}") from error
        _load_like_sqlite(session.adapters)
        return session

    async def _transact(self, plan: Callable[[], Plan[ResultT]], access: Access, share: float) -> ResultT:
        seconds = self._settings.timeout * share
        return await self._connected(lambda session: self._follow(session, plan(), access), seconds)

    async def _follow(self, session: Session, plan: Plan[ResultT], access: Access) -> ResultT:
        """Run a plan. In a transaction, statements without an answer are sent together with COMMIT (LG-2).

        So is a single statement.
        """
        single = access is Access.LIMITED

        def execute(statements: list[Statement]) -> Awaitable[list[list[Row]]]:
            return _execute(session, statements, commit=session if single else None)

        if access is not Access.TRANSACTION and not single:
            session.committing = access is Access.STATEMENT
            return await follow_async(plan, execute)
        first: BaseException | None = None
        try:
            async with session.pipeline():
                try:
                    await session.execute("BEGIN")
                    await self._limit_locks(session)
                    result = await follow_async(plan, execute)
                    if not single:
                        await _commit(session)
                except BaseException as error:  # noqa: BLE001 - raised below, because psycopg would log a second one
                    first = error
        except psycopg.Error as error:
            first = first or error
        if first is not None:
            raise first
        return result

    def typed(self, new: str) -> str:
        """Return a list of parameters with their types, which a SELECT needs."""
        return re.sub(PARAMETER, lambda match: f"{match[0]}::{_TYPES.get(match[1], 'text')}", new)

    def possible(self, ids: Sequence[str]) -> Sequence[str]:
        """Return those of some ids that are UUIDs."""
        return [id_ for id_ in super().possible(ids) if _is_uuid(id_)]

    def table(self, columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, dict[str, object]]:
        """Return a query that returns these rows, from arrays, and its parameters."""
        arrays = ", ".join(f":{column}_s::{_TYPES.get(column, 'text')}[]" for column in columns)
        lists = zip(*rows, strict=True) if rows else [()] * len(columns)
        return f"SELECT * FROM unnest({arrays})", {
            f"{c}_s": list(values) for c, values in zip(columns, lists, strict=True)
        }

    async def _connected(self, work: Work[ResultT], seconds: float) -> ResultT:
        """Run a function on a connection, for up to this many seconds.

        If the caller is cancelled, work that has begun continues up to the same limit. When the time is up, the
        connection is cut; the server then rolls back anything uncommitted, and nothing here waits for it.
        """
        self._check_usable()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise LedgerUnavailableError(
                f"{self._name}: the ledger belongs to another event loop; "
                "threads share a grpc_backoff.ledger.sync.Ledger"
            )
        request = _Request()
        task = asyncio.ensure_future(self._work(work, request))
        limit = loop.call_later(seconds, request.expire, task)
        task.add_done_callback(lambda _: limit.cancel())
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # its caller may have been cancelled
        await asyncio.wait((task, request.expired), return_when=asyncio.FIRST_COMPLETED)
        if request.expired.done():
            unknown = request.connection is not None and request.connection.committing
            stored = None if unknown else False
            raise LedgerUnavailableError(f"{self._name}: no answer within {seconds:g} s", stored=stored)
        return task.result()

    async def _work(self, work: Work[ResultT], request: _Request) -> ResultT:
        async with self._places:
            while self._free:
                connection = self._free.pop()
                if _was_ended(connection):
                    await connection.close()
                    await self._forget_free()
                    break
                try:
                    return await self._work_on(connection, work, request)
                except LedgerUnavailableError as error:
                    if error.stored is not False or not request.broken or request.expired.done():
                        raise
                # The server has closed this connection, or is a standby now, and most likely so it is with the others.
                # Retry once, on a new connection.
                request.connection = None
                await self._forget_free()
            return await self._work_on(await self._connect(), work, request)

    async def _work_on(self, connection: Session, work: Work[ResultT], request: _Request) -> ResultT:
        connection.committing = False
        request.connection = connection
        try:
            return await self._told(connection, work)
        finally:
            request.broken = connection.broken or connection.stale
            if not connection.broken and connection.pgconn.transaction_status != _IDLE:
                with contextlib.suppress(psycopg.Error):
                    await connection.rollback()
            if self._closed or request.broken or connection.pgconn.transaction_status != _IDLE:
                await connection.close()
            else:
                self._free.append(connection)

    async def _forget_free(self) -> None:
        while self._free:
            await self._free.pop().close()

    async def _told(self, connection: Session, work: Work[ResultT]) -> ResultT:
        """Run the work and translate the server's errors."""
        try:
            return await work(connection)
        except psycopg.errors.LockNotAvailable as error:
            raise LedgerBusyError(
                f"{self._name}: gave up after {self._settings.lock_timeout:g} s waiting for another transaction's "
                "lock; nothing was written"
            ) from error
        except psycopg.errors.DeadlockDetected as error:
            raise LedgerBusyError(f"{self._name}: a deadlock with another transaction; nothing was written") from error
        except psycopg.errors.ProgramLimitExceeded as error:
            raise LedgerLimitError(
                f"{self._name}: the target, the method and a key are too long together for an index of PostgreSQL: "
                f"{first_line(error)}"
            ) from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            connection.stale = True
            raise LedgerUnavailableError(
                f"{self._name}: the server is read-only, as a standby is ({first_line(error)}); with several hosts, "
                "add target_session_attrs=read-write to the URL"
            ) from error
        except psycopg.Error as error:
            # A DataError may be psycopg's own, for a value that it cannot send.
            if isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith(_REJECTING):
                raise rejection(self._name, error) from error
            unheard = connection.committing and is_in_doubt(error, broken=connection.broken)
            raise LedgerUnavailableError(
                f"{self._name}: {first_line(error)}", stored=None if unheard else False
            ) from error

    async def _limit_locks(self, connection: Session) -> None:
        milliseconds = str(max(1, round(self._settings.lock_timeout * 1000)))
        await connection.execute("SELECT set_config('lock_timeout', %s, true)", (milliseconds,))

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if os.getpid() != self._process:  # closing a connection would close the parent's
            return
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._forget_free()

    # The tables.

    async def migrate(self, *, apply: bool, needed_only: bool = False) -> tuple[int, int]:
        """Bring the tables to this library's version (LG-13), unless they can be used as they are (LG-18)."""
        known = migrations("postgres")
        newest = len(known)

        async def migrate(connection: Session) -> tuple[int, int]:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                await self._limit_locks(connection)  # on table locks, because other writers queue behind them
                before = await _version(connection)  # another process may have migrated already
                # Do not use IF NOT EXISTS, which requires the CREATE privilege even if the schema exists.
                if not await _rows(connection, "SELECT 1 FROM pg_namespace WHERE nspname = 'grpc_backoff'"):
                    await connection.execute("CREATE SCHEMA grpc_backoff")
                for sql in upgrade(known, before, "grpc_backoff.schema"):
                    await connection.execute(sql.encode())
                connection.committing = True
            return before, newest

        before = await self._connected(_version, self._settings.timeout)
        versions = before, before
        check_version(self._name, before, newest, apply=apply, oldest=self.oldest)
        if apply and before < (self.oldest if needed_only else newest):
            versions = await self._connected(migrate, _MIGRATING)
        self._version = versions[1]
        if not self.is_oldest:
            [(self._identity,)] = await self.run(lambda: one(_IDENTITY), Access.READ)
        return versions

    # Submitting.

    def submit_within(
        self, connection: object, submissions: Sequence[Submission]
    ) -> Coroutine[object, object, list[Submitted]]:
        """Store operations in the caller's own transaction and wake deliverers when it commits."""
        self._check_usable()
        if not isinstance(connection, psycopg.AsyncConnection | psycopg.Connection):
            allowed = "a psycopg connection for a ledger in PostgreSQL; for other drivers see Ledger.statement"
            raise TypeError(wrong_type("within", connection, allowed))
        if connection.autocommit and connection.info.transaction_status == _IDLE:
            allowed = "a connection with an open transaction: use connection.transaction()"
            raise OptionError("within", "psycopg connection in autocommit mode", allowed)
        if connection.info.parameter_status("client_encoding") == "SQL_ASCII":
            allowed = "a connection with another one, such as client_encoding=UTF8"
            raise OptionError("within", "psycopg connection with client_encoding=SQL_ASCII", allowed)
        plan = self._submitting_and_waking(submissions)
        if isinstance(connection, psycopg.AsyncConnection):
            return follow_async(plan, functools.partial(_execute, connection))
        return asyncio.to_thread(follow, plan, functools.partial(_execute_sync, connection))

    def _submitting_and_waking(self, submissions: Sequence[Submission]) -> Plan[list[Submitted]]:
        _, *found = yield [
            Statement("SAVEPOINT grpc_backoff", {}, answers=False),  # all or none, however the caller handles errors
            *([] if self._identity is None else [_IDENTITY]),
        ]
        if found != ([] if self._identity is None else [[(self._identity,)]]):
            yield [Statement("RELEASE SAVEPOINT grpc_backoff", {}, answers=False)]
            raise OptionError("within", "a connection to another ledger", f"a connection to {self._name}")
        try:
            answers = yield from submitting.plan(self, submissions)
        except LedgerError:
            yield [Statement("ROLLBACK TO SAVEPOINT grpc_backoff", {}, answers=False)]
            raise
        yield [
            Statement("RELEASE SAVEPOINT grpc_backoff", {}, answers=False),
            *(_notice(target) for target in {submission.target for submission in submissions}),
        ]
        return answers

    # Delivering.

    async def record_plain(self, reports: Sequence[AttemptReport]) -> dict[tuple[str, int | None], Recorded]:
        """Record successes whose lease is valid and whose row is not locked, which need no second request."""
        if not reports or self.is_oldest:  # whose tables have no reason
            return {}
        leases = [(report.id, report.token) for report in reports]
        try:
            found = await self.rows(*self.with_rows(("id", "token"), leases, _SUCCEEDED), Access.LIMITED)
        except (LedgerBusyError, LedgerStateError):  # about one of them; nothing was written
            return {}
        await claiming.take_up_after(self, [id_ for id_, _, _, order_key in found if order_key is not None])
        succeeded = OperationState.SUCCEEDED
        return {
            (id_, token): Recorded(id_, succeeded, attempts, "OK", live=True, order_key=order_key)
            for id_, token, attempts, order_key in found
        }

    async def look(self, target: str) -> None:
        """Find the earliest time at which an operation of a target may be due; claims then begin there in the index.

        While a transaction stays open, the index keeps the entries of all that was delivered since, and each claim
        would step over them. An operation whose own transaction took longer than `_SLACK`, and one that another process
        takes up, are found once this has been called again.
        """
        floors, due = self._floors, self.due("o")
        text = (
            f"SELECT coalesce((SELECT {due} FROM grpc_backoff.operations o WHERE {self.open('o')} "
            f"AND o.target = :target AND {due} <= now() ORDER BY {due}, o.seq LIMIT 1), now())"
        )
        [(first,)] = await self.rows(text, {"target": target}, Access.READ)
        floors[target] = first - _SLACK

    async def sweep(self) -> bool:
        """Remove dead tuples if there are many and count anew for the planner; autovacuum looks once a minute at most.

        With old counts, a claim sorts all that is due instead of taking the first from the index. More tuples die while
        VACUUM runs, so a sweep was in vain only if it removed less than half of those that it found.
        """
        [(found, stale)] = await self.run(lambda: one(_UNTIDINESS), Access.READ)
        if found < _UNTIDY:
            return False
        for table, also in (("operations", "ANALYZE, " if stale else ""), ("attempts", "")):
            vacuum = f"VACUUM ({also}SKIP_LOCKED, TRUNCATE false) grpc_backoff.{table}"
            await self._connected(functools.partial(Session.execute, query=vacuum.encode()), self._settings.timeout)
        [(left, _)] = await self.run(lambda: one(_UNTIDINESS), Access.READ)
        return bool(left > found / 2)

    # Notifications.

    async def notify(self, target: str) -> None:
        """Wake the deliverers of a target (LG-12)."""
        await self.run(lambda: one(_notice(target)), Access.READ)

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the target of each notification (LG-12)."""
        if self._listener is None:
            self._listener = asyncio.ensure_future(self._listen(heard))

    async def _listen(self, heard: Callable[[str], None]) -> None:
        """Listen and start again whenever the connection is lost."""
        while True:
            with contextlib.suppress(LedgerError, psycopg.Error, TimeoutError, OSError):
                await self._listen_once(heard)
            await asyncio.sleep(_RELISTEN)

    async def _listen_once(self, heard: Callable[[str], None]) -> None:
        connection = await self._connect()
        try:
            await connection.execute(f"LISTEN {_CHANNEL}")
            self.hears = True
            while True:
                async for notification in connection.notifies(timeout=_HEARTBEAT):
                    heard(notification.payload)
                async with asyncio.timeout(self._settings.timeout):
                    await connection.execute("SELECT 1")
        finally:
            self.hears = False
            await connection.close()


def _is_uuid(text: str) -> bool:
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


async def _commit(session: Session) -> None:
    session.committing = True
    await session.execute("COMMIT")


async def _execute(
    connection: psycopg.AsyncConnection[object], statements: list[Statement], *, commit: Session | None = None
) -> list[list[Row]]:
    cursors = []
    for text, params, _ in statements:
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)  # the caller's row factory may be anything
        if not isinstance(connection, Session):
            _load_like_sqlite(cursor.adapters)
        cursors.append(await cursor.execute(_in_psycopg(text), params, binary=True))
    if commit is not None:
        await _commit(commit)
    pairs = zip(cursors, statements, strict=True)
    return [[*await cursor.fetchall()] if statement.answers else [] for cursor, statement in pairs]


def _execute_sync(connection: psycopg.Connection[object], statements: list[Statement]) -> list[list[Row]]:
    found: list[list[Row]] = []
    for text, params, answers in statements:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        _load_like_sqlite(cursor.adapters)
        cursor.execute(_in_psycopg(text), params, binary=True)
        found.append([*cursor.fetchall()] if answers else [])
    return found


@functools.lru_cache(1000)
def _in_psycopg(text: str) -> bytes:
    """Return a statement with its parameters as psycopg writes them."""
    return re.sub(PARAMETER, r"%(\1)s", text).encode()


def _notice(target: str) -> Statement:
    return Statement("SELECT pg_notify(:channel, :target)", {"channel": _CHANNEL, "target": target})


async def _rows(connection: Session, statement: LiteralString) -> list[TupleRow]:
    return await (await connection.execute(statement)).fetchall()


async def _version(connection: Session) -> int:
    # Do not use `to_regclass`, which may return the state from before the lock was acquired.
    there = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'grpc_backoff' AND tablename = 'schema'"
    if not await _rows(connection, there):
        return 0
    rows = await _rows(connection, "SELECT version FROM grpc_backoff.schema")
    return int(rows[0][0]) if rows else 0


def is_in_doubt(error: psycopg.Error, *, broken: bool) -> bool:
    """Return whether an error leaves open what became of a COMMIT that was sent; `broken` is about the connection.

    A server that rejects a COMMIT says so and goes on. If it ends the connection, or a pooler such as PgBouncer says
    that it lost the server, the COMMIT may have been executed. So it may if the error is libpq's own, such as the one
    about a pipeline that cannot be left, unless psycopg raised it for what was never sent.
    """
    if error.sqlstate is None:
        return broken or not isinstance(error, _UNSENT)
    state = error.sqlstate
    ended = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return broken or ended or state.startswith(_ENDED)


def _was_ended(connection: Session) -> bool:
    """Return whether the server, or a pooler, has ended an idle connection, so that nothing is sent on it in vain."""
    try:
        for _ in range(2):  # what it said last, then the end
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return connection.broken


def _cut(connection: Session) -> None:
    """Break a connection as a network failure would; its user is notified without an answer from the server."""
    with contextlib.suppress(OSError, psycopg.Error):
        bare = socket.socket(fileno=connection.pgconn.socket)  # not a duplicate: there may be no file descriptors left
        try:
            bare.shutdown(socket.SHUT_RDWR)
        finally:
            bare.detach()


def _name_of(url: str) -> str:
    """Return the host and the name of a database, for errors. Nothing of an invalid URL is shown (LG-11)."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.Error:
        # libpq's own messages quote what they cannot parse, which may be part of a password.
        raise LedgerUnavailableError("the database URL is not valid: libpq cannot parse it") from None
    host, port, name = (str(said.get(part) or "") for part in ("host", "port", "dbname"))
    if "@" in host[1:] + name or not (port.replace(",", "") or "0").isdecimal():  # @ begins an abstract socket's name
        raise LedgerUnavailableError(
            "the database URL is not valid: percent-encode special characters in the password, such as '/', '@' and ':'"
        )
    return f"postgresql://{host}/{name}"
