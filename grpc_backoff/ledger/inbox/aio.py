"""The inbox for `grpc.aio` servers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Self

import grpc
import grpc.aio

from grpc_backoff.ledger.inbox.decision import HANDLE, AioExecute, NotRecorded, Query, Refused
from grpc_backoff.ledger.inbox.handling import AioDatabase, Handler, Inbox, Passage, aio_database, handing_out, no_scope
from grpc_backoff.ledger.stores.statements import Row, follow_async


class AioInbox(Inbox[AioDatabase], grpc.aio.ServerInterceptor):
    """A server interceptor that executes each call with an `idempotency-key` once, even if clients repeat it.

    ::

        inbox = await AioInbox.open("postgresql://...")
        server = grpc.aio.server(interceptors=[authentication, inbox])

    The key is recorded in the transaction that the handler gets from `connection`, together with the response. A repeat
    is answered with that response; its trailing metadata is not recorded. While the first call runs, a repeat waits.
    A call that fails is rolled back and not recorded, so a repeat executes it again. Interceptors that come before this
    one see requests and responses as bytes, so place it last, and in any case after authentication.
    """

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
        inbox = cls(aio_database, url, required=required, scope=scope, hold=hold, connections=connections)
        await asyncio.to_thread(inbox._database.migrate, apply=migrate)
        await inbox._database.open()
        return inbox

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
        if os.getpid() == self._process:
            await self._database.close()

    async def prune(self, older_than: float) -> int:
        """Delete the records that are older than this many seconds; return how many there were.

        A call whose record is deleted is executed again if it is repeated. So keep records for longer than any client
        repeats a call; a ledger's default policy repeats for three days.

        Raises:
            LedgerUnavailableError: the database cannot be used.
            OptionError: `older_than` is not a number of seconds.
        """
        return await asyncio.to_thread(self._prune, older_than)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a call, which goes through the inbox if it has a key."""
        handler = await continuation(handler_call_details)
        return self._guarded(handler, handler_call_details, inspect.iscoroutinefunction, self._answer)

    async def _answer(
        self, enter: Callable[..., Passage], request: bytes, context: grpc.aio.ServicerContext[Any, Any]
    ) -> bytes | None:
        try:
            passage = enter(request, context)

            async def take(connection: object, execute: AioExecute, step: Query | None) -> Sequence[Row] | bytes | None:
                if step is not HANDLE:
                    return await execute(step)
                with handing_out(connection):
                    response = await passage.respond(context)
                return passage.returned(response, context.code())

            while True:
                with passage.beginning_again():
                    async with self._database.transaction(passage.limit()) as (connection, execute):
                        return await follow_async(passage.entry.steps(), functools.partial(take, connection, execute))
        except NotRecorded:
            return passage.response
        except Refused as error:
            refused = error
        return await context.abort(grpc.StatusCode[refused.code], refused.details)
