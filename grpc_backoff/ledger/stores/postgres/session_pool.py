"""The connections to one PostgreSQL database, the limits of time, and what becomes of connections that are lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import psycopg

from grpc_backoff.ledger.errors import LedgerUnavailableError, first_line
from grpc_backoff.ledger.stores.postgres.failures import name_of, translating
from grpc_backoff.ledger.stores.postgres.session import IDLE, Session, cut, load_like_sqlite
from grpc_backoff.ledger.stores.statements import ResultT
from grpc_backoff.policy.ledger_settings import LedgerSettings

_CONNECTIONS = 4
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
            cut(self.connection)


class SessionPool:
    """Connections, each of which does one thing at a time; they are opened on demand.

    Attributes:
        name: the name of the database in errors.
    """

    def __init__(self, url: str, settings: LedgerSettings) -> None:
        """Prepare to connect on first use; LedgerUnavailableError if the URL is not valid."""
        self.name = name_of(url)
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
        load_like_sqlite(session.adapters)
        session.lock_timeout = self._settings.lock_timeout
        return session

    async def run(self, work: Work[ResultT], seconds: float) -> ResultT:
        """Run a function on a connection, for up to this many seconds.

        If the caller is cancelled, work that has begun continues up to the same limit. When the time is up, the
        connection is cut; the server then rolls back anything uncommitted, and nothing here waits for it.
        """
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            problem = "the ledger belongs to another event loop; threads share a grpc_backoff.ledger.sync.Ledger"
            raise LedgerUnavailableError(f"{self.name}: {problem}")
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
            with translating(self.name, connection):
                return await work(connection)
        finally:
            request.broken = connection.broken or connection.stale
            if not connection.broken and connection.pgconn.transaction_status != IDLE:
                with contextlib.suppress(psycopg.Error):
                    await connection.rollback()
            if self._closed or request.broken or connection.pgconn.transaction_status != IDLE:
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


def _was_ended(connection: Session) -> bool:
    """Return whether the server, or a pooler, has ended an idle connection, so that nothing is sent on it in vain."""
    try:
        for _ in range(2):  # what it said last, then the end
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return connection.broken
