"""Servers for the threaded face: grpc's own, which can be killed and started again, and a front that fails as told."""

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
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.sync.grpcio import open_channels
from grpc_backoff.testing.front import FlakyFront
from tests.echo import Message, services
from tests.faces.loops import LoopThread

ROOT = Path(__file__).parents[2]
INITIAL = (("first", "1"),)
TRAILING = (("last", "2"),)


def dialled():
    """Return the open channels of the core that were made to dial; with an old grpcio there is one more."""
    return [channel for channel in open_channels() if not channel._channel.target().endswith(b":0")]


class Echo(services.EchoServicer):
    """Answers, and does what a request's text says.

    Attributes:
        fails: how many calls are still to fail with UNAVAILABLE.
        got: the texts of the requests of each call.
        metadata: what came with each call.
        remaining: how many seconds each call had when it came.
    """

    def __init__(self):
        self.fails = 0
        self.got = []
        self.metadata = []
        self.remaining = []
        self._over = []
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
        self._obey("", context)
        return Message(text="".join(got), count=len(got))

    def Both(self, request_iterator, context):  # noqa: N802
        got = self._begin(context)
        for request in request_iterator:
            got.append(request.text)
            self._obey(request.text, context)
            yield request

    def _begin(self, context):
        got = []
        self.got.append(got)
        self.metadata.append(dict(context.invocation_metadata()))
        self.remaining.append(context.time_remaining())
        return got

    def _obey(self, text, context):
        if self.fails > 0:
            self.fails -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "as told")
        if text == "abort":
            context.set_trailing_metadata(TRAILING)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
        if text == "metadata":
            context.send_initial_metadata(INITIAL)
            context.set_trailing_metadata(TRAILING)
        if text == "hang":
            self._hang(context)

    def _hang(self, context):
        over = threading.Event()
        self._over.append(over)
        if not context.add_callback(lambda: (over.set(), self.cancelled.set())):  # it has ended already
            over.set()
            self.cancelled.set()
        self.hanging.set()
        over.wait(20)

    def end(self):
        """Let every call go that hangs."""
        for over in self._over:
            over.set()


class Place:
    """A port on which a real server is started, killed and started again."""

    def __init__(self, servicer=None, credentials=None, threads=32, address=None):
        self.servicer = servicer or Echo()
        self._credentials = credentials
        self._threads = threads
        self._server = None
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.target = f"127.0.0.1:{self.port}"
        self._address = address or self.target

    def start(self):
        pool = ThreadPoolExecutor(self._threads)
        self._server = grpc.server(pool)
        services.add_EchoServicer_to_server(self.servicer, self._server)
        self.bound = (
            self._server.add_secure_port(self._address, self._credentials)
            if self._credentials
            else self._server.add_insecure_port(self._address)
        )
        assert self.bound == self.port or self._address != self.target
        self._server.start()

    def kill(self, grace=None):
        if self._server is not None:
            self.servicer.end()
            self._server.stop(grace).wait(20)
            self._server = None


@contextlib.contextmanager
def place(servicer=None, credentials=None, *, up=True, threads=32, address=None):
    """Have a place, with a server if it is `up`."""
    made = Place(servicer, credentials, threads, address)
    if up:
        made.start()
    try:
        yield made
    finally:
        made.kill()


@contextlib.contextmanager
def elsewhere(place):
    """Serve at a place from another process, so that nothing in this one can hold the server up."""
    command = [sys.executable, "-m", "tests.echo", str(place.port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline() == "serving\n"
            yield
        finally:
            server.kill()


class Front:
    """A `FlakyFront` on an event loop in a thread of its own."""

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
    """Run a front; yield it."""
    kept = {} if upstream is None else {"upstream": ("127.0.0.1", upstream)}
    loop = LoopThread()
    made = FlakyFront(behaviour, **kept)
    try:
        loop.run(made.__aenter__())
        try:
            yield Front(made, loop)
        finally:
            loop.run(made.__aexit__(None, None, None))
    finally:
        loop.close()


def connect_policy(initial=None, **parts):
    """Return gRPC's connect policy with another INITIAL_BACKOFF, and with other parts."""
    if initial is not None:
        parts["backoff"] = BackoffPolicy(strategy=Exponential(initial, 1.6), cap=max(initial, 120.0), jitter=NoJitter())
    return replace(CONNECT, **parts)


def until(condition, within=20.0):
    """Return once a condition holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)
