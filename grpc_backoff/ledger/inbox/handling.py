"""What the interceptors of both APIs share: options, the handler's connection, and the calls that they refuse."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import grpc

from grpc_backoff.base.base_errors import OptionError, kind_of
from grpc_backoff.base.logs import Log
from grpc_backoff.ledger.errors import LedgerStateError
from grpc_backoff.ledger.inbox.decision import InboxEntry, Refused, read_key
from grpc_backoff.ledger.stores.store import LONG_AGO
from grpc_backoff.ledger.stores.urls import POSTGRES_URL, read_url
from grpc_backoff.policy import checks

if TYPE_CHECKING:
    from grpc_backoff.ledger.inbox.postgres import AioPostgres, SyncPostgres
    from grpc_backoff.ledger.inbox.sqlite import AioSQLite, SyncSQLite

    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    Handler = grpc.RpcMethodHandler  # which is generic to type checkers only

AioDatabase: TypeAlias = "AioPostgres | AioSQLite"
SyncDatabase: TypeAlias = "SyncPostgres | SyncSQLite"
DatabaseT = TypeVar("DatabaseT", bound="AioDatabase | SyncDatabase")
SLICE = 0.5
"""How long a call waits for another at a time, in seconds. In between, it gives its connection to others."""
_LOG = Log("grpc_backoff")
_CONNECTION: ContextVar[object] = ContextVar("grpc_backoff_inbox_connection")


def connection() -> Any:
    """Return the connection whose transaction the running handler shares with the inbox.

    It is a `psycopg.AsyncConnection` under `AioInbox` and a `psycopg.Connection` under `SyncInbox`; with SQLite, both
    give a `sqlite3.Connection`. The inbox commits when the handler returns, and rolls back when it fails. A handler
    must not end the transaction itself, or use the connection after it has returned.

    Raises:
        LedgerStateError: this code does not run in the handler of a call that has an idempotency key.
    """
    found = _CONNECTION.get(None)
    if found is None:
        raise LedgerStateError("there is no connection here: the call has no idempotency key, or no inbox received it")
    return found


@contextlib.contextmanager
def handing_out(made: object) -> Iterator[None]:
    """Let the function `connection` return this connection while the block runs."""
    token = _CONNECTION.set(made)
    try:
        yield
    finally:
        _CONNECTION.reset(token)


def aio_database(url: str | os.PathLike[str], connections: int) -> AioDatabase:
    """Return the database at a URL for `AioInbox`, not yet open; the errors are those of `AioInbox.open`."""
    place = read_url(url)
    if place.startswith(POSTGRES_URL):
        from grpc_backoff.ledger.inbox.postgres import AioPostgres  # noqa: PLC0415 - an optional package

        return AioPostgres(place, connections)
    from grpc_backoff.ledger.inbox.sqlite import AioSQLite  # noqa: PLC0415 - like the other

    return AioSQLite(place)


def sync_database(url: str | os.PathLike[str], connections: int) -> SyncDatabase:
    """Return the same for `SyncInbox`."""
    place = read_url(url)
    if place.startswith(POSTGRES_URL):
        from grpc_backoff.ledger.inbox.postgres import SyncPostgres  # noqa: PLC0415 - an optional package

        return SyncPostgres(place, connections)
    from grpc_backoff.ledger.inbox.sqlite import SyncSQLite  # noqa: PLC0415 - like the other

    return SyncSQLite(place)


def no_scope(_context: object) -> str:
    """Return the same scope for all callers."""
    return ""


class Inbox(Generic[DatabaseT]):
    """What the interceptors of both APIs are: a database, options, and how a call goes through."""

    def __init__(
        self,
        database_at: Callable[[str | os.PathLike[str], int], DatabaseT],
        url: str | os.PathLike[str],
        *,
        required: bool | Collection[str],
        scope: Callable[..., str],
        hold: float,
        connections: int,
    ) -> None:
        """Check the options and prepare the database; use `open` instead."""
        names = () if isinstance(required, bool) else required
        paths = isinstance(names, Collection) and all(isinstance(name, str) and name.startswith("/") for name in names)
        if isinstance(names, str) or not paths:
            allowed = "True, False, or a collection of full method names, such as '/shop.Orders/Place'"
            raise OptionError("required", required, allowed)
        if not callable(scope):
            raise OptionError("scope", scope, "a function that takes the servicer context and returns a string")
        self._required = required
        self._scope = scope
        self._hold = checks.duration("hold", hold)
        self._database = database_at(url, checks.whole(1)("connections", connections))
        self._process = os.getpid()

    def _guarded(
        self,
        handler: Handler | None,
        details: grpc.HandlerCallDetails,
        usable: Callable[[object], bool],
        answer: Callable[..., object],
    ) -> Handler | None:
        """Return a call's handler or, if the inbox does not let the call pass, one of the same arity for bytes.

        That one calls `answer` with a function that makes the call's passage of request and context, and with both.
        """
        key = None if handler is None else self._key(handler, details, usable)
        if handler is None or key is None:
            return handler
        streams = handler.request_streaming, handler.response_streaming
        requests, responses = ("stream" if many else "unary" for many in streams)
        make: Callable[..., Handler] = getattr(grpc, f"{requests}_{responses}_rpc_method_handler")
        return make(functools.partial(answer, functools.partial(self._enter, handler, details.method, key)))

    def _key(
        self, handler: Handler, details: grpc.HandlerCallDetails, usable: Callable[[object], bool]
    ) -> str | Refused | None:
        """Return the key with which a call goes through the inbox, its refusal, or None if the inbox lets it pass."""
        unary = not handler.request_streaming and not handler.response_streaming
        key = read_key(details.invocation_metadata or (), details.method, self._required if unary else False)
        if not isinstance(key, str):
            return key
        if not unary:
            return Refused("UNIMPLEMENTED", "an idempotency key is accepted only by unary-unary methods")
        if not usable(handler.unary_unary):
            return Refused("UNIMPLEMENTED", "an idempotency key is accepted only by methods that are `async def`")
        if os.getpid() != self._process:  # the parent also uses the connections
            return Refused("UNAVAILABLE", "the inbox was opened before a fork; open one in each process")
        return key

    def _enter(self, handler: Handler, method: str, key: str | Refused, request: bytes, context: object) -> Passage:
        """Begin the passage of a call, or raise its refusal; the scope function gets the context and may abort."""
        if isinstance(key, Refused):
            raise key
        scope = self._scope(context)
        if not isinstance(scope, str):
            problem = f"the function 'scope' returned {kind_of(scope)}: expected a string"
            raise OptionError("scope", kind_of(scope), "a function that returns a string", problem=problem)
        try:
            message = handler.request_deserializer(request) if handler.request_deserializer else request
        except Exception:  # noqa: BLE001 - as in grpc itself
            raise Refused("INTERNAL", "Exception deserializing request!") from None
        entry = InboxEntry(self._database.statements, scope, method, key, request)
        return Passage(self._database, handler, method, message, entry, time.monotonic() + self._hold)

    def _prune(self, older_than: float) -> int:
        seconds = min(checks.pause("older_than", older_than), LONG_AGO)
        total = 0
        with self._database.connected() as connection:
            while deleted := connection.execute(self._database.statements.prune, (seconds,)).rowcount:
                total += deleted
        return total


@dataclass(slots=True, repr=False)
class Passage:
    """One call on its way through an inbox: its message, its entry, and what its handler returned.

    After `until`, on the clock `time.monotonic`, it waits no more.
    """

    database: AioDatabase | SyncDatabase
    handler: Handler
    method: str
    message: object
    entry: InboxEntry
    until: float
    response: bytes | None = None

    def respond(self, context: Any) -> Any:
        """Call the handler, which may be a coroutine function."""
        return self.handler.unary_unary(self.message, context)  # type: ignore[misc]  # `Inbox._key` has looked

    def limit(self) -> float:
        """Return how long the next transaction may wait, in seconds."""
        return min(max(self.until - time.monotonic(), 0.001), SLICE)

    def returned(self, response: Any, status: object) -> bytes | None:
        """Return the serialized response; None if the handler set an error status."""
        serialize = self.handler.response_serializer
        self.response = response if serialize is None else serialize(response)
        return self.response if status in (None, 0, grpc.StatusCode.OK) else None

    @contextlib.contextmanager
    def beginning_again(self) -> Iterator[None]:
        """Suppress an error of the database after which the block is to be run again; refuse the call after others."""
        try:
            yield
        except self.database.errors as error:
            trouble = self.database.trouble(error)
            following = self.entry.after(error, trouble, late=time.monotonic() >= self.until)
            if following is error:
                raise
            if isinstance(following, Refused):
                # The text of the error may show values, so it is not logged.
                kind = f"{type(error).__name__} {getattr(error, 'sqlstate', None) or ''}".strip()
                stage = self.entry.stage.name.lower()
                _LOG.warning("inbox: %s: %s while %s: %s", self.method, kind, stage, following.details)
                raise following from None
