"""The asyncio and the threaded API, of this library and of plain grpc, behind one blocking interface for tests.

An API makes channels. A channel makes calls; each call is made in one way and has one `Outcome`. The asyncio APIs run
on an event loop in a separate thread, which also makes their calls. The threaded ones run in the thread of the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import grpc
import grpc.aio
from grpc._channel import _InactiveRpcError

import grpc_backoff
import grpc_backoff.aio
from tests.both_apis.interceptors import for_asyncio, for_threads
from tests.both_apis.loops import LoopThread
from tests.echo import EchoStub, Message

RETRY = "retry: 3, delay: 10ms"
KINDS = {"plain": {}, "ours": {}, "retrying": {"retry": RETRY}}
ARITIES = {"Unary": "unary_unary", "Down": "unary_stream", "Up": "stream_unary", "Both": "stream_stream"}
REQUEST_STREAMS = {"Up", "Both"}
RESPONSE_STREAMS = {"Down", "Both"}
NO_STREAM = object()


def backoff_ms(initial, longest, limit=None):
    """Return options for the first and the longest wait, and for the least limit of an attempt, in milliseconds."""
    options = [("grpc.initial_reconnect_backoff_ms", initial), ("grpc.max_reconnect_backoff_ms", longest)]
    return options if limit is None else [*options, ("grpc.min_reconnect_backoff_ms", limit)]


class Outcome(NamedTuple):
    """How a call ended: its responses, its status and the error that it raised."""

    texts: list[str] | None
    code: grpc.StatusCode
    details: str
    error: BaseException | None = None


def answered(text):
    """Return the outcome of a successful unary call with this response."""
    return Outcome([text], grpc.StatusCode.OK, "")


def failed(error):
    """Return the outcome of a call that raised this error."""
    return Outcome(None, error.code(), error.details(), error)


async def _no_task_is_left():
    end = time.monotonic() + 10
    while left := [task for task in asyncio.all_tasks() if "/grpc_backoff/" in repr(task)]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.005)


def method_of(channel, method, retry, path, serializer):
    """Return a method of the channel's stub, or one with another path; it has the policy `retry` if that is given."""
    if path is None:
        made = getattr(channel.stub, method)
    else:
        made = getattr(channel.calls, ARITIES[method])(path, serializer, Message.FromString)
    return made if retry is None else grpc_backoff.retrying(made, retry)


def request_of(method, texts, stream):
    """Return the argument for a call: one request with all texts, or an iterator with one request per text.

    Instead of texts, there may be a message or NO_STREAM, which is passed on unchanged, or a generator, whose items
    `stream` turns into requests.
    """
    if isinstance(texts, Message) or texts is NO_STREAM:
        return texts
    if method not in REQUEST_STREAMS:
        return Message(text="".join(texts), count=1)
    return iter([Message(text=text) for text in texts]) if isinstance(texts, list | tuple) else stream(texts)


async def asyncio_stream(steps):
    """Yield a request for each text; for an event among the texts, wait until it is set."""
    for step in steps:
        if not isinstance(step, threading.Event):
            yield Message(text=step)
        else:
            while not step.is_set():
                await asyncio.sleep(0.002)


def threaded_stream(steps):
    """Yield a request for each text; for an event among the texts, wait until it is set."""
    for step in steps:
        if not isinstance(step, threading.Event):
            yield Message(text=step)
        else:
            step.wait(20)


class _Api:
    """One API, of plain grpc or of this library, with everything that differs between the two APIs.

    Attributes:
        error: the type of call errors.
        closed: the error that a call on a closed channel raises.
        insecure: the error that call credentials cause on a plaintext connection.
        at_close: the details of a call that was cancelled because its channel was closed.
        broken: the code of a call whose request iterator raised an exception.
        metadata: converts pairs to the type that interceptors use for metadata.
        paths: convert a method's name to each type that interceptors may set; the first is the type that they receive.
        ways: the ways of making calls.
        cancellable: the ways whose calls can be cancelled.
        sending: the ways that send a stream of requests.
        hedgeable: the ways that send one request.
    """

    def __init__(self, kind):
        self.kind = kind
        self.ours = kind != "plain"

    def make(self, target, options=(), credentials=None, **how):
        """Return a channel of this library or of plain grpc, with the settings for the kind of this API."""
        how |= KINDS[self.kind] if "retry" not in how else {}
        module = self.module if self.ours else self.plain
        if credentials is not None:
            return module.secure_channel(target, credentials, options, **how)
        return module.insecure_channel(target, options, **how)

    def __repr__(self):
        return f"{self.name}-{self.kind}"


