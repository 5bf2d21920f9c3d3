"""A ledger in PostgreSQL, for any number of processes and hosts. Needs psycopg 3, from the extra `postgres`.

It uses a few connections, opened on demand, and one more that listens. It sets nothing for a session and prepares no
statements, so that PgBouncer can be used, even in transaction mode. Only LISTEN does not work through PgBouncer, so
deliverers then rely on polling. All times are the server's (LG-12).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from grpc_backoff.base_errors import MissingExtra
from grpc_backoff.calls.events import Reason, WaitSource
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerError, LedgerUnavailableError
from grpc_backoff.ledger.metadata import encode_metadata
from grpc_backoff.ledger.parameters import parameters
from grpc_backoff.ledger.records import (
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
)
from grpc_backoff.ledger.transitions import classify, ledger_policy, loss
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.ledger import LedgerSettings

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row
except ImportError as error:
    raise MissingExtra("postgres") from error

ResultT = TypeVar("ResultT")
_IDLE = TransactionStatus.IDLE
_SOON = 0.5
"""The fraction of the setting `timeout` that is allowed for requests that deliverers repeat anyway."""
_CHANNEL = "grpc_backoff_ledger"
_CONNECTIONS = 4
_LOCK = 0x6772_7063  # the key of the lock for migrations: "grpc" in ASCII
_HEARTBEAT = 10.0
"""Seconds of silence after which the listening connection is checked."""
_MIGRATING = 3600.0
"""Seconds that migrations may take, regardless of `timeout`, because creating an index on a large table takes a while.
"""
_RELISTEN = 1.0
"""Seconds between attempts to listen again; deliverers poll in the meantime."""

_TIMES = {"last_attempted_at", "next_attempt_at", "lease_until", "created", "began", "finished"}
_COLUMNS = ", ".join(
    f"extract(epoch FROM o.{name})::double precision" if name in _TIMES else f"o.{name}" for name in COLUMNS
)
_OPERATION = f"SELECT {_COLUMNS} FROM grpc_backoff.operations o"
_INSERT = (
    "INSERT INTO grpc_backoff.operations (id, target, method, request, metadata, policy, trace_id, idempotency_key, "
    "state, attempts, recorded, step, refreshed, next_attempt_at, lease_token, created, began) "
)
_NEW = "'pending', 0, 0, 0, false, now(), 0, now(), now()"
_ONCE = " ON CONFLICT DO NOTHING"  # on the id or on the key: an existing row is left unchanged
_SUBMIT = (
    f"{_INSERT}SELECT s.*, {_NEW} FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::text[], "
    f"%s::text[], %s::text[]) s{_ONCE} RETURNING id"
)
_KNOWN = (
    "SELECT o.id, o.method, o.idempotency_key FROM grpc_backoff.operations o WHERE o.id = ANY (%s::uuid[]) "
    "UNION SELECT o.id, o.method, o.idempotency_key FROM grpc_backoff.operations o "
    "JOIN unnest(%s::text[], %s::text[]) k (method, key) ON o.method = k.method AND o.idempotency_key = k.key"
)
_CLAIM = (
    "WITH taken AS (UPDATE grpc_backoff.operations o SET state = 'in_progress', lease_owner = %(owner)s, "
    "lease_began = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => %(lease)s), "
    "lease_token = o.lease_token + 1, claimed_from = o.next_attempt_at, next_attempt_at = NULL "
    "FROM (SELECT seq FROM grpc_backoff.operations WHERE target = %(target)s AND next_attempt_at <= now() "
    "ORDER BY next_attempt_at, seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED) due WHERE o.seq = due.seq RETURNING o.*) "
    f"SELECT {_COLUMNS} FROM taken o ORDER BY o.seq"
)
_HELD = (
    "WITH held AS (SELECT o.seq FROM grpc_backoff.operations o "
    "JOIN unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) l (id, token) ON o.id = l.id AND o.lease_token = l.token "
    "WHERE o.state = 'in_progress' ORDER BY o.id FOR UPDATE OF o"  # ordered, so that two such statements never deadlock
)
_EXTEND = (
    f"{_HELD} SKIP LOCKED) UPDATE grpc_backoff.operations o "  # the result of a locked row is being recorded
    "SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s) "
    "FROM held WHERE o.seq = held.seq RETURNING o.id"
)
_NO_LEASE = "lease_owner = NULL, lease_began = NULL, lease_until = NULL, claimed_from = NULL"
_RELEASE = (
    f"{_HELD}) UPDATE grpc_backoff.operations o "
    "SET state = CASE o.attempts WHEN 0 THEN 'pending' ELSE 'waiting_for_retry' END, next_attempt_at = o.claimed_from, "
    f"{_NO_LEASE} FROM held WHERE o.seq = held.seq"
)
_SUCCESSES = (
    "SELECT r.id, s.* FROM unnest(%s::uuid[], %s::bigint[]) r (id, token) "
    "CROSS JOIN LATERAL grpc_backoff.record_success(r.id, r.token) s"
)
_FAILURE = "SELECT * FROM grpc_backoff.record_failure(%s, %s, %s, %s, %s::jsonb, %s::jsonb, %s)"
_LOST = (
    "SELECT id, policy, lease_token FROM grpc_backoff.operations WHERE lease_until <= now() "
    "AND (%(target)s::text IS NULL OR target = %(target)s) ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
)


class Session(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that tracks whether a write on it may already be durable.

    Attributes:
        committing: whether a statement that commits a write has been sent. After that, a missing answer means that the
            outcome is unknown.
    """

    committing = False

    async def write(self, statement: str, given: Any = None) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        """Execute a statement that is its own transaction."""
        self.committing = True
        return await self.execute(statement, given)


