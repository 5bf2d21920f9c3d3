"""Calls in the background: what they are, endings that only threads can cause, and the threads that calls need.

Behaviour that they share with asyncio calls is tested in `tests/both_apis`.
"""

from __future__ import annotations

import operator
import sys
import threading
import traceback
from queue import SimpleQueue

import grpc
import pytest

import grpc_backoff
from grpc_backoff import CallRetried, NoConnectionError, RetriesExhaustedError
from grpc_backoff.sync import attempts, hedging
from grpc_backoff.sync import channel as channel_module
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.future_call import FutureCall
from grpc_backoff.sync.pump import needs_pump
from tests.echo import EchoStub, Message
from tests.sync.service import place, until


def test_cancel_while_an_attempt_is_being_made(server, monkeypatch):
    """TH-3, TH-6: cancelling a call also cancels an attempt that is just starting."""
    made, cancelled, make = threading.Event(), threading.Event(), attempts.BackgroundAttempts.make

    def slowly(*how):
        attempt = make(*how)
        made.set()
        cancelled.wait(20)
        return attempt

    monkeypatch.setattr(attempts.BackgroundAttempts, "make", slowly)
    with grpc_backoff.insecure_channel(server.target) as channel:
        future = EchoStub(channel).Unary.future(Message(text="hang"))
        assert made.wait(20)
        assert server.servicer.hanging.wait(20)
        assert future.cancel()
        cancelled.set()
        assert server.servicer.cancelled.wait(10)


def test_a_step_that_raises_ends_the_running_attempt(server):
    """CH-1: if a step of a stream's machine raises, the attempt is cancelled, and the reader gets the error."""
    with grpc_backoff.insecure_channel(server.target, retry="retry: 1") as channel:
        stream = EchoStub(channel).Both(iter([Message(text="a"), Message(text="hang")]))
        given = stream._call._machine

        class Broken(type(given)):
            def step(self, *how):
                raise ZeroDivisionError("no time")

        assert stream._call.current() is not None
        stream._call._machine = Broken(given.target, given.method, given.policy, given.wait_for_ready)
        assert server.servicer.hanging.wait(20)  # a handler that has not begun to hang does not notice its end
        assert next(stream).text == "a"
        with pytest.raises(ZeroDivisionError, match="no time"):
            next(stream)
        assert stream.code() is grpc.StatusCode.INTERNAL
        assert server.servicer.cancelled.wait(20)


def test_the_deadline_of_a_call_whose_hook_has_not_begun(server):
    """RT-6, RT-7: a call ends at its deadline even if a blocking listener delays its hook."""
    go = threading.Event()

    def blocks(event):
        if isinstance(event, CallRetried):
            go.wait(20)

    server.servicer.fails = 2
    with grpc_backoff.insecure_channel(server.target, retry="retry: 1, delay: 1ms", listeners=[blocks]) as channel:
        future = EchoStub(channel).Unary.future(Message(text="a"), timeout=2)
        try:
            error = future.exception(10)
        finally:
            go.set()
    assert isinstance(error, RetriesExhaustedError)
    assert (error.code(), error.attempts) == (grpc.StatusCode.UNAVAILABLE, 2)


def test_futures_and_streams_need_no_threads():
    """TH-4: on a READY channel, futures and streams with a retry policy need only grpcio's own threads."""
    needed = {"grpc-backoff", "grpc-backoff-pump"} if needs_pump() else {"grpc-backoff"}
    with place() as server, grpc_backoff.insecure_channel(server.target, retry="retry: 3, delay: 10ms") as channel:
        grpc.channel_ready_future(channel).result(20)
        stub = EchoStub(channel)
        until(lambda: ours() == needed)
        futures = [stub.Unary.future(Message(text="hang")) for _ in range(20)]
        streams = [stub.Both(iter([Message(text="a")])) for _ in range(20)]
        assert [next(stream).text for stream in streams] == ["a"] * 20
        assert server.servicer.hanging.wait(20)
        assert ours() == needed
        for call in (*futures, *streams):
            call.cancel()


@pytest.mark.parametrize("retry", [None, "hedge: 60s, attempts: 2"])
@pytest.mark.parametrize("style", ["Unary.future", "Down"])
def test_a_conductor_that_cannot_start(server, monkeypatch, style, retry):
    """TH-5: if the process has too many threads, a call in the background raises RuntimeError; the next call works."""
    conductor = Conductor()
    monkeypatch.setattr(channel_module, "CONDUCTOR", conductor)
    with grpc_backoff.insecure_channel(server.target, retry=retry) as channel:
        begin = operator.attrgetter(style)(EchoStub(channel))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", _fail)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                begin(Message(text="a"), timeout=20)
        assert EchoStub(channel).Unary(Message(text="a"), timeout=20).text == "a"
    conductor.stop()


def _fail(_thread):
    raise RuntimeError("can't start new thread")


def ours():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("grpc-backoff")}


