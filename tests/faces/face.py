"""Both faces, and grpc's own beside them, as blocking code: what the tests of this room are written in.

A `Face` makes channels. A channel makes calls; each has one way of being made, and one `Outcome`. The asyncio faces run
on an event loop in a thread of its own, on which their channels, calls and questions are; the threaded ones run where
the test does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import grpc
import grpc.aio
from grpc._channel import _InactiveRpcError

import grpc_backoff
import grpc_backoff.aio
from tests.echo import EchoStub, Message
from tests.faces.loops import LoopThread

RETRY = "retry: 3, delay: 10ms"
KINDS = {"plain": {}, "ours": {}, "retrying": {"retry": RETRY}}
REQUEST_STREAMS = {"Up", "Both"}
RESPONSE_STREAMS = {"Down", "Both"}


class Outcome(NamedTuple):
    """How a call has ended: what it answered, its status, and what it raised."""

    texts: list[str] | None
    code: grpc.StatusCode
    details: str
    error: BaseException | None = None


def answered(text):
    """Return the outcome of a unary call with this answer."""
    return Outcome([text], grpc.StatusCode.OK, "")


def failed(error):
    """Return the outcome that an error tells of."""
    return Outcome(None, error.code(), error.details(), error)


def send(worker, outcome):
    """Send a worker the outcome that it waits for; return what it asks for next, None at its end."""
    try:
        return worker.send(outcome)
    except StopIteration:
        return None


async def _no_task_is_left():
    end = time.monotonic() + 10
    while left := [task for task in asyncio.all_tasks() if "/grpc_backoff/" in repr(task)]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.005)


async def _all(running):
    return await asyncio.gather(*running)


def method_of(stub, method, retry):
    """Return a method of a stub, with a policy of its own if there is one."""
    made = getattr(stub, method)
    return made if retry is None else grpc_backoff.retrying(made, retry)


def request_of(method, texts):
    """Return what a method is called with: one request of all the texts, or one for each."""
    if method in REQUEST_STREAMS:
        return iter([Message(text=text) for text in texts])
    return Message(text="".join(texts), count=1)


class _Face:
    def __init__(self, kind):
        self.kind = kind
        self.ours = kind != "plain"

    def make(self, target, options=(), credentials=None, **how):
        """Return a channel of this face's own module, with what its kind gives beside."""
        how |= KINDS[self.kind] if "retry" not in how else {}
        module = self.module if self.ours else self.plain
        if credentials is not None:
            return module.secure_channel(target, credentials, options, **how)
        return module.insecure_channel(target, options, **how)

    def __repr__(self):
        return f"{self.name}-{self.kind}"


class AsyncioFace(_Face):
    """`grpc.aio`, and `grpc_backoff.aio` in its place."""

    name = "asyncio"
    plain, module, error = grpc.aio, grpc_backoff.aio, grpc.aio.AioRpcError
    ways = ("Unary", "Down", "Up", "Both")
    cancellable = ways

    def __init__(self, kind, factory):
        super().__init__(kind)
        self._loop = LoopThread(factory)

    @contextlib.contextmanager
    def channel(self, target, options=(), **how):
        """Have a channel, which is closed at the end."""
        made = AsyncioChannel(self._loop.do(self.make, target, options, **how), self._loop)
        try:
            yield made
        finally:
            made.close()

    def close(self):
        """End the loop; see to it that our channels have left no task on it (CB-10)."""
        try:
            if self.ours:
                self._loop.run(_no_task_is_left())
        finally:
            self._loop.close()


class ThreadedFace(_Face):
    """`grpc`, and `grpc_backoff` in its place."""

    name = "threads"
    plain, module, error = grpc, grpc_backoff, _InactiveRpcError
    ways = ("Unary", "Unary.with_call", "Unary.future", "Down", "Up", "Up.with_call", "Up.future", "Both")
    cancellable = ("Unary.future", "Down", "Up.future", "Both")

    @contextlib.contextmanager
    def channel(self, target, options=(), **how):
        """Have a channel, which is closed at the end."""
        made = ThreadedChannel(self.make(target, options, **how))
        try:
            yield made
        finally:
            made.close()

    def close(self):
        """Do nothing: there is nothing of its own."""


