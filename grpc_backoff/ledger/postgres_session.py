"""Connections to PostgreSQL: what runs on them, the limits of time, and what errors mean. Needs psycopg 3.

All that is psycopg's is here, so that the extra `postgres` is missed in one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import LiteralString

from grpc_backoff.base.base_errors import MissingExtra, OptionError
from grpc_backoff.ledger.errors import (
    LedgerBusyError,
    LedgerLimitError,
    LedgerUnavailableError,
    first_line,
    rejection,
    wrong_type,
)
from grpc_backoff.ledger.statements import PARAMETER, Access, Plan, ResultT, Row, Statement, follow, follow_async
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

_IDLE = TransactionStatus.IDLE
_CONNECTIONS = 4
_EPOCH = 946_684_800  # PostgreSQL counts from the year 2000; this is its distance to 1970, in seconds
_INFINITE = {b"\x7f" + 7 * b"\xff": math.inf, b"\x80" + 7 * b"\x00": -math.inf}
_ENDED = ("08", "57P")
"""Classes of errors that end a connection, whatever their severity: PgBouncer's own, and the operator's."""
_REJECTING = ("22", "23", "44", "P0")
"""Classes of errors about a row: its data, a constraint, a view's condition, and what a trigger raised."""
_UNSENT = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.errors.PipelineAborted)
"""Errors that psycopg raises by itself for a value or a statement that it does not send, or after an error before."""


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

    async def rows(self, statement: LiteralString) -> list[TupleRow]:
        """Run a statement without parameters; return its rows."""
        return await (await self.execute(statement)).fetchall()


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


class Sessions:
    """The connections to one database, each of which does one thing at a time; they are opened on demand.

    Attributes:
        name: the name of the database in errors.
    """

    def __init__(self, url: str, settings: LedgerSettings) -> None:
        """Prepare to connect on first use; LedgerUnavailableError if the URL is not valid."""
        self.name = _name_of(url)
        self._url = url
        self._settings = settings
        self._closed = False
        self._free: list[Session] = []
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def connect(self) -> Session:
        """Return a new connection, which the caller closes."""
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
            raise LedgerUnavailableError(f"{self.name}: no connection within {seconds:g} s") from None
        except psycopg.Error as error:
            raise LedgerUnavailableError(f"{self.name}: cannot connect: {first_line(error)}") from error
        _load_like_sqlite(session.adapters)
        return session

    async def follow(self, session: Session, plan: Plan[ResultT], access: Access) -> ResultT:
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
                    await self.limit_locks(session)
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

    async def run(self, work: Work[ResultT], seconds: float) -> ResultT:
        """Run a function on a connection, for up to this many seconds.

        If the caller is cancelled, work that has begun continues up to the same limit. When the time is up, the
        connection is cut; the server then rolls back anything uncommitted, and nothing here waits for it.
        """
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise LedgerUnavailableError(
                f"{self.name}: the ledger belongs to another event loop; "
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
            raise LedgerUnavailableError(f"{self.name}: no answer within {seconds:g} s", stored=stored)
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
            return await self._work_on(await self.connect(), work, request)

    async def _work_on(self, connection: Session, work: Work[ResultT], request: _Request) -> ResultT:
        connection.committing = False
        request.connection = connection
        try:
            return await self._translated(connection, work)
        finally:
            request.broken = connection.broken or connection.stale
            if not connection.broken and connection.pgconn.transaction_status != _IDLE:
                with contextlib.suppress(psycopg.Error):
                    await connection.rollback()
            if self._closed or request.broken or connection.pgconn.transaction_status != _IDLE:
                await connection.close()
            else:
                self._free.append(connection)

    async def close(self) -> None:
        """Close the connections, those in use as soon as they are free."""
        self._closed = True
        await self._forget_free()

    async def _forget_free(self) -> None:
        while self._free:
            await self._free.pop().close()

    async def _translated(self, connection: Session, work: Work[ResultT]) -> ResultT:
        """Run the work and translate the server's errors."""
        try:
            return await work(connection)
        except psycopg.errors.LockNotAvailable as error:
            raise LedgerBusyError(
                f"{self.name}: gave up after {self._settings.lock_timeout:g} s waiting for another transaction's "
                "lock; nothing was written"
            ) from error
        except psycopg.errors.DeadlockDetected as error:
            raise LedgerBusyError(f"{self.name}: a deadlock with another transaction; nothing was written") from error
        except psycopg.errors.ProgramLimitExceeded as error:
            raise LedgerLimitError(
                f"{self.name}: the target, the method and a key are too long together for an index of PostgreSQL: "
                f"{first_line(error)}"
            ) from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            connection.stale = True
            raise LedgerUnavailableError(
                f"{self.name}: the server is read-only, as a standby is ({first_line(error)}); with several hosts, "
                "add target_session_attrs=read-write to the URL"
            ) from error
        except psycopg.Error as error:
            # A DataError may be psycopg's own, for a value that it cannot send.
            if isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith(_REJECTING):
                raise rejection(self.name, error) from error
            unheard = connection.committing and is_in_doubt(error, broken=connection.broken)
            raise LedgerUnavailableError(
                f"{self.name}: {first_line(error)}", stored=None if unheard else False
            ) from error

    async def limit_locks(self, connection: Session) -> None:
        """Let the transaction on a connection wait for locks no longer than `lock_timeout`."""
        milliseconds = str(max(1, round(self._settings.lock_timeout * 1000)))
        await connection.execute("SELECT set_config('lock_timeout', %s, true)", (milliseconds,))


def follow_within(connection: object, plan: Plan[ResultT]) -> Coroutine[object, object, ResultT]:
    """Run a plan in the open transaction of a caller's connection.

    Raises:
        OptionError: the connection has no transaction, or would not take all text.
        TypeError: it is none of psycopg's.
    """
    if not isinstance(connection, psycopg.AsyncConnection | psycopg.Connection):
        allowed = "a psycopg connection for a ledger in PostgreSQL; for other drivers see Ledger.statement"
        raise TypeError(wrong_type("within", connection, allowed))
    if connection.autocommit and connection.info.transaction_status == _IDLE:
        allowed = "a connection with an open transaction: use connection.transaction()"
        raise OptionError("within", "psycopg connection in autocommit mode", allowed)
    if connection.info.parameter_status("client_encoding") == "SQL_ASCII":
        allowed = "a connection with another one, such as client_encoding=UTF8"
        raise OptionError("within", "psycopg connection with client_encoding=SQL_ASCII", allowed)
    if isinstance(connection, psycopg.AsyncConnection):
        return follow_async(plan, functools.partial(_execute, connection))
    return asyncio.to_thread(follow, plan, functools.partial(_execute_sync, connection))


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