@pytest.mark.parametrize("count", [0, 1])
def test_callbacks_of_hedged_streams(server, monkeypatch, count):
    """HG-2: a hedged stream calls its callbacks, even if grpcio's thread sees its status before its last message."""
    read_first = hedging.read_first

    def late(call, received):
        def wait_for_status(message):
            until(call.done)
            threading.Timer(0.1, received, [message]).start()

        read_first(call, lambda message: threading.Thread(target=wait_for_status, args=[message]).start())

    monkeypatch.setattr(hedging, "read_first", late)
    called = threading.Event()
    with grpc_backoff.insecure_channel(server.target, retry="hedge: 20s, attempts: 2") as channel:
        stream = EchoStub(channel).Down(Message(text="a", count=count), timeout=20)
        stream.add_callback(called.set)
        assert called.wait(10)
        assert len(list(stream)) == count


@pytest.mark.parametrize("up", [True, False], ids=["answered", "refused"])
def test_a_callback_that_exits(up):
    """CH-1: a callback that raises SystemExit keeps neither other callbacks nor later calls from being served."""
    ended = SimpleQueue()
    with place(up=up) as server, grpc_backoff.insecure_channel(server.target) as channel:
        unary = EchoStub(channel).Unary
        call = unary.future(Message(text="a"))
        call.add_done_callback(lambda _call: sys.exit(1))
        call.add_done_callback(ended.put)
        assert ended.get(timeout=20) is call
        if not up:
            server.start()
        assert unary.future(Message(text="b"), wait_for_ready=True).result(20).text == "b"


@pytest.fixture
def nowhere():
    with place(up=False) as made:
        yield made


@pytest.fixture
def stub(nowhere):
    with grpc_backoff.insecure_channel(nowhere.target, [("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
        yield EchoStub(channel)


@pytest.mark.parametrize("way", ["future", "stream"])
def test_what_they_are(stub, way):
    """TH-1: a pending call is an iterator, a Call, a Future and an RpcError, and reports that it is running."""
    request = Message(text="a")
    call = (stub.Unary.future if way == "future" else stub.Down)(request, wait_for_ready=True, timeout=20)
    kinds = grpc.Call, grpc.Future, grpc.RpcError, grpc.RpcContext, grpc._channel._MultiThreadedRendezvous
    assert all(isinstance(call, kind) for kind in kinds)
    assert (call.running(), call.done(), call.cancelled(), call.is_active()) == (True, False, False, True)
    assert 0 < call.time_remaining() <= 20
    assert call.cancel()
    assert not call.cancel()
    assert (call.running(), call.done(), call.cancelled(), call.is_active()) == (False, True, True, False)


def test_a_future_that_gets_no_connection(stub):
    """CH-4: a future without a connection raises NoConnectionError from `exception` and `result`."""
    future = stub.Unary.future(Message(text="a"))
    assert isinstance(future.exception(20), NoConnectionError)
    with pytest.raises(NoConnectionError):
        future.result()
    assert traceback.extract_tb(future.traceback())
    assert (future.code(), future.details()) == (grpc.StatusCode.UNAVAILABLE, future.exception().details())
    assert list(future.trailing_metadata()) == list(future.initial_metadata()) == []


@pytest.mark.parametrize("way", ["future", "stream"])
def test_the_class_of_an_error(stub, way):
    """TH-1: a future and a stream without a connection raise an error of the class that grpcio's raise."""
    request = Message(text="a")
    with pytest.raises(grpc._channel._MultiThreadedRendezvous):
        stub.Unary.future(request).result(20) if way == "future" else next(stub.Down(request))


def test_a_stream_that_gets_no_connection(stub):
    """CH-4: reading a stream without a connection raises NoConnectionError each time."""
    call = stub.Down(Message(text="a"))
    assert list(call.initial_metadata()) == []
    for _ in range(2):
        with pytest.raises(NoConnectionError):
            next(call)
    assert call.code() is grpc.StatusCode.UNAVAILABLE


def test_callbacks_of_a_call_that_waits(stub, nowhere):
    """TH-1: callbacks of a pending future are called once, when it ends; done callbacks receive the call."""
    told, done = [], threading.Event()
    future = stub.Unary.future(Message(text="a"), wait_for_ready=True, timeout=20)
    future.add_done_callback(told.append)
    future.add_callback(done.set)
    nowhere.start()
    assert future.result(20).text == "a"
    assert done.wait(20)
    until(lambda: told)
    assert told == [future]


def test_a_reader_that_is_late_for_every_attempt(server, monkeypatch):
    """RT-1: a stream without responses ends as its last attempt did, even if its reader still reads an earlier one.

    Takes a second.
    """
    current, attempts = FutureCall.current, []

    def late(call):
        attempts.append(current(call))
        until(lambda: call.state.code is not None)
        return attempts[-1]

    monkeypatch.setattr(FutureCall, "current", late)
    server.servicer.fails = 1
    with grpc_backoff.insecure_channel(server.target, retry="retry: 1, delay: 1s, jitter: none") as channel:
        grpc.channel_ready_future(channel).result(20)
        call = EchoStub(channel).Down(Message(text="a"))
        assert list(call) == []
        assert call.code() is grpc.StatusCode.OK
        assert len(set(attempts)) == 2
