"""What runs on a connection to PostgreSQL: plans, on one of the ledger's own or within a caller's transaction."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import math
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import LiteralString

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import TupleRow, tuple_row

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import wrong_type
from grpc_backoff.ledger.stores.statements import PARAMETER, Access, Plan, ResultT, Row, Statement, follow, follow_async

IDLE = TransactionStatus.IDLE
_EPOCH = 946_684_800  # PostgreSQL counts from the year 2000; this is its distance to 1970, in seconds
_AGAIN = 0.1  # seconds until a statement is cancelled again
_PATIENCE = 5.0  # seconds until the connection of a cancelled statement is broken
_INFINITE = {b"\x7f" + 7 * b"\xff": math.inf, b"\x80" + 7 * b"\x00": -math.inf}


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


def load_like_sqlite(adapters: AdaptersMap) -> None:
    """Load values as those of SQLite are."""
    adapters.register_loader("timestamptz", _Seconds)
    adapters.register_loader("uuid", _Id)


class Session(psycopg.AsyncConnection[TupleRow]):
    """A connection that tracks whether a write on it may already be durable.

    Attributes:
        committing: whether a statement that commits a write has been sent. After that, a missing answer means that the
            outcome is unknown.
        stale: whether the server is read-only, as a standby is, so that the connection must not be used again.
        lock_timeout: how many seconds a transaction waits for locks.
    """

    committing = False
    stale = False
    lock_timeout: float

    async def rows(self, statement: LiteralString) -> list[TupleRow]:
        """Run a statement without parameters; return its rows."""
        return await (await self.execute(statement)).fetchall()

    async def follow(self, plan: Plan[ResultT], access: Access) -> ResultT:
        """Run a plan. In a transaction, statements without an answer are sent together with COMMIT (LG-2).

        So is a single statement.
        """
        single = access is Access.LIMITED

        def execute(statements: list[Statement]) -> Awaitable[list[list[Row]]]:
            return _execute(self, statements, commit=self if single else None)

        if access is not Access.TRANSACTION and not single:
            self.committing = access is Access.STATEMENT
            return await follow_async(plan, execute)
        first: BaseException | None = None
        try:
            async with self.pipeline():
                try:
                    await self.execute("BEGIN")
                    await self.limit_locks()
                    result = await follow_async(plan, execute)
                    if not single:
                        await self.send_commit()
                except BaseException as error:  # noqa: BLE001 - raised below, because psycopg would log a second one
                    first = error
        except psycopg.Error as error:
            first = first or error
        if first is not None:
            raise first
        return result

    async def limit_locks(self) -> None:
        """Let the open transaction wait for locks no longer than `lock_timeout`."""
        milliseconds = str(max(1, round(self.lock_timeout * 1000)))
        await self.execute("SELECT set_config('lock_timeout', %s, true)", (milliseconds,))

    async def send_commit(self) -> None:
        """Send COMMIT; from then on, the write may be durable."""
        self.committing = True
        await self.execute("COMMIT")


def follow_within(
    connection: object, plan: Plan[ResultT], *, blocking: bool
) -> ResultT | Coroutine[object, object, ResultT]:
    """Run a plan in the open transaction of a caller's connection, at once if it blocks and that is wanted.

    Raises:
        OptionError: the connection has no transaction, or would not take all text.
        TypeError: it is none of psycopg's.
    """
    if not isinstance(connection, psycopg.AsyncConnection | psycopg.Connection):
        allowed = "a psycopg connection for a ledger in PostgreSQL; for other drivers see Ledger.statement"
        raise TypeError(wrong_type("within", connection, allowed))
    if connection.autocommit and connection.info.transaction_status == IDLE:
        allowed = "a connection with an open transaction: use connection.transaction()"
        raise OptionError("within", "psycopg connection in autocommit mode", allowed)
    if connection.info.parameter_status("client_encoding") == "SQL_ASCII":
        allowed = "a connection with another one, such as client_encoding=UTF8"
        raise OptionError("within", "psycopg connection with client_encoding=SQL_ASCII", allowed)
    if isinstance(connection, psycopg.AsyncConnection):
        return follow_async(plan, functools.partial(_execute, connection))
    execute = functools.partial(_execute_sync, connection)
    if blocking:
        return follow(plan, execute)
    return _on_thread(connection, functools.partial(follow, plan, execute))


async def _on_thread(connection: psycopg.Connection[object], work: Callable[[], ResultT]) -> ResultT:
    """Work on a caller's connection in a thread of its own; if the caller is cancelled, end the work first."""
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(2)  # others may have no thread free for `_end`
    doing = loop.run_in_executor(threads, contextvars.copy_context().run, work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        ending = asyncio.ensure_future(_end(connection, doing, threads))
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)
        raise
    finally:
        threads.shutdown(wait=False)


async def _end(connection: psycopg.Connection[object], doing: asyncio.Future[ResultT], threads: Executor) -> None:
    """Cancel the statements of work until it ends, as psycopg does for asyncio; at last, break the connection."""
    loop = asyncio.get_running_loop()
    last = loop.time() + _PATIENCE
    while not doing.done() and (left := last - loop.time()) > 0:
        if psycopg.capabilities.has_cancel_safe():  # libpq before 17 would hold up all threads of the process
            with contextlib.suppress(psycopg.Error):
                await loop.run_in_executor(threads, functools.partial(connection.cancel_safe, timeout=left))
        await asyncio.wait((doing,), timeout=_AGAIN)  # it may have been between two statements
    if not doing.done():
        cut(connection)
    await asyncio.gather(doing, return_exceptions=True)


def cut(connection: psycopg.Connection[object] | psycopg.AsyncConnection[object]) -> None:
    """Break a connection as a network failure would; its user is notified without an answer from the server."""
    with contextlib.suppress(OSError, psycopg.Error):
        bare = socket.socket(fileno=connection.pgconn.socket)  # not a duplicate: there may be no file descriptors left
        try:
            bare.shutdown(socket.SHUT_RDWR)
        finally:
            bare.detach()


async def _execute(
    connection: psycopg.AsyncConnection[object], statements: list[Statement], *, commit: Session | None = None
) -> list[list[Row]]:
    cursors = []
    for text, params, _ in statements:
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)  # the caller's row factory may be anything
        if not isinstance(connection, Session):
            load_like_sqlite(cursor.adapters)
        cursors.append(await cursor.execute(_in_psycopg(text), params, binary=True))
    if commit is not None:
        await commit.send_commit()
    pairs = zip(cursors, statements, strict=True)
    return [[*await cursor.fetchall()] if statement.answers else [] for cursor, statement in pairs]


def _execute_sync(connection: psycopg.Connection[object], statements: list[Statement]) -> list[list[Row]]:
    found: list[list[Row]] = []
    for text, params, answers in statements:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        load_like_sqlite(cursor.adapters)
        cursor.execute(_in_psycopg(text), params, binary=True)
        found.append([*cursor.fetchall()] if answers else [])
    return found


@functools.lru_cache(1000)
def _in_psycopg(text: str) -> bytes:
    """Return a statement with its parameters as psycopg writes them."""
    return re.sub(PARAMETER, r"%(\1)s", text).encode()
