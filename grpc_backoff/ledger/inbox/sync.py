"""The inbox for `grpc` servers, which run handlers in threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import Never, Protocol, Self

import grpc

from grpc_backoff.ledger.inbox.decision import HANDLE, Execute, NotRecorded, Query, Refused
from grpc_backoff.ledger.inbox.handling import (
    Handler,
    Inbox,
    Passage,
    SyncDatabase,
    handing_out,
    no_scope,
    sync_database,
)
from grpc_backoff.ledger.stores.statements import Row, follow


class _Context(Protocol):
    def code(self) -> object: ...
    def abort(self, code: grpc.StatusCode, details: str) -> Never: ...
    def is_active(self) -> bool: ...


class SyncInbox(Inbox[SyncDatabase], grpc.ServerInterceptor):
    """A server interceptor like `AioInbox`, for `grpc.server`."""

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        required: bool | Collection[str] = False,
        scope: Callable[[grpc.ServicerContext], str] = no_scope,
        hold: float = 30.0,
        connections: int = 10,
        migrate: bool = True,
    ) -> Self:
        """Open a database and create its table if necessary; arguments, times and errors are those of `AioInbox.open`.

        A repeat that waits, for up to `hold` seconds, occupies a thread of the server.
        """
        inbox = cls(sync_database, url, required=required, scope=scope, hold=hold, connections=connections)
        inbox._database.migrate(apply=migrate)
        inbox._database.open()
        return inbox

    def __enter__(self) -> Self:
        """Return the inbox."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the inbox."""
        self.close()

    def close(self) -> None:
        """Close the connections, as `AioInbox.close` does."""
        if os.getpid() == self._process:
            self._database.close()

    def prune(self, older_than: float) -> int:
        """Delete the records that are older than this many seconds, as `AioInbox.prune` does; return how many."""
        return self._prune(older_than)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a call, which goes through the inbox if it has a key."""
        handler = continuation(handler_call_details)
        return self._guarded(handler, handler_call_details, callable, self._answer)

    def _answer(self, enter: Callable[..., Passage], request: bytes, context: _Context) -> bytes | None:
        try:
            passage = enter(request, context)

            def take(connection: object, execute: Execute, step: Query | None) -> Sequence[Row] | bytes | None:
                if step is not HANDLE:
                    return execute(step)
                with handing_out(connection):
                    response = passage.respond(context)
                return passage.returned(response, context.code())

            while context.is_active():
                with passage.beginning_again(), self._database.transaction(passage.limit()) as (connection, execute):
                    return follow(passage.entry.steps(), functools.partial(take, connection, execute))
        except NotRecorded:
            return passage.response
        except Refused as error:
            refused = error
        else:
            return None  # the client has cancelled, so no response is sent
        return context.abort(grpc.StatusCode[refused.code], refused.details)
