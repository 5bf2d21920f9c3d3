"""The store on a PostgreSQL server, for any number of processes and hosts.

It uses a few connections, opened on demand, and one more that listens. It sets nothing for a session and prepares no
statements, so that PgBouncer can be used, even in transaction mode. Only LISTEN does not work through PgBouncer, so
deliverers then rely on polling. All times are the server's (LG-12).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import LiteralString

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerError, LedgerStateError
from grpc_backoff.ledger.schema import MIGRATION_LOCK, check_version, migrations, upgrade
from grpc_backoff.ledger.stores.dialect import CHANNEL, POSTGRES
from grpc_backoff.ledger.stores.postgres.session import Session, cut, follow_within
from grpc_backoff.ledger.stores.postgres.session_pool import SessionPool, Work
from grpc_backoff.ledger.stores.statements import PARAMETER, Access, Plan, ResultT, Row, Statement, one
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.policy.ledger_settings import LedgerSettings

_HEARTBEAT = 10.0  # seconds of silence after which the listening connection is checked
_MIGRATING = 3600.0
"""Seconds that migrations may take, regardless of `timeout`, because creating an index on a large table takes a while.
"""
_RELISTEN = 1.0  # seconds between attempts to listen again; deliverers poll in the meantime
_UNTIDY = 500  # the number of dead tuples from which they are removed without waiting for autovacuum
_UNTIDINESS = (
    "SELECT coalesce(sum(n_dead_tup), 0), coalesce(bool_or(relname = 'operations' "
    "AND n_mod_since_analyze > 50 + 0.5 * n_live_tup), false) "
    "FROM pg_stat_all_tables WHERE schemaname = 'grpc_backoff'"
)
"""The number of dead tuples, and whether most operations have changed since they were analyzed.