class AsyncioChannel:
    def __init__(self, channel, loop):
        self.own = channel
        self._loop = loop
        self._stub = loop.do(EchoStub, channel)

    def begin(self, way="Unary", texts=("a",), *, retry=None, **how):
        """Make a call, by a policy of its own if there is one; it is on its way when this returns."""
        make = method_of(self._stub, way, retry)
        return AsyncioCall(self._loop.do(make, request_of(way, texts), **how), self._loop)

    def unary(self, text="a", **how):
        """Make a unary call; return its answer, or raise its error."""

        async def call():
            return (await self._stub.Unary(Message(text=text), **how)).text

        return self._loop.run(call(), 60)

    def start(self, workers):
        """Let workers call at the same time; return a function that waits for their end.

        A worker is a generator. It yields a text and arguments to make a unary call, whose outcome it is sent, or a
        number of seconds to sleep.
        """
        running = self._loop.do(lambda: [asyncio.ensure_future(self._work(worker)) for worker in workers])
        return lambda: self._loop.run(_all(running), 60)

    async def _work(self, worker):
        asked = next(worker, None)
        while asked is not None:
            if isinstance(asked, float):
                await asyncio.sleep(asked)
                outcome = None
            else:
                outcome = await self._call(*asked)
            asked = send(worker, outcome)

    async def _call(self, text, how):
        try:
            return answered((await self._stub.Unary(Message(text=text), **how)).text)
        except grpc.RpcError as error:
            return failed(error)

    def ready(self):
        """Ask for a connection, and return when it is there."""
        self._loop.run(self.own.channel_ready())

    def close(self):
        self._loop.run(self.own.close())


class ThreadedChannel:
    def __init__(self, channel):
        self.own = channel
        self._stub = EchoStub(channel)

    def begin(self, way="Unary", texts=("a",), *, retry=None, **how):
        """Make a call, by a policy of its own if there is one; a blocking one is made in a thread of its own."""
        method, _, style = way.partition(".")
        make, request = method_of(self._stub, method, retry), request_of(method, texts)
        if style == "future":
            return ThreadedCall(make.future(request, **how), lambda call, within: [call.result(within).text])
        if method in RESPONSE_STREAMS:
            return ThreadedCall(make(request, **how), lambda call, _within: [each.text for each in call])
        return BlockingCall(make.with_call if style else make, request, how)

    def unary(self, text="a", **how):
        """Make a unary call; return its answer, or raise its error."""
        return self._stub.Unary(Message(text=text), **how).text

    def start(self, workers):
        """Let workers call at the same time; see `AsyncioChannel.start`."""
        pool = ThreadPoolExecutor(len(workers))
        running = [pool.submit(self._work, worker) for worker in workers]
        pool.shutdown(wait=False)
        return lambda: [each.result(60) for each in running]

    def _work(self, worker):
        asked = next(worker, None)
        while asked is not None:
            if isinstance(asked, float):
                time.sleep(asked)
                outcome = None
            else:
                outcome = self._call(*asked)
            asked = send(worker, outcome)

    def _call(self, text, how):
        try:
            return answered(self.unary(text, **how))
        except grpc.RpcError as error:
            return failed(error)

    def ready(self):
        """Ask for a connection, and return when it is there."""
        grpc.channel_ready_future(self.own).result(20)

    def close(self):
        self.own.close()


class AsyncioCall:
    def __init__(self, call, loop):
        self._call = call
        self._loop = loop

    def done(self):
        return self._call.done()

    def cancel(self):
        return self._loop.do(self._call.cancel)

    def remaining(self):
        return self._loop.do(self._call.time_remaining)

    def read(self):
        """Return the text of the next response of a stream."""

        async def read():
            return (await anext(aiter(self._call))).text

        return self._loop.run(read())

    def outcome(self, within=20):
        """Wait for the end, and say what it was."""
        return self._loop.run(self._outcome(), within)

    async def _outcome(self):
        texts = error = None
        try:
            texts = await self._answers()
        except (grpc.RpcError, asyncio.CancelledError) as caught:
            error = caught
        return Outcome(texts, await self._call.code(), await self._call.details(), error)

    async def _answers(self):
        if isinstance(self._call, grpc.aio.UnaryUnaryCall | grpc.aio.StreamUnaryCall):
            return [(await self._call).text]
        return [each.text async for each in self._call]


class ThreadedCall:
    def __init__(self, call, read):
        self._call = call
        self._answers = read
        self.done = call.done
        self.cancel = call.cancel
        self.remaining = call.time_remaining

    def read(self):
        """Return the text of the next response of a stream."""
        return next(self._call).text

    def outcome(self, within=20):
        """Wait for the end, and say what it was."""
        texts = error = None
        try:
            texts = self._answers(self._call, within)
        except (grpc.RpcError, grpc.FutureCancelledError) as caught:
            error = caught
        return Outcome(texts, self._call.code(), self._call.details(), error)


class BlockingCall:
    """A call in a thread of its own, which it blocks. Nobody can cancel it."""

    def __init__(self, make, request, how):
        pool = ThreadPoolExecutor(1)
        self._future = pool.submit(make, request, **how)
        pool.shutdown(wait=False)
        self.done = self._future.done

    def outcome(self, within=20):
        """Wait for the end, and say what it was."""
        error = self._future.exception(within)
        if isinstance(error, grpc.RpcError):
            return failed(error)
        answer = self._future.result()
        response, call = answer if isinstance(answer, tuple) else (answer, None)
        return Outcome([response.text], grpc.StatusCode.OK, call.details() if call else "")
