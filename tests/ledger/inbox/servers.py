"""A real server with an inbox, of either API, whose handler is a generator that both APIs can run.

A handler yields steps: an `Sql` to execute on the inbox's connection, which is answered with its rows; a number of
seconds to sleep; a `threading.Event` to wait for; or an `Abort`. It returns the text of the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import grpc
import grpc.aio
import psycopg

from grpc_backoff.ledger.inbox import AioInbox, SyncInbox, connection
from tests.both_apis.loops import LoopThread
from tests.echo import EchoStub, Message, services

DATABASES = (psycopg.Error, sqlite3.Error)


class Sql(NamedTuple):
    text: str
    given: tuple = ()


class Abort(NamedTuple):
    code: grpc.StatusCode


def once(text, _context):
    """Record one effect in the application's table; return a response that differs in each execution."""
    yield Sql("INSERT INTO effects VALUES ({})", (text,))
    return f"{text} {uuid.uuid4()}"


class Gate:
    """Where a handler waits until the test opens it; `reached` is set when it gets there."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def wait(self):
        self.reached.set()
        yield self.opened

    def held(self, text, context):
        """Wait, then handle the call."""
        yield from self.wait()
        return (yield from once(text, context))


class Service:
    """What the servers of both APIs run: `handler`, which a test may replace."""

    def __init__(self, postgres):
        self.mark = "%s" if postgres else "?"
        self.handler = once
        self.begun = Counter()

    def sql(self, step):
        return step.text.format(*[self.mark] * len(step.given)), step.given

    def start(self, request, context):
        self.begun[request.text] += 1
        return self.handler(request.text, context)


def rows(cursor):
    """Return the rows of a cursor of sqlite3 or psycopg."""
    return cursor.fetchall() if cursor.description else []


class Servicer(services.EchoServicer):
    def __init__(self, service):
        self._service = service


class AioServicer(Servicer):
    async def Unary(self, request, context):  # noqa: N802
        steps = self._service.start(request, context)
        go, answer = steps.send, None
        while True:
            try:
                step = go(answer)
            except StopIteration as end:
                return Message(text=end.value)
            try:
                go, answer = steps.send, await self._do(step, context)
            except DATABASES as error:
                go, answer = steps.throw, error

    async def _do(self, step, context):
        if isinstance(step, Sql):
            cursor = connection().execute(*self._service.sql(step))
            if asyncio.iscoroutine(cursor):
                cursor = await cursor
                return await cursor.fetchall() if cursor.description else []
            return rows(cursor)
        if isinstance(step, threading.Event):
            while not step.is_set():
                await asyncio.sleep(0.005)
        elif isinstance(step, Abort):
            await context.abort(step.code, "as scripted")
        else:
            await asyncio.sleep(step)
        return None

    async def Down(self, request, context):  # noqa: N802
        yield request


class SyncServicer(Servicer):
    def Unary(self, request, context):  # noqa: N802
        steps = self._service.start(request, context)
        go, answer = steps.send, None
        while True:
            try:
                step = go(answer)
            except StopIteration as end:
                return Message(text=end.value)
            try:
                go, answer = steps.send, self._do(step, context)
            except DATABASES as error:
                go, answer = steps.throw, error

    def _do(self, step, context):
        if isinstance(step, Sql):
            return rows(connection().execute(*self._service.sql(step)))
        if isinstance(step, threading.Event):
            step.wait(60)
        elif isinstance(step, Abort):
            context.abort(step.code, "as scripted")
        else:
            time.sleep(step)
        return None

    def Down(self, request, context):  # noqa: N802
        yield request


class AioPlace:
    """A `grpc.aio` server on a loop in another thread."""

    def __init__(self):
        self._loop = LoopThread(asyncio.new_event_loop)

    def open(self, url, **how):
        return self._loop.run(AioInbox.open(url, **how), 30)

    @contextlib.contextmanager
    def serving(self, service, inbox):
        async def start():
            server = grpc.aio.server(interceptors=[inbox])
            services.add_EchoServicer_to_server(AioServicer(service), server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            return server, port

        server, port = self._loop.run(start(), 30)
        try:
            yield port
        finally:
            self._loop.run(server.stop(0), 30)

    def end(self, inbox):
        self._loop.run(inbox.close(), 30)

    def prune(self, inbox, older_than):
        return self._loop.run(inbox.prune(older_than), 30)

    def close(self):
        self._loop.close()


class SyncPlace:
    """A `grpc` server with enough threads for every test."""

    def open(self, url, **how):
        return SyncInbox.open(url, **how)

    @contextlib.contextmanager
    def serving(self, service, inbox):
        with ThreadPoolExecutor(32) as threads:
            server = grpc.server(threads, interceptors=[inbox])
            services.add_EchoServicer_to_server(SyncServicer(service), server)
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            try:
                yield port
            finally:
                server.stop(0).wait(30)

    def end(self, inbox):
        inbox.close()

    def prune(self, inbox, older_than):
        return inbox.prune(older_than)

    def close(self):
        pass


PLACES = {"asyncio": AioPlace, "threads": SyncPlace}


class Shop:
    """A server with an inbox, a client of it, and a look into its database."""

    def __init__(self, place, url, service, inbox, port):
        self.place, self.url, self.service, self.inbox, self.port = place, url, service, inbox, port
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = EchoStub(self.channel)

    def call(self, key="k", text="a", *, timeout=30, metadata=()):
        """Make a call; return its response's text, or raise its error."""
        sent = [*metadata, *([("idempotency-key", key)] if key is not None else [])]
        return self.stub.Unary(Message(text=text), metadata=sent, timeout=timeout).text

    def future(self, key="k", text="a", *, timeout=30):
        return self.stub.Unary.future(Message(text=text), metadata=[("idempotency-key", key)], timeout=timeout)

    def refused(self, *given, **how):
        """Make a call that fails; return its error."""
        try:
            answered = self.call(*given, **how)
        except grpc.RpcError as error:
            return error
        raise AssertionError(answered)

    def effects(self):
        """Return what the application's table has."""
        return [text for (text,) in query(self.url, "SELECT text FROM effects ORDER BY text")]

    def recorded(self):
        """Return how many calls the inbox has recorded."""
        [(number,)] = query(self.url, "SELECT count(*) FROM {inbox}")
        return number


def query(url, statement):
    """Run a statement on a connection of its own, in a transaction; return its rows."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url) as made:
            return rows(made.execute(statement.format(inbox="grpc_backoff.inbox")))
    with contextlib.closing(sqlite3.connect(url)) as made, made:
        return rows(made.execute(statement.format(inbox="ledger_inbox")))


@contextlib.contextmanager
def shop(api, url, **how):
    """Run a server of an API with an inbox in this database; the application's table is created."""
    query(url, "CREATE TABLE IF NOT EXISTS effects (text text)")
    place = PLACES[api]()
    try:
        inbox = place.open(url, **how)
        try:
            service = Service(url.startswith("postgresql:"))
            with place.serving(service, inbox) as port:
                made = Shop(place, url, service, inbox, port)
                yield made
                made.channel.close()
        finally:
            place.end(inbox)
    finally:
        place.close()