Attempts are found by their key, whatever the planner knows of them.
"""
_TYPES = (
    {"id": "uuid", "token": "bigint", "request": "bytea", "response": "bytea", "refreshed": "boolean"}
    | dict.fromkeys(("attempts", "recorded", "step", "keep_response"), "integer")
    | dict.fromkeys(("started", "ended", "began", "finished", "not_before", "not_after"), "double precision")
    | dict.fromkeys(("previous", "delay"), "double precision")
)
"""The types of the columns that `table` passes in; those of all others are text."""
_IDENTITY = Statement("SELECT id FROM grpc_backoff.identity", {})  # the id of the ledger in a database


class PostgresStore(Store):
    """A store on a PostgreSQL server; see `Store`."""

    sql = POSTGRES
    oldest = 3
    of_rows = (LedgerStateError, LedgerBusyError)
    waiting = 1.0  # NOTIFY wakes those that wait for a response

    def __init__(self, url: str, settings: LedgerSettings) -> None:
        """Prepare to connect on first use; `url` is any URL that libpq accepts.

        Raises:
            LedgerUnavailableError: the URL is not valid.
        """
        self._pool = SessionPool(url, settings)
        super().__init__(self._pool.name, settings)
        self._listener: asyncio.Task[None] | None = None
        self._identity: str | None = None

    # Execution.

    async def _transact(self, plan: Callable[[], Plan[ResultT]], access: Access, share: float) -> ResultT:
        seconds = self._settings.timeout * share
        return await self._connected(lambda session: session.follow(plan(), access), seconds)

    async def _connected(self, work: Work[ResultT], seconds: float) -> ResultT:
        self._check_usable()
        return await self._pool.run(work, seconds)

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
        params: dict[str, object] = {f"{name}_s": list(some) for name, some in zip(columns, lists, strict=True)}
        return f"SELECT * FROM unnest({arrays})", params

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if os.getpid() != self._process:  # closing a connection would close the parent's
            return
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._pool.close()

    # The tables.

    async def migrate(self, *, apply: bool, needed_only: bool = False) -> tuple[int, int]:
        """Bring the tables to this library's version (LG-13), unless they can be used as they are (LG-18)."""
        known = migrations("postgres")
        newest = len(known)

        async def migrate(connection: Session) -> tuple[int, int]:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                await connection.limit_locks()  # on table locks, because other writers queue behind them
                before = await _version(connection)  # another process may have migrated already
                # Do not use IF NOT EXISTS, which requires the CREATE privilege even if the schema exists.
                if not await connection.rows("SELECT 1 FROM pg_namespace WHERE nspname = 'grpc_backoff'"):
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

    def run_within(
        self, connection: object, plan: Callable[[], Plan[ResultT]], *, blocking: bool
    ) -> ResultT | Coroutine[object, object, ResultT]:
        """Run a plan in the caller's own transaction, on a connection to this ledger's database."""
        self._check_usable()
        return follow_within(connection, self._guarded(plan()), blocking=blocking)

    def _guarded(self, plan: Plan[ResultT]) -> Plan[ResultT]:
        """Return the plan for a connection that may be one to another ledger; it is done as a whole or not at all."""
        release = Statement("RELEASE SAVEPOINT grpc_backoff", {}, answers=False)
        _, *found = yield [
            Statement("SAVEPOINT grpc_backoff", {}, answers=False),  # however the caller handles errors
            *([] if self._identity is None else [_IDENTITY]),
        ]
        if found != ([] if self._identity is None else [[(self._identity,)]]):
            yield [release]
            raise OptionError("within", "a connection to another ledger", f"a connection to {self._name}")
        try:
            result = yield from plan
        except LedgerError:
            yield [Statement("ROLLBACK TO SAVEPOINT grpc_backoff", {}, answers=False)]
            raise
        yield [release]
        return result

    # Upkeep.

    async def sweep(self) -> bool:
        """Remove dead tuples if there are many and count anew for the planner; autovacuum looks once a minute at most.

        With old counts, a claim sorts all that is due instead of taking the first from the index. More tuples die while
        VACUUM runs, so a sweep was in vain only if it removed less than half of those that it found.
        """
        [(found, stale)] = await self.rows(_UNTIDINESS, {}, Access.READ)
        if found < _UNTIDY:
            return False
        for table, also in (("operations", "ANALYZE, " if stale else ""), ("attempts", "")):
            vacuum = f"VACUUM ({also}SKIP_LOCKED, TRUNCATE false) grpc_backoff.{table}"
            await self._connected(functools.partial(Session.execute, query=vacuum.encode()), self._settings.timeout)
        [(left, _)] = await self.rows(_UNTIDINESS, {}, Access.READ)
        return bool(left > found / 2)

    # Notifications.

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the target of each notification (LG-12)."""
        if self._listener is None:
            self._listener = asyncio.ensure_future(self._listen(heard))

    async def _listen(self, heard: Callable[[str], None]) -> None:
        while True:
            with contextlib.suppress(LedgerError, Session.Error, TimeoutError, OSError):
                await self._listen_once(heard)
            await asyncio.sleep(_RELISTEN)

    async def _listen_once(self, heard: Callable[[str], None]) -> None:
        connection = await self._pool.connect()
        try:
            await self._answered(connection, f"LISTEN {CHANNEL}")
            self.hears = True
            while True:
                async for notification in connection.notifies(timeout=_HEARTBEAT):
                    heard(notification.payload)
                await self._answered(connection, "SELECT 1")
        finally:
            self.hears = False
            await connection.close()

    async def _answered(self, connection: Session, statement: LiteralString) -> None:
        """Execute a statement; without an answer within `timeout`, the connection is broken, as it may be already."""
        late = asyncio.get_running_loop().call_later(self._settings.timeout, cut, connection)
        try:
            await connection.execute(statement)
        finally:
            late.cancel()


def _is_uuid(text: str) -> bool:
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


async def _version(connection: Session) -> int:
    # Do not use `to_regclass`, which may return the state from before the lock was acquired.
    there = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'grpc_backoff' AND tablename = 'schema'"
    if not await connection.rows(there):
        return 0
    rows = await connection.rows("SELECT version FROM grpc_backoff.schema")
    return int(rows[0][0]) if rows else 0
