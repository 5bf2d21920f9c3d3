"""TH-1: the call objects of pending calls have the interface and the behaviour of grpcio's own."""

from __future__ import annotations

import threading
import traceback

import grpc
import pytest

import grpc_backoff
from grpc_backoff import NoConnectionError
from grpc_backoff.sync.future_call import FutureCall
from tests.echo import EchoStub, Message
from tests.sync.service import place, until


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