Work = Callable[[Session], Awaitable[ResultT]]


class _Request:
    """Work for one caller; it is cut off when its time is up, even if the caller no longer waits."""

    def __init__(self) -> None:
        self.connection: Session | None = None
        self.broken = False
        self.expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def stored(self) -> bool | None:
        """What is known about the data without an answer: False if nothing was stored, None if that is unknown."""
        return None if self.connection is not None and self.connection.committing else False

    def expire(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            return
        self.expired.set_result(None)
        if self.connection is None:
            task.cancel()
        else:
            _cut(self.connection)


class PostgresStore:
    """A store on a PostgreSQL server; see `Store`."""

    def __init__(self, url: str, settings: LedgerSettings) -> None:
        """Prepare to connect on first use; `url` is any URL that libpq accepts.

        Raises:
            LedgerUnavailableError: the URL is not valid.
        """
        self._url = url
        self._name = _name_of(url)
        self._settings = settings
        self._free: list[Session] = []
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._listener: asyncio.Task[None] | None = None
        self._closed = False
        self._process = os.getpid()

    # Execution.

    async def _connect(self) -> Session:
        seconds = self._settings.timeout
        limit = max(2, round(seconds))  # libpq's minimum is two
        try:
            async with asyncio.timeout(seconds):
                return await Session.connect(self._url, autocommit=True, prepare_threshold=None, connect_timeout=limit)
        except TimeoutError:
            raise LedgerUnavailableError(f"{self._name}: no connection within {seconds:g} s") from None
        except psycopg.Error as error:
            raise LedgerUnavailableError(f"{self._name}: cannot connect: {_first_line(error)}") from error

    async def _run(self, work: Work[ResultT], share: float = 1.0, *, seconds: float | None = None) -> ResultT:
        """Run a function on a connection, for up to `seconds`; by default, for up to a share of the setting `timeout`.

        If the caller is cancelled, work that has begun continues up to the same limit. When the time is up, the
        connection is cut; the server then rolls back anything uncommitted, and nothing here waits for it.
        """
        if self._closed:
            raise LedgerUnavailableError(f"{self._name}: the ledger is closed")
        check_process(self._name, self._process)
        if seconds is None:
            seconds = self._settings.timeout * share
        request = _Request()
        task = asyncio.ensure_future(self._work(work, request))
        limit = asyncio.get_running_loop().call_later(seconds, request.expire, task)
        task.add_done_callback(lambda _: limit.cancel())
        task.add_done_callback(_ignore)
        either: set[asyncio.Future[Any]] = {task, request.expired}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if request.expired.done():
            raise LedgerUnavailableError(f"{self._name}: no answer within {seconds:g} s", stored=request.stored)
        return task.result()

    async def _work(self, work: Work[ResultT], request: _Request) -> ResultT:
        async with self._places:
            while self._free:
                connection = self._free.pop()
                try:
                    return await self._work_on(connection, work, request)
                except LedgerUnavailableError as error:
                    if error.stored is not False or not request.broken or request.expired.done():
                        raise
                # The server has closed this connection, and most likely the others as well. Retry once, on a new
                # connection.
                request.connection = None
                await self._forget_free()
            return await self._work_on(await self._connect(), work, request)

    async def _work_on(self, connection: Session, work: Work[ResultT], request: _Request) -> ResultT:
        connection.committing = False
        request.connection = connection
        try:
            return await self._told(connection, work)
        finally:
            request.broken = connection.broken
            if self._closed or connection.broken or connection.pgconn.transaction_status != _IDLE:
                await connection.close()
            else:
                self._free.append(connection)

    async def _forget_free(self) -> None:
        while self._free:
            await self._free.pop().close()

    async def _told(self, connection: Session, work: Work[ResultT]) -> ResultT:
        """Run the work, and translate the server's errors."""
        try:
            return await work(connection)
        except psycopg.errors.LockNotAvailable as error:
            raise LedgerBusyError(
                f"{self._name}: gave up after {self._settings.lock_timeout:g} s waiting for another transaction's "
                "lock; nothing was written"
            ) from error
        except psycopg.errors.DeadlockDetected as error:
            raise LedgerBusyError(f"{self._name}: a deadlock with another transaction; nothing was written") from error
        except psycopg.Error as error:
            unheard = connection.committing and error.sqlstate is None and connection.broken
            raise LedgerUnavailableError(
                f"{self._name}: {_first_line(error)}", stored=None if unheard else False
            ) from error

    @contextlib.asynccontextmanager
    async def _transaction(self, connection: Session) -> AsyncIterator[None]:
        """Run the block in a transaction that waits for locks no longer than `lock_timeout` (LG-2)."""
        async with connection.transaction():
            await self._limit_locks(connection)
            yield
            connection.committing = True

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

    async def migrate(self, *, apply: bool) -> tuple[int, int]:
        """Bring the tables to this library's version (LG-13)."""
        known = migrations("postgres")
        newest = known[-1].number

        async def migrate(connection: Session) -> tuple[int, int]:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                await self._limit_locks(connection)  # on table locks, because other writers queue behind them
                before = await _version(connection)  # another process may have migrated already
                # Do not use IF NOT EXISTS, which requires the CREATE privilege even if the schema exists.
                if not await _rows(connection, "SELECT 1 FROM pg_namespace WHERE nspname = 'grpc_backoff'", ()):
                    await connection.execute("CREATE SCHEMA grpc_backoff")
                await connection.execute("CREATE TABLE IF NOT EXISTS grpc_backoff.schema (version integer NOT NULL)")
                for migration in known[before:]:
                    await connection.execute(migration.sql)
                    await connection.execute("DELETE FROM grpc_backoff.schema")
                    await connection.execute("INSERT INTO grpc_backoff.schema VALUES (%s)", (migration.number,))
                connection.committing = True
            return before, newest

        before = await self._run(_version)
        if before == newest:
            return before, before
        check_version(self._name, before, newest, apply=apply)
        return await self._run(migrate, seconds=_MIGRATING)

    # Submitting.

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Store operations, all or none (LG-9).

        COMMIT is sent separately; if anything fails before that, it is certain that nothing was stored.
        """

        async def submit(connection: Session) -> list[Submitted]:
            async with connection.pipeline():
                await connection.execute("BEGIN")
                await self._limit_locks(connection)  # for a transaction that stores the same key
                cursor = await connection.execute(_SUBMIT, _parameters(submissions))
            new = {str(row[0]) for row in await cursor.fetchall()}
            answer = await _answers(connection, submissions, new)
            await connection.write("COMMIT")
            return answer

        try:
            return await self._run(submit)
        except LedgerUnavailableError as error:
            if error.stored is None:
                message = f"{error.args[0]}; submit again with the same idempotency key"
                raise LedgerUnavailableError(message, stored=None) from error
            raise

    def submit_within(self, connection: Any, submissions: Sequence[Submission]) -> Any:
        """Store operations in the caller's own transaction, and wake deliverers when it commits."""
        if isinstance(connection, psycopg.AsyncConnection):
            return self._submit_async(connection, submissions)
        if isinstance(connection, psycopg.Connection):
            return asyncio.to_thread(self._submit_sync, connection, submissions)
        kind = type(connection)
        raise TypeError(
            f"within={kind.__module__}.{kind.__name__}: expected a psycopg connection for a ledger in PostgreSQL; "
            "for other drivers see Ledger.statement"
        )

    async def _submit_async(self, connection: Any, submissions: Sequence[Submission]) -> list[Submitted]:
        cursor = psycopg.AsyncCursor(
            connection, row_factory=tuple_row
        )  # the connection's own row factory may be anything
        new = {str(row[0]) for row in await _rows(cursor, _SUBMIT, _parameters(submissions))}
        answers = await _answers(cursor, submissions, new)
        for target in {submission.target for submission in submissions}:
            await cursor.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, target))
        return answers

    def _submit_sync(self, connection: Any, submissions: Sequence[Submission]) -> list[Submitted]:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        new = {str(row[0]) for row in cursor.execute(_SUBMIT, _parameters(submissions)).fetchall()}
        known = cursor.execute(_KNOWN, _keys(submissions)).fetchall() if len(new) < len(submissions) else []
        for target in {submission.target for submission in submissions}:
            cursor.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, target))
        return _answered(submissions, new, known)

    def statement(self, submission: Submission) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL that stores an operation, for any driver with `$1` parameters."""
        id_, target, method, request, metadata, policy, trace_id, key = submission
        values = id_, target, method, request, encode_metadata(metadata), policy, trace_id, key
        return f"{_INSERT}VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {_NEW}){_ONCE}", values

    # Delivering.

    async def claim(self, target: str, limit: int, owner: str, lease: float) -> list[Operation]:
        """Claim ready operations, oldest first, skipping those that others are claiming (LG-6)."""

        async def claim(connection: Session) -> list[Operation]:
            given = {"owner": owner, "lease": lease, "target": target, "limit": limit}
            cursor = await connection.write(_CLAIM, given)
            return [operation_of(row) for row in await cursor.fetchall()]

        return await self._run(claim, _SOON)

    async def extend(self, leases: Sequence[Lease], lease: float) -> set[str]:
        """Extend the leases that are still held (LG-6)."""

        async def extend(connection: Session) -> set[str]:
            cursor = await connection.write(_EXTEND, {**_columns(leases), "lease": lease})
            return {str(row[0]) for row in await cursor.fetchall()}

        return await self._run(extend, _SOON)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Return claimed operations to the state before their claim (LG-10)."""

        async def release(connection: Session) -> None:
            await connection.write(_RELEASE, _columns(leases))

        await self._run(release, _SOON)

    async def record(self, reports: Sequence[AttemptReport]) -> list[Recorded | LedgerBusyError]:
        """Record the ends of attempts in one transaction, or one by one if another process has locked a row (LG-2)."""
        try:
            told: dict[int, Recorded] = await self._run(lambda connection: self._record(connection, reports))
        except LedgerBusyError as busy:
            if len(reports) == 1:
                return [busy]
            return [(await self.record([report]))[0] for report in reports]
        return [told.get(index) or Recorded(report.id, None) for index, report in enumerate(reports)]

    async def _record(self, connection: Session, reports: Sequence[AttemptReport]) -> dict[int, Recorded]:
        # Record in the order of the ids, so that two processes never wait for each other's rows.
        ordered = sorted(enumerate(reports), key=lambda pair: pair[1].id)
        cursors: list[tuple[int, Any]] = []
        async with connection.pipeline(), self._transaction(connection):
            for index, report in ordered:
                if report.failure is None:
                    cursor = await connection.execute(_SUCCESSES, ([report.id], [report.token]))
                else:
                    cursor = await connection.execute(_FAILURE, _failure(report))
                cursors.append((index, cursor))
        told = {}
        for index, cursor in cursors:
            row = await cursor.fetchone()
            if row is not None:
                told[index] = _recorded(reports[index], row)
        return told

    async def lost(self, target: str | None, policy_of: PolicyOf, rng: Random, limit: int) -> list[Recorded]:
        """End the leases that have expired, and record their attempts as lost (LG-6)."""

        async def lost(connection: Session) -> list[Recorded]:
            async with self._transaction(connection):
                rows = await _rows(connection, _LOST, {"target": target, "limit": limit})
                reports = [loss(str(id_), token, policy_of(policy), rng.random()) for id_, policy, token in rows]
                async with connection.pipeline():  # one round trip per row could exceed the time limit
                    cursors = [await connection.execute(_FAILURE, _failure(report)) for report in reports]
                found = [await cursor.fetchone() for cursor in cursors]
            return [_recorded(report, row) for report, row in zip(reports, found, strict=True) if row is not None]

        return await self._run(lost)

    async def next_due(self, target: str) -> float | None:
        """Return the seconds until the next operation may be claimed; None if there is none."""

        async def due(connection: Session) -> float | None:
            statement = (
                "SELECT extract(epoch FROM min(next_attempt_at) - now())::double precision "
                "FROM grpc_backoff.operations WHERE target = %s AND next_attempt_at IS NOT NULL"
            )
            row = (await _rows(connection, statement, (target,)))[0]
            return None if row[0] is None else max(0.0, row[0])

        return await self._run(due, _SOON)

    async def set_backoff(self, id: str, seconds: float) -> bool:  # noqa: A002 - the term used for operations
        """Write a backoff and its timestamp atomically; return whether a waiting operation had this id."""

        async def write(connection: Session) -> bool:
            async with self._transaction(connection):
                rows = await _rows(connection, "SELECT grpc_backoff.set_backoff(%s, %s)", (id, seconds))
            return bool(rows[0][0])

        return await self._run(write)

    # Queries.

    async def ready(self, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""

        async def look(connection: Session) -> list[Readiness]:
            # The time has to be computed only for operations whose owner has died, so only their policies are passed
            # in.
            statement = "SELECT DISTINCT policy FROM grpc_backoff.operations WHERE lease_until <= now()"
            named = [row[0] for row in await _rows(connection, statement, ())]
            policies = json.dumps({name: parameters(ledger_policy(policy_of(name))) for name in named})
            where, given = _where(which)
            rows = await _rows(
                connection,
                "SELECT id, ready, extract(epoch FROM at)::double precision, why FROM grpc_backoff.ready("
                f"ARRAY(SELECT o.id FROM grpc_backoff.operations o{where} ORDER BY o.seq LIMIT %s), %s::jsonb, 0)",
                (*given, limit, policies),
            )
            return [Readiness(str(id_), *rest) for id_, *rest in rows]

        return await self._run(look)

    async def find(self, which: Filter, limit: int) -> list[Operation]:
        """Return the operations that match a filter, oldest first."""

        async def find(connection: Session) -> list[Operation]:
            where, given = _where(which)
            rows = await _rows(connection, f"{_OPERATION}{where} ORDER BY o.seq LIMIT %s", (*given, limit))
            return [operation_of(row) for row in rows]

        return await self._run(find)

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order."""

        async def read(connection: Session) -> list[OperationAttempt]:
            rows = await _rows(
                connection,
                "SELECT number, extract(epoch FROM started)::double precision, "
                "extract(epoch FROM ended)::double precision, code, delay, source "
                "FROM grpc_backoff.attempts WHERE operation_id = %s ORDER BY number",
                (id,),
            )
            return [attempt_of(row) for row in rows]

        return await self._run(read)

    async def queue(self, target: str | None) -> Queue:
        """Return how many operations there are in each state, and the age of the oldest unfinished one."""

        async def look(connection: Session) -> Queue:
            rows = await _rows(
                connection,
                "SELECT state, count(*), greatest(extract(epoch FROM now() - min(created)), 0)::double precision "
                "FROM grpc_backoff.operations "
                "WHERE %(target)s::text IS NULL OR target = %(target)s GROUP BY state",
                {"target": target},
            )
            return queue_of((state, count, age) for state, count, age in rows)

        return await self._run(look)

    async def waiting(self, limit: int) -> int:
        """Return how many operations are unfinished."""

        async def count(connection: Session) -> int:
            statement = (
                "SELECT count(*) FROM (SELECT 1 FROM grpc_backoff.operations "
                "WHERE state IN ('pending', 'waiting_for_retry', 'in_progress') LIMIT %s) w"
            )
            return int((await _rows(connection, statement, (limit,)))[0][0])

        return await self._run(count)

    # Manual actions.

    async def begin_anew(
        self, ids: Sequence[str], states: Sequence[OperationState], request: bytes | None
    ) -> list[str]:
        """Make operations in these states pending again (LG-7)."""
        return await self._changed(
            "UPDATE grpc_backoff.operations SET state = 'pending', attempts = 0, step = 0, previous = NULL, "
            "refreshed = false, backoff_request_seconds = NULL, next_attempt_at = now(), began = now(), "
            "finished = NULL, request = coalesce(%s, request) WHERE id = ANY (%s::uuid[]) AND state = ANY (%s) "
            "RETURNING id",
            (request, list(ids), [state.value for state in states]),
        )

    async def discard(self, ids: Sequence[str]) -> list[str]:
        """Discard operations that have not succeeded (LG-7)."""
        return await self._changed(
            "UPDATE grpc_backoff.operations SET state = 'discarded', finished = now(), next_attempt_at = NULL, "
            f"{_NO_LEASE} WHERE id = ANY (%s::uuid[]) AND state NOT IN ('succeeded', 'discarded') RETURNING id",
            (list(ids),),
        )

    async def _changed(self, statement: str, given: Sequence[Any]) -> list[str]:
        async def change(connection: Session) -> list[str]:
            async with self._transaction(connection):
                return [str(row[0]) for row in await _rows(connection, statement, given)]

        return await self._run(change)

    async def prune(self, keep: float, states: Sequence[OperationState], limit: int) -> int:
        """Delete operations that finished long ago (LG-11)."""

        async def prune(connection: Session) -> int:
            statement = (
                "DELETE FROM grpc_backoff.operations WHERE seq IN (SELECT seq FROM grpc_backoff.operations "
                "WHERE state = ANY (%s) AND finished <= now() - make_interval(secs => %s) LIMIT %s "
                "FOR UPDATE SKIP LOCKED)"
            )
            cursor = await connection.write(statement, ([state.value for state in states], keep, limit))
            return cursor.rowcount

        return await self._run(prune)

    # Notifications.

    async def notify(self, target: str) -> None:
        """Wake the deliverers of a target (LG-12)."""

        async def notify(connection: Session) -> None:
            await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, target))

        await self._run(notify)

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the target of each notification (LG-12)."""
        if self._listener is None:
            self._listener = asyncio.ensure_future(self._listen(heard))

    async def _listen(self, heard: Callable[[str], None]) -> None:
        """Listen, and start again whenever the connection is lost."""
        while True:
            with contextlib.suppress(LedgerError, psycopg.Error, TimeoutError, OSError):
                await self._listen_once(heard)
            await asyncio.sleep(_RELISTEN)

    async def _listen_once(self, heard: Callable[[str], None]) -> None:
        connection = await self._connect()
        try:
            await connection.execute(f"LISTEN {_CHANNEL}")
            while True:
                async for notification in connection.notifies(timeout=_HEARTBEAT):
                    heard(notification.payload)
                async with asyncio.timeout(self._settings.timeout):
                    await connection.execute("SELECT 1")
        finally:
            await connection.close()


def _failure(report: AttemptReport) -> tuple[Any, ...]:
    """Return the arguments of `record_failure`."""
    failure = report.failure
    assert failure is not None, "successes are recorded separately"
    policy = ledger_policy(report.policy)
    hint = failure.hint
    kind = {
        **classify(policy, failure, can_refresh=report.can_refresh)._asdict(),
        "stopped": hint is not None and hint.delay is None,
        "asked": None if hint is None else hint.delay,
        "asked_by": None if hint is None else hint.source.value,
        "exactly": hint is not None and hint.source is WaitSource.PUSHBACK,
        "schedule": WaitSource.SCHEDULE.value,
        "refresh": WaitSource.REFRESH.value,
        "attempts": Reason.ATTEMPTS.value,
        "deadline": Reason.DEADLINE.value,
        "stop": Reason.STOPPED.value,
    }
    return (
        report.id,
        report.token,
        failure.code,
        report.details,
        json.dumps(kind),
        json.dumps(parameters(policy)),
        report.draw,
    )


def _recorded(report: AttemptReport, row: Sequence[Any]) -> Recorded:
    if report.failure is None:
        _, state, attempts, live = row
        return Recorded(report.id, OperationState(state), attempts, "OK", live=live)
    state, attempts, delay, source, reason, live = row
    return Recorded(report.id, OperationState(state), attempts, report.failure.code, delay, source, reason, live)


def _parameters(submissions: Sequence[Submission]) -> tuple[list[Any], ...]:
    rows = [submission._replace(metadata=encode_metadata(submission.metadata)) for submission in submissions]  # type: ignore[arg-type]
    return tuple(list(column) for column in zip(*rows, strict=True))


def _keys(submissions: Sequence[Submission]) -> tuple[list[str], list[str], list[str | None]]:
    return (
        [submission.id for submission in submissions],
        [submission.method for submission in submissions],
        [submission.idempotency_key for submission in submissions],
    )


async def _answers(connection: Any, submissions: Sequence[Submission], new: set[str]) -> list[Submitted]:
    known = await _rows(connection, _KNOWN, _keys(submissions)) if len(new) < len(submissions) else []
    return _answered(submissions, new, known)


def _answered(submissions: Sequence[Submission], new: set[str], known: Sequence[Sequence[Any]]) -> list[Submitted]:
    first = {(method, key): str(id_) for id_, method, key in known if key is not None}
    answers = []
    for submission in submissions:
        stored = first.get((submission.method, submission.idempotency_key), submission.id)
        answers.append(Submitted(stored, new=submission.id in new))
        new.discard(submission.id)  # a duplicate within a batch is stored once
    return answers


def _columns(leases: Sequence[Lease]) -> dict[str, Any]:
    return {"ids": [lease.id for lease in leases], "tokens": [lease.token for lease in leases]}


def _where(which: Filter) -> tuple[str, list[Any]]:
    terms: list[str] = []
    given: list[Any] = []
    if which.ids is not None:
        terms.append("o.id = ANY (%s::uuid[])")
        given.append(list(which.ids))
    if which.states:
        terms.append("o.state = ANY (%s)")
        given.append([state.value for state in which.states])
    for column, value in (("target", which.target), ("method", which.method)):
        if value is not None:
            terms.append(f"o.{column} = %s")
            given.append(value)
    if which.older_than is not None:
        terms.append("o.created <= now() - make_interval(secs => %s)")
        given.append(which.older_than)
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), given


async def _rows(connection: Any, statement: str, given: Any) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(statement, given)
    rows: list[tuple[Any, ...]] = await cursor.fetchall()
    return rows


async def _version(connection: Session) -> int:
    # Do not use `to_regclass`, which may return the state from before the lock was acquired.
    there = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'grpc_backoff' AND tablename = 'schema'"
    if not await _rows(connection, there, ()):
        return 0
    rows = await _rows(connection, "SELECT version FROM grpc_backoff.schema", ())
    return int(rows[0][0]) if rows else 0


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
        raise LedgerUnavailableError("database URL: expected a URL that libpq can parse; see libpq's manual") from None
    host, port, name = (str(said.get(part) or "") for part in ("host", "port", "dbname"))
    if "@" in host[1:] + name or not (port.replace(",", "") or "0").isdecimal():  # @ begins an abstract socket's name
        raise LedgerUnavailableError(
            "database URL: expected percent-encoding for special characters in the password, such as '/', '@' and ':'"
        )
    return f"postgresql://{host}/{name}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _ignore(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
