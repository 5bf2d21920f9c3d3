"""The inbox for `grpc.aio` servers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Never, Self

import grpc
import grpc.aio

from grpc_backoff.ledger.inbox.decision import AioExecute, ErrorStatus, Handle, NotRecorded, Query, Refused
from grpc_backoff.ledger.inbox.handling import (
    AioDatabase,
    Context,
    Handler,
    Passage,
    Settings,
    abort,
    admitted,
    database_of,
    handing_out,
    handler_like,
    no_scope,
    prune,
)
from grpc_backoff.ledger.statements import Row, follow_async


class AioInbox(grpc.aio.ServerInterceptor):
    """A server interceptor that executes each call with an `idempotency-key` once, even if clients repeat it.

    ::

        inbox = await AioInbox.open("postgresql://...")
        server = grpc.aio.server(interceptors=[authentication, inbox])

    The key is recorded in the transaction that the handler gets from `connection`, together with the response. A repeat
    is answered with that response; its trailing metadata is not recorded. While the first call runs, a repeat waits.
    A call that fails is rolled back and not recorded, so a repeat executes it again. Interceptors that come before this
    one see requests and responses as bytes, so place it last, and in any case after authentication.
    """

    def __init__(self, database: AioDatabase, settings: Settings) -> None:
        """Create an inbox on an open database; use `open` instead."""
        self._database = database
        self._settings = settings

    @classmethod
    async def open(
        cls,
        url: str | os.PathLike[str],
        *,
        required: bool | Collection[str] = False,
        scope: Callable[[grpc.aio.ServicerContext[Any, Any]], str] = no_scope,
        hold: float = 30.0,
        connections: int = 10,
        migrate: bool = True,
    ) -> Self:
        """Open a database and create its table if necessary.

        Args:
            url: the path of an SQLite file, or a `postgresql://` URL.
            required: whether unary-unary calls without a key are refused; or the full names of the methods for which
                they are, such as `/shop.Orders/Place`. All other calls without a key pass through.
            scope: returns the name of the caller, so that the keys of different callers are different keys.
            hold: how long a repeat waits for the first call, in seconds. After that, it fails with UNAVAILABLE, so that
                the client repeats it.
            connections: how many connections to PostgreSQL are used, and so how many calls are handled at a time;
                SQLite handles one at a time.
            migrate: whether the table is created; if False, a database without it is rejected.

        Raises:
            LedgerUnavailableError: the database cannot be used.
            LedgerSchemaError: the table is newer than this library, or missing with `migrate=False` (LG-13).
            MissingExtra: PostgreSQL needs the extra `postgres`.
            OptionError: an argument has an invalid value.
        """
        settings = Settings(required, scope, hold, connections)
        database = database_of(url, "Aio", connections)
        await asyncio.to_thread(database.migrate, apply=migrate)
        await database.open()
        return cls(database, settings)

    async def __aenter__(self) -> Self:
        """Return the inbox."""
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Close the inbox."""
        await self.close()

    async def close(self) -> None:
        """Close the connections. Stop the server first; calls that arrive later fail with UNAVAILABLE.

        In the child of a fork, they stay open, because they belong to the parent.
        """
        if os.getpid() == self._settings.process:
            await self._database.close()

    async def prune(self, older_than: float) -> int:
        """Delete the records that are older than this many seconds; return how many there were.

        A call whose record is deleted is executed again if it is repeated. So keep records for longer than any client
        repeats a call; a ledger's default policy repeats for three days.

        Raises:
            LedgerUnavailableError: the database cannot be used.
            OptionError: `older_than` is not a number of seconds.
        """
        return await asyncio.to_thread(prune, self._database, older_than)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a call, which goes through the inbox if it has a key."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        key = admitted(handler, handler_call_details, self._settings, usable=inspect.iscoroutinefunction)
        if key is None:
            return handler

        async def answer(request: bytes, context: Context[Awaitable[Never]]) -> bytes | None:
            if isinstance(key, ErrorStatus):
                return await abort(context, key)
            return await self._answer(handler, key, handler_call_details.method, request, context)

        return handler_like(handler, answer)

    async def _answer(
        self, handler: Handler, key: str, method: str, request: bytes, context: Context[Awaitable[Never]]
    ) -> bytes | None:
        respond: Callable[..., Awaitable[object]] | None = handler.unary_unary
        assert respond is not None  # `admitted` has looked
        passage = Passage(self._database.statements, self._settings, key, method, request, context)
        try:
            message = handler.request_deserializer(request) if handler.request_deserializer else request
        except Exception:  # noqa: BLE001 - as in grpc itself
            return await abort(context, ErrorStatus("INTERNAL", "Exception deserializing request!"))

        async def take(connection: object, execute: AioExecute, step: Query | Handle) -> Sequence[Row] | bytes | None:
            if isinstance(step, Query):
                return await execute(step)
            with handing_out(connection):
                response = await respond(message, context)
            return passage.returned(response, context, handler.response_serializer)

        while True:
            try:
                async with self._database.transaction(passage.limit()) as (connection, execute):
                    return await follow_async(passage.entry.steps(), functools.partial(take, connection, execute))
            except NotRecorded:
                return passage.response
            except Refused as refused:
                refusal: ErrorStatus | None = refused.refusal
            except self._database.errors as error:
                refusal = passage.after(self._database.trouble(error), error)
            if refusal is not None:
                await abort(context, refusal)
