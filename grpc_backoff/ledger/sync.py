"""The ledger for programs without an event loop, such as those with Django, Flask or SQLAlchemy.

It decides and stores nothing itself: it runs the ledger of `ledger.py` on an event loop in a thread of its own. Its
methods may be called from any thread and return when the work is done.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Self, Unpack, cast

from grpc_backoff.aio.channel import Channel
from grpc_backoff.config.channel_setup import is_coroutine_function
from grpc_backoff.ledger import ledger as on_asyncio
from grpc_backoff.ledger.arguments import check_prepared
from grpc_backoff.ledger.errors import LedgerUnavailableError, wrong_type
from grpc_backoff.ledger.operation_events import LedgerHooks
from grpc_backoff.ledger.records import Submission, SubmitOptions, Submitted
from grpc_backoff.ledger.stores.statements import ParameterStyle, ResultT
from grpc_backoff.ledger.stores.store import check_process
from grpc_backoff.ledger.transactions.submitting import remedy, submit_within

__all__ = ["Ledger"]

P = ParamSpec("P")


def _blocking(
    method: Callable[Concatenate[on_asyncio.Ledger, P], Coroutine[object, object, ResultT]],
) -> Callable[Concatenate[Ledger, P], ResultT]:
    @functools.wraps(method)
    def call(ledger: Ledger, /, *arguments: P.args, **named: P.kwargs) -> ResultT:
        return ledger._wait(method(ledger._ledger, *arguments, **named))  # noqa: SLF001 - it becomes a method

    return cast("Callable[Concatenate[Ledger, P], ResultT]", call)


class Ledger:
    """A ledger whose methods block. They are those of `grpc_backoff.ledger.Ledger`.

    ::

        with Ledger.open("postgresql://...") as ledger:
            with psycopg.connect(url) as connection:
                connection.execute("INSERT INTO orders ...")
                ledger.submit(stub.Place, order, within=connection)

    Hooks that are not coroutine functions run in threads of their own. Listeners run on the ledger's thread, so they
    must not call this object.
    """

    _ledger: on_asyncio.Ledger

    def __init__(self) -> None:
        """Start the ledger's thread; use `open` instead."""
        started = concurrent.futures.Future[asyncio.AbstractEventLoop]()
        self._thread = threading.Thread(target=_run, args=(started,), name="grpc-backoff-ledger", daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._process = os.getpid()
        self._doing: set[concurrent.futures.Future[Any]] = set()
        self._closing = threading.Lock()

    @classmethod
    def open(cls, url: str | os.PathLike[str], *, hooks: LedgerHooks | None = None, **keywords: Any) -> Self:
        """Open a database; the arguments and errors are those of `grpc_backoff.ledger.Ledger.open`."""
        made = cls()
        try:
            made._ledger = made._wait(on_asyncio.Ledger.open(url, hooks=_in_threads(hooks), **keywords))
        except BaseException:
            made._end()
            raise
        return made

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the ledger."""
        self.close()

    def close(self) -> None:
        """End the deliveries within their grace period, close the database, and stop the ledger's thread."""
        if os.getpid() != self._process:
            return
        self._check_thread()
        with self._closing:  # the thread that delivers often closes as well
            if self._loop.is_closed():
                return
            try:
                self._wait(self._ledger.close())
                concurrent.futures.wait(set(self._doing), self._ledger.settings.timeout)  # deliveries close channels
            finally:
                self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _wait(self, work: Coroutine[object, object, ResultT], remedy: str = "") -> ResultT:
        """Run a coroutine on the ledger's thread and return its result; cancel it if this thread is interrupted.

        If another thread closes the ledger meanwhile, the error contains the remedy.
        """
        try:
            self._check_thread()
            doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException as error:
            work.close()
            if self._loop.is_closed():
                raise LedgerUnavailableError("the ledger is closed") from error
            raise
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        try:
            return doing.result()
        except concurrent.futures.CancelledError as error:
            raise LedgerUnavailableError(f"the ledger was closed{remedy}", stored=None) from error
        except BaseException:
            doing.cancel()
            raise

    def _check_thread(self) -> None:
        check_process("ledger", self._process)  # the thread does not exist in the child of a fork
        if threading.current_thread() is self._thread:
            raise RuntimeError("a listener of the ledger called the ledger, which would wait for itself")

    # Submitting. An operation is prepared in the caller's thread, because only that knows the caller's trace.

    def submit(
        self, call: object, *request: object, within: object = None, **options: Unpack[SubmitOptions]
    ) -> Submitted:
        """Store an operation; it is durable when this returns, or when the transaction of `within` commits (LG-9).

        The arguments and errors are those of `grpc_backoff.ledger.Ledger.submit`. The stub may be one of a channel of
        either API.
        """
        return self.submit_many([self.prepared(call, *request, **options)], within=within)[0]

    def submit_many(self, prepared: Sequence[Submission], *, within: object = None) -> list[Submitted]:
        """Store operations made by `prepared` in one transaction, all or none; otherwise like `submit`.

        Raises:
            LedgerUnavailableError: the database does not answer.
            LedgerLimitError: there is no room for all of them.
            TypeError: `within` is a connection for asyncio.
        """
        check_prepared(prepared)
        if within is None or not prepared:
            return self._wait(self._ledger.submit_many(prepared), f"; {remedy(prepared)}")
        if inspect.iscoroutinefunction(getattr(within, "execute", None)):
            raise TypeError(wrong_type("within", within, "a connection that blocks"))
        self._wait(self._ledger.make_room(len(prepared)))
        # In this thread, as SQLite's connections require: if it is interrupted, nothing goes on using the connection.
        return cast("list[Submitted]", submit_within(self._ledger.store, within, prepared, blocking=True))

    def prepared(self, call: object, *request: object, **options: Unpack[SubmitOptions]) -> Submission:
        """Return an operation for `submit_many` or `statement`, not yet stored; the arguments are those of `submit`."""
        return self._ledger.prepared(call, *request, **options)

    def statement(self, prepared: Submission, style: ParameterStyle | None = None) -> tuple[str, tuple[object, ...]]:
        """Return the SQL that stores an operation, and its parameters, for any other driver (LG-9)."""
        return self._ledger.statement(prepared, style)

    # Delivering.

    def deliver(
        self, connect: Callable[[], Channel], *, concurrency: int | None = None, grace: float | None = None
    ) -> None:
        """Deliver the operations for a channel's target until another thread closes the ledger (LG-10).

        Args:
            connect: a function that returns the channel, which is one of `grpc_backoff.aio`. It is called on the
                ledger's thread, and the channel is closed at the end.
            concurrency: as in `grpc_backoff.ledger.Ledger.deliver`.
            grace: as there, in seconds.

        Raises:
            LedgerUnavailableError: the ledger is closed, or was opened before a fork.
            TypeError: `connect` is no function, or returns no such channel.
        """
        if not callable(connect):
            raise TypeError(wrong_type("connect", connect, "a function that returns a channel of grpc_backoff.aio"))

        async def deliver() -> None:
            made = connect()
            if not isinstance(made, Channel):
                raise TypeError(wrong_type("connect", made, "a function that returns a channel of grpc_backoff.aio"))
            async with made as channel:
                await self._ledger.deliver(channel, concurrency=concurrency, grace=grace)

        self._wait(deliver())

    # Everything else is as in asyncio.

    record_failure = _blocking(on_asyncio.Ledger.record_failure)
    record_success = _blocking(on_asyncio.Ledger.record_success)
    set_backoff = _blocking(on_asyncio.Ledger.set_backoff)
    get = _blocking(on_asyncio.Ledger.get)
    find = _blocking(on_asyncio.Ledger.find)
    attempts = _blocking(on_asyncio.Ledger.attempts)
    ready = _blocking(on_asyncio.Ledger.ready)
    queue = _blocking(on_asyncio.Ledger.queue)
    queues = _blocking(on_asyncio.Ledger.queues)
    pause = _blocking(on_asyncio.Ledger.pause)
    resume = _blocking(on_asyncio.Ledger.resume)
    replay = _blocking(on_asyncio.Ledger.replay)
    resolve = _blocking(on_asyncio.Ledger.resolve)
    retarget = _blocking(on_asyncio.Ledger.retarget)
    discard = _blocking(on_asyncio.Ledger.discard)
    prune = _blocking(on_asyncio.Ledger.prune)
    migrate = _blocking(on_asyncio.Ledger.migrate)
    wait = _blocking(on_asyncio.Ledger.wait)


def _run(started: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
    """Run an event loop until it is stopped; tasks that are left are then cancelled, and so are their waiters."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        started.set_result(loop)
        loop.run_forever()


def _in_threads(hooks: LedgerHooks | None) -> LedgerHooks | None:
    """Return hooks that may block and call the ledger: those that do not return coroutines run in threads."""
    if not isinstance(hooks, LedgerHooks):
        return hooks
    named = ((part.name, getattr(hooks, part.name)) for part in dataclasses.fields(hooks))
    plain = ((name, hook) for name, hook in named if hook and not is_coroutine_function(hook))
    return dataclasses.replace(hooks, **{name: functools.partial(asyncio.to_thread, hook) for name, hook in plain})
