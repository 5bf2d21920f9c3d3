"""A real server with an inbox, of either API, whose handler is a generator that both APIs can run.

A handler yields steps: an `Sql` to execute on the inbox's connection, which is answered with its rows; a number of
seconds to sleep; a `threading.Event` to wait for; or an `Abort`. It returns the text of the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
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
from tests.ledger.conftest import connected
from tests.ledger.steps import did

DATABASES = (psycopg.Error, sqlite3.Error)


class Sql(NamedTuple):
    text: str
    params: tuple = ()


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


@contextlib.contextmanager
def holding(shop, call=None, before=None, after=once):
    """Make a call in a thread, whose handler waits between these two until the end of the block; yield its future."""
    gate = Gate()

    def handler(text, context):
        if before:
            yield from before(text, context)
        yield from gate.wait()
        return (yield from after(text, context))

    shop.service.handler = handler
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(call or shop.call)
        try:
            assert gate.reached.wait(20)
            yield made
        finally:
            gate.opened.set()


class Service:
    """What the servers of both APIs run: `handler`, which a test may replace."""

    def __init__(self, postgres):
        self.mark = "%s" if postgres else "?"
        self.handler = once
        self.begun = Counter()

    async def run(self, request, context):
        """Take a handler's steps, also in a thread of a server that is not asynchronous."""
        self.begun[request.text] += 1
        steps = self.handler(request.text, context)
        go, answer = steps.send, None
        while True:
            try:
                step = go(answer)
            except StopIteration as end:
                return Message(text=end.value)
            try:
                go, answer = steps.send, await self._take(step, context)
            except DATABASES as error:
                go, answer = steps.throw, error

    async def _take(self, step, context):
        if isinstance(step, Sql):
            text = step.text.format(*[self.mark] * len(step.params))
            cursor = await did(connection().execute(text, step.params))
            return await did(cursor.fetchall()) if cursor.description else []
        if isinstance(step, threading.Event):
            while not step.is_set():
                await asyncio.sleep(0.005)
        elif isinstance(step, Abort):
            await did(context.abort(step.code, "as scripted"))
        else:
            await asyncio.sleep(step)
        return None


class Servicer(services.EchoServicer):
    def __init__(self, service):
        self._service = service


class AioServicer(Servicer):
    async def Unary(self, request, context):  # noqa: N802
        return await self._service.run(request, context)

    async def Down(self, request, context):  # noqa: N802
        yield request


class SyncServicer(Servicer):
    def Unary(self, request, context):  # noqa: N802
        return asyncio.run(self._service.run(request, context))

    def Down(self, request, context):  # noqa: N802
        yield request


class Place:
    """Where inboxes of one API are used; `do` returns what one of their methods returns."""

    def open(self, url, **how):
        return self.do(self.inboxes.open(url, **how))

    def close(self):
        pass


class AioPlace(Place):
    """A `grpc.aio` server on a loop in another thread."""

    inboxes = AioInbox

    def __init__(self):
        self._loop = LoopThread(asyncio.new_event_loop)

    def do(self, work):
        return self._loop.run(work, 30)

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

    def close(self):
        self._loop.close()


class SyncPlace(Place):
    """A `grpc` server with enough threads for every test."""

    inboxes = SyncInbox

    def do(self, work):
        return work

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


PLACES = {"asyncio": AioPlace, "threads": SyncPlace}


def placed(api):
    """Return a place for the servers of an API, which is closed at the end of the block."""
    return contextlib.closing(PLACES[api]())


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
    with connected(url) as made:
        cursor = made.execute(statement.format(inbox="grpc_backoff.inbox" if "://" in url else "ledger_inbox"))
        return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def shop(api, url, **how):
    """Run a server of an API with an inbox in this database; the application's table is created."""
    query(url, "CREATE TABLE IF NOT EXISTS effects (text text)")
    with placed(api) as place:
        inbox = place.open(url, **how)
        try:
            service = Service(url.startswith("postgresql:"))
            with place.serving(service, inbox) as port:
                made = Shop(place, url, service, inbox, port)
                yield made
                made.channel.close()
        finally:
            place.do(inbox.close())
