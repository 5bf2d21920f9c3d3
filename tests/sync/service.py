"""Servers for tests of threaded channels: a real grpc server that can be restarted, and a scripted flaky one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc

from grpc_backoff import BackoffPolicy, Exponential, NoJitter
from grpc_backoff.grpcio.sync_private import open_channels
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing.front import FlakyFront
from tests.both_apis.loops import on_a_thread
from tests.echo import Message, services

ROOT = Path(__file__).parents[2]
INITIAL = (("first", "1"), ("first-bin", b"\x00\xff"))
TRAILING = (("last", "2"), ("last-bin", b"\xfe\x00"))


def dialled():
    """Return the core's open channels, except those that only keep the core running."""
    return [channel for target, channel in open_channels() if not target.endswith(":0")]


class Echo(services.EchoServicer):
    """Echoes requests, or does what their text says; after the text `enough`, it reads no more requests.

    Attributes:
        fails: the number of calls that will still fail with UNAVAILABLE.
        got: for each call, the texts of its requests.
        metadata: the metadata of each call, with the last value of each key.
        pairs: the metadata of each call, as the pairs that arrived.
        remaining: the time that each call had left when it arrived, in seconds.
        hung: an event for each call that hangs or has hung; when it is set, the call goes on.
    """

    def __init__(self):
        self.fails = 0
        self.got = []
        self.metadata = []
        self.pairs = []
        self.remaining = []
        self.hung = []
        self.hanging = threading.Event()
        self.cancelled = threading.Event()

    def Unary(self, request, context):  # noqa: N802
        self._begin(context)[:] = [request.text]
        self._obey(request.text, context)
        return request

    def Down(self, request, context):  # noqa: N802
        self._begin(context)[:] = [request.text]
        self._obey(request.text, context)
        for _ in range(request.count):
            yield request
        if request.text == "then fail":
            context.abort(grpc.StatusCode.UNAVAILABLE, "behind the responses")
        if request.text == "then hang":
            self._hang(context)

    def Up(self, request_iterator, context):  # noqa: N802
        got = self._begin(context)
        for request in request_iterator:
            got.append(request.text)
            self._obey(request.text, context)
            if request.text == "enough":
                break
        self._obey("", context)
        return Message(text="".join(got), count=len(got))

    def Both(self, request_iterator, context):  # noqa: N802
        got = self._begin(context)
        for request in request_iterator:
            got.append(request.text)
            self._obey(request.text, context)
            yield request
            if request.text == "enough":
                break

    def _begin(self, context):
        got = []
        self.got.append(got)
        self.pairs.append(tuple(map(tuple, context.invocation_metadata())))
        self.metadata.append(dict(self.pairs[-1]))
        self.remaining.append(context.time_remaining())
        return got

    def _obey(self, text, context):
        if self.fails > 0:
            self.fails -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "as told")
        if text == "abort":
            context.set_trailing_metadata(TRAILING)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
        if text == "cancelled":
            context.abort(grpc.StatusCode.CANCELLED, "the server's own")
        if text == "metadata":
            context.send_initial_metadata(INITIAL)
            context.set_trailing_metadata(TRAILING)
        if text == "hang":
            self._hang(context)

    def _hang(self, context):
        over = threading.Event()
        self.hung.append(over)
        if not context.add_callback(lambda: (over.set(), self.cancelled.set())):  # the call has already ended
            over.set()
            self.cancelled.set()
        self.hanging.set()
        over.wait(20)

    def end(self):
        """End every call that hangs."""
        for over in self.hung:
            over.set()


class Place:
    """A port on which a real server can be started, killed and restarted.

    On Linux, no other program gets the port in between.
    """

    def __init__(self, servicer=None, credentials=None, threads=32, address=None, handlers=(), options=()):
        self.servicer = servicer or Echo()
        self.credentials = credentials
        self._threads = threads
        self._handlers = handlers
        self._options = options
        self._server = None
        self._slots = socket.socket()
        if sys.platform == "linux":
            self._slots.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as grpc's servers do
        self._slots.bind(("127.0.0.1", 0))
        self.port = self._slots.getsockname()[1]
        if sys.platform != "linux":
            self._slots.close()
        self.target = f"127.0.0.1:{self.port}"
        self._address = address or self.target

    def start(self):
        pool = ThreadPoolExecutor(self._threads)
        self._server = grpc.server(pool, options=self._options)
        services.add_EchoServicer_to_server(self.servicer, self._server)
        self._server.add_generic_rpc_handlers(self._handlers)
        self.bound = (
            self._server.add_secure_port(self._address, self.credentials)
            if self.credentials
            else self._server.add_insecure_port(self._address)
        )
        assert self.bound == self.port or self._address != self.target
        self._server.start()

    def kill(self, grace=None):
        if self._server is not None:
            self.servicer.end()
            stopped = self._server.stop(grace).wait(20)
            self._server = None
            assert stopped, "it has not stopped"

    def close(self):
        """Kill the server and let others have the port."""
        self.kill()
        self._slots.close()


@contextlib.contextmanager
def place(servicer=None, credentials=None, *, up=True, **how):
    """Yield a `Place`, whose server is running if `up`."""
    made = Place(servicer, credentials, **how)
    if up:
        made.start()
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def elsewhere(place):
    """Run the place's server in another process, so nothing in this process can delay it; yield the process."""
    command = [sys.executable, "-m", "tests.echo", str(place.port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline() == "serving\n"
            yield server
        finally:
            server.kill()


class Front:
    """A `FlakyFront` whose event loop runs in another thread."""

    def __init__(self, front, loop):
        self._front = front
        self._loop = loop
        self.target = front.target

    def behave(self, behaviour):
        self._front.behaviour = behaviour

    def refuse(self):
        self._loop.run(self._front.refuse())

    def listen(self):
        self._loop.run(self._front.listen())

    def break_all(self):
        self._loop.run(self._front.break_all())

    @property
    def visits(self):
        return list(self._front.visits)


@contextlib.contextmanager
def front(behaviour, upstream=None):
    """Run a `FlakyFront` with this behaviour and yield it."""
    kept = {} if upstream is None else {"upstream": ("127.0.0.1", upstream)}
    with on_a_thread(FlakyFront(behaviour, **kept)) as (made, loop):
        yield Front(made, loop)


def connect_policy(initial=None, **parts):
    """Return gRPC's connect policy with another INITIAL_BACKOFF or with other settings."""
    if initial is not None:
        parts["backoff"] = BackoffPolicy(strategy=Exponential(initial, 1.6), cap=max(initial, 120.0), jitter=NoJitter())
    return replace(CONNECT, **parts)


def until(condition, within=20.0):
    """Wait until the condition is true."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)
