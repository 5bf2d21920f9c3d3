"""Blocking hedged calls: the thread that makes one serves one copy itself, but workers make the main thread's."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import grpc_backoff
from grpc_backoff.decide.calls import resets
from grpc_backoff.sync.conductor import CONDUCTOR
from tests.both_apis.tries import Tries, echo, fails, hangs
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

HEDGE = "hedge: 60ms, attempts: 2"


def elsewhere(call, *given, **how):
    """Make a call in a thread that signals do not reach; return its response."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *given, **how).result(30)


def left_copies():
    return [polled for polled in CONDUCTOR._agenda._polled if type(polled).__name__ == "_OwnCopy"]


@pytest.fixture
def opens():
    """A function that starts a server with these behaviours, and yields it with a READY channel whose calls hedge."""

    def begin(*behaviours, retry=HEDGE):
        server = stack.enter_context(place(Tries(*behaviours)))
        channel = stack.enter_context(grpc_backoff.insecure_channel(server.target, retry=retry))
        grpc.channel_ready_future(channel).result(20)
        return server, channel

    with contextlib.ExitStack() as stack:
        yield begin


@pytest.fixture
def started(monkeypatch):
    """The names of all threads that start from now on."""
    names, start = [], threading.Thread.start

    def noted(thread):
        names.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return names


@pytest.mark.parametrize("failing", [0, 2])
def test_a_call_without_a_second_copy_starts_no_thread(opens, started, failing):
    """HG-1, HG-3: a blocking call's own thread serves each copy that no other one runs beside."""
    server, channel = opens(*[fails()] * failing, retry="hedge: 60s, attempts: 3")
    before = len(started)
    for _ in range(3):
        assert elsewhere(EchoStub(channel).Unary, Message(text="a"), timeout=20).text == "a"
    assert len(server.servicer.metadata) == 3 + failing
    assert not [name for name in started[before:] if name.startswith("Thread-")]  # as grpcio's are called


def test_a_first_copy_that_has_lost_is_read(opens):
    """HG-11, TH-5a: the conductor reads the answer of a first copy that has lost, and leaves it as it is."""
    go, read = threading.Event(), []

    def late(requests, _context):
        go.wait(20)
        yield from requests

    _, channel = opens(late, echo)

    def parsed(message):
        read.append(threading.current_thread().name)
        return Message.FromString(message)

    call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, parsed)
    assert elsewhere(call, Message(text="a"), timeout=20).text == "a"
    until(left_copies)
    go.set()
    until(lambda: not left_copies())
    assert not channel.connection().calls
    until(lambda: not channel.calls.losing)
    assert len(read) == 1


def test_nothing_is_left_after_closing(opens, monkeypatch):
    """CB-10, HG-6: a first copy that has lost ends with its channel, even if that is the last one."""
    monkeypatch.setattr(resets, "_LEAST_LEFT", 600.0)
    server, channel = opens(hangs, echo)
    assert elsewhere(EchoStub(channel).Unary, Message(text="a"), timeout=20).text == "a"
    until(left_copies)
    channel.close()
    until(lambda: server.servicer.ended == 2)
    until(lambda: not left_copies())
    until(lambda: not CONDUCTOR._users)


def test_the_main_thread_serves_no_call(opens, started):
    """TH-6: a signal handler may make a hedged call while grpcio holds a lock, so the main thread serves none."""
    _, channel = opens(retry="hedge: 60s, attempts: 2")
    served, context = [], contextvars.ContextVar("caller")
    context.set("main")

    def parsed(message):
        served.append((threading.current_thread().name, context.get()))
        return Message.FromString(message)

    call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, parsed)
    before = len(started)
    for _ in range(3):
        assert call(Message(text="a"), timeout=20).text == "a"
    assert served == [("grpc-backoff-worker", "main")] * 3
    assert started[before:].count("grpc-backoff-worker") <= 1


def test_what_a_deserializer_raises(opens):
    """TH-6: an exception that ends a thread while it serves a copy leaves no copy behind."""
    _, channel = opens(retry="hedge: 60s, attempts: 2")

    def leaves(_message):
        raise SystemExit

    call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, leaves)
    with pytest.raises(SystemExit):
        elsewhere(call, Message(text="a"), timeout=20)
    until(lambda: not channel.connection().calls)
    until(lambda: not channel.calls.losing)


def test_a_message_that_cannot_be_deserialized(opens):
    """HG-6: a stream's deserializer that raises ends the call with INTERNAL at once, as on plain channels."""
    _, channel = opens(retry="hedge: 60s, attempts: 2")

    def parsed(_message):
        raise ValueError("mine")

    call = channel.unary_stream("/echo.v1.Echo/Down", Message.SerializeToString, parsed)
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        next(call(Message(text="a", count=9), timeout=30))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert time.monotonic() - began < 15