class AsyncioApi(_Api):
    """The asyncio API: `grpc.aio` or `grpc_backoff.aio`."""

    name = "asyncio"
    plain, module, error = grpc.aio, grpc_backoff.aio, grpc.aio.AioRpcError
    closed = insecure = grpc.aio.UsageError
    metadata = grpc.aio.Metadata
    paths = (str.encode, str)
    broken, at_close = grpc.StatusCode.CANCELLED, "Locally cancelled by application!"
    ways = ("Unary", "Down", "Up", "Both")
    cancellable = ways
    sending = ("Up", "Both")
    hedgeable = ("Unary", "Down")

    def __init__(self, kind, factory):
        super().__init__(kind)
        self._loop = LoopThread(factory)

    @contextlib.contextmanager
    def channel(self, target, options=(), *, interceptors=(), **how):
        """Open a channel with these interceptors (generator functions); close it at the end of the block."""
        how["interceptors"] = [each for function in interceptors for each in for_asyncio(function)]
        made = AsyncioChannel(self._loop.do(self.make, target, options, **how), self._loop)
        try:
            yield made
        finally:
            made.close()

    def close(self):
        """Stop the loop; check that this library's channels have left no task on it (CB-10)."""
        try:
            if self.ours:
                self._loop.run(_no_task_is_left())
        finally:
            self._loop.close()


class ThreadedApi(_Api):
    """The threaded API: `grpc` or `grpc_backoff`."""

    name = "threads"
    plain, module, error = grpc, grpc_backoff, _InactiveRpcError
    closed, insecure = ValueError, grpc.RpcError
    metadata = staticmethod(lambda *pairs: pairs)
    paths = (str,)
    broken, at_close = grpc.StatusCode.UNKNOWN, "Channel closed!"
    ways = ("Unary", "Unary.with_call", "Unary.future", "Down", "Up", "Up.with_call", "Up.future", "Both")
    cancellable = ("Unary.future", "Down", "Up.future", "Both")
    sending = ("Up", "Up.with_call", "Up.future", "Both")
    hedgeable = ("Unary", "Unary.with_call", "Unary.future", "Down")

    @contextlib.contextmanager
    def channel(self, target, options=(), *, interceptors=(), **how):
        """Open a channel with these interceptors (generator functions); close it at the end of the block."""
        made = ThreadedChannel(self.make(target, options, **how), map(for_threads, interceptors))
        try:
            yield made
        finally:
            made.close()

    def close(self):
        """Do nothing: this API has no resources to release."""


class _Channel:
    """A channel of either API."""

    def start(self, workers):
        """Run workers concurrently, each in a thread; return a function that waits until all of them have ended.

        A worker is a generator. It yields a text and arguments to make a unary call, and is sent the outcome. To sleep,
        it yields a number of seconds.
        """
        pool = ThreadPoolExecutor(len(workers))
        running = [pool.submit(self._work, worker) for worker in workers]
        pool.shutdown(wait=False)
        return lambda: [each.result(60) for each in running]

    def _work(self, worker):
        with contextlib.suppress(StopIteration):
            asked = next(worker)
            while True:
                asked = worker.send(time.sleep(asked) if isinstance(asked, float) else self._call(*asked))

    def _call(self, text, how):
        try:
            return answered(self.unary(text, **how))
        except grpc.RpcError as error:
            return failed(error)


class AsyncioChannel(_Channel):
    def __init__(self, channel, loop):
        self.own = self.calls = channel
        self._loop = loop
        self.stub = loop.do(EchoStub, channel)

    def begin(self, way="Unary", texts=("a",), *, retry=None, path=None, serializer=Message.SerializeToString, **how):
        """Start a call, with the policy `retry` if that is given. The call is under way when this returns."""
        make = method_of(self, way, retry, path, serializer)
        return AsyncioCall(self._loop.do(make, request_of(way, texts, asyncio_stream), **how), self._loop)

    def unary(self, text="a", **how):
        """Make a unary call; return its response, or raise its error."""

        async def call():
            return (await self.stub.Unary(Message(text=text), **how)).text

        return self._loop.run(call(), 60)

    def ready(self):
        """Ask for a connection; return when the channel is READY."""
        self._loop.run(self.own.channel_ready())

    def close(self):
        self._loop.run(self.own.close())


class ThreadedChannel(_Channel):
    def __init__(self, channel, interceptors):
        self.own = channel
        self.calls = grpc.intercept_channel(channel, *interceptors)
        self.stub = EchoStub(self.calls)

    def begin(self, way="Unary", texts=("a",), *, retry=None, path=None, serializer=Message.SerializeToString, **how):
        """Start a call, with the policy `retry` if that is given. A blocking call runs in a separate thread."""
        method, _, style = way.partition(".")
        make, request = method_of(self, method, retry, path, serializer), request_of(method, texts, threaded_stream)
        if style == "future":
            return ThreadedCall(make.future(request, **how), lambda call, within: [call.result(within).text])
        if method in RESPONSE_STREAMS:
            return ThreadedCall(make(request, **how), lambda call, _within: [each.text for each in call])
        return BlockingCall(make.with_call if style else make, request, how)

    def unary(self, text="a", **how):
        """Make a unary call; return its response, or raise its error."""
        return self.stub.Unary(Message(text=text), **how).text

    def ready(self):
        """Ask for a connection; return when the channel is READY."""
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

    def cancelled(self):
        return self._call.cancelled()

    def remaining(self):
        return self._loop.do(self._call.time_remaining)

    def add_done_callback(self, function):
        """Call the function when the call ends, with True if grpc passed this very call object to its callback."""
        self._loop.do(self._call.add_done_callback, lambda ended: function(ended is self._call))

    def metadata(self, which):
        """Return the server's initial or trailing metadata; `which` is "initial" or "trailing"."""
        return list(map(tuple, self._loop.run(getattr(self._call, f"{which}_metadata")())))

    def read(self):
        """Return the text of a stream's next response."""

        async def read():
            return (await anext(aiter(self._call))).text

        return self._loop.run(read())

    def outcome(self, within=20):
        """Wait for the end of the call; return its outcome."""
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
        self.cancelled = call.cancelled
        self.remaining = call.time_remaining

    def add_done_callback(self, function):
        """Call the function when the call ends, with True if grpc passed this very call object to its callback."""
        self._call.add_done_callback(lambda ended: function(ended is self._call))

    def read(self):
        """Return the text of a stream's next response."""
        return next(self._call).text

    def metadata(self, which):
        """Return the server's initial or trailing metadata; `which` is "initial" or "trailing"."""
        return list(map(tuple, getattr(self._call, f"{which}_metadata")()))

    def outcome(self, within=20):
        """Wait for the end of the call; return its outcome."""
        texts = error = None
        try:
            texts = self._answers(self._call, within)
        except (grpc.RpcError, grpc.FutureCancelledError) as caught:
            error = caught
        return Outcome(texts, self._call.code(), self._call.details(), error)


class BlockingCall:
    """A blocking call in a separate thread. It cannot be cancelled."""

    def __init__(self, make, request, how):
        pool = ThreadPoolExecutor(1)
        self._future = pool.submit(make, request, **how)
        pool.shutdown(wait=False)
        self.done = self._future.done

    def outcome(self, within=20):
        """Wait for the end of the call; return its outcome."""
        error = self._future.exception(within)
        if isinstance(error, grpc.RpcError):
            return failed(error)
        answer = self._future.result()
        response, call = answer if isinstance(answer, tuple) else (answer, None)
        code, details = (call.code(), call.details()) if call else (grpc.StatusCode.OK, "")
        return Outcome([response.text], code, details)
