"""The direct path of calls on a READY channel, and how connections keep track of their calls."""

from __future__ import annotations

import gc
import threading

import grpc
import pytest

import grpc_backoff
from tests.echo import EchoStub, Message
from tests.sync.service import until


def test_straight_to_grpcs_own(server):
    """TH-2: on a READY channel a call is made in the caller's thread and returns grpc's own call object."""
    seen = []

    def serializer(message):
        seen.append(threading.current_thread())
        return message.SerializeToString()

    with grpc_backoff.insecure_channel(server.target) as channel:
        grpc.channel_ready_future(channel).result(20)
        call = channel.unary_unary("/echo.v1.Echo/Unary", serializer, Message.FromString)
        assert call(Message(text="a")).text == "a"
        assert seen == [threading.current_thread()]
        assert type(call.future(Message(text="a"))) is grpc._channel._MultiThreadedRendezvous
        assert type(EchoStub(channel).Down(Message(text="a"))) is grpc._channel._MultiThreadedRendezvous


@pytest.mark.parametrize("phase", ["fresh", "ready"])
@pytest.mark.parametrize("style", ["__call__", "with_call", "future"])
def test_a_tracer_that_looks_for_keywords(server, monkeypatch, phase, style):
    """CH-1: grpcio's methods are called by keyword, as stubs are, because tracers wrap them and add metadata."""
    kind = grpc._channel._UnaryUnaryMultiCallable
    plain = getattr(kind, style)

    def traced(method, *given, **named):
        return plain(method, *given, **{**named, "metadata": (*(named.get("metadata") or ()), ("traced", "yes"))})

    monkeypatch.setattr(kind, style, traced)
    with grpc_backoff.insecure_channel(server.target) as channel:
        if phase == "ready":
            EchoStub(channel).Up(iter([Message(text="a")]))
        for _ in range(2):  # on the way of a bound connection, too
            method = EchoStub(channel).Unary
            answer = getattr(method, style)(Message(text="a"), metadata=[("mine", "own")], timeout=20)
            if style == "future":
                answer.result(20)
        seen = server.servicer.metadata[-1]
        assert (seen["traced"], seen["mine"]) == ("yes", "own")


def test_a_connection_counts_its_calls(server):
    """CH-6: a call of any kind is counted on its connection until it has ended."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"))
        connection = channel.connection()
        assert connection.calls == set()
        call = stub.Down(Message(text="then hang", count=1))
        assert len(connection.calls) == 1
        assert next(call).text == "then hang"
        future = stub.Unary.future(Message(text="hang"))
        assert len(connection.calls) == 2
        call.cancel()
        future.cancel()
        until(lambda: connection.calls == set())
        assert connection.last_used() > 0
        assert connection.served


class Ends:
    """Stands in for grpcio's own multicallable and ends each call in the same way."""

    def __init__(self, end):
        self.end, self.waits = end, []

    def __call__(self, request, timeout, metadata, credentials, wait_for_ready, compression):
        self.waits.append(wait_for_ready)
        if self.end is not None:
            raise self.end


@pytest.mark.parametrize("end", [None, ValueError("metadata was invalid"), KeyboardInterrupt()])
def test_a_blocking_call_leaves_its_connection(server, end):
    """CH-6, TH-6: a blocking call is made once and leaves its connection however it ends."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        method = EchoStub(channel).Unary
        method(Message(text="a"))
        connection = channel.connection()
        method._bound = connection, (ends := Ends(end))
        if end is None:
            assert method(Message()) is None
        else:
            with pytest.raises(type(end)):
                method(Message())
        assert len(ends.waits) == 1
        assert connection.calls == set()


def test_a_stream_that_cannot_be_deserialized(server):
    """CH-6: such a stream leaves its connection once the program drops it, so a replaced connection can be closed."""

    def parsed(_message):
        raise ValueError("mine")

    with grpc_backoff.insecure_channel(server.target) as channel:
        grpc.channel_ready_future(channel).result(20)
        connection = channel.connection()
        reading = channel.unary_stream("/echo.v1.Echo/Down", Message.SerializeToString, parsed)(Message(count=9))
        with pytest.raises(grpc.RpcError, match="Exception deserializing response!"):
            next(reading)
        assert connection.calls
        del reading
        gc.collect()  # an error refers to itself by its traceback
        until(lambda: not connection.calls)


@pytest.mark.parametrize(("disabled", "waits"), [(1, None), (0, False)])
def test_calls_on_a_connection_are_fail_fast(server, disabled, waits):
    """CB-16: a service config from the resolver cannot make a call on a connection wait in the core."""
    options = [("grpc.service_config_disable_resolution", disabled)]
    with grpc_backoff.insecure_channel(server.target, options) as channel:
        method = EchoStub(channel).Unary
        method(Message(text="a"))
        method._bound = channel.connection(), (ends := Ends(None))
        method(Message())
        assert ends.waits == [waits]


def test_a_retired_connection_is_not_entered(server):
    """CB-16: no call starts on a connection that the manager has retired."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"))
        connection = channel.connection()
        connection.retired = True
        assert stub.Unary.enter() is None
        assert connection.calls == set()


def test_serialized(server):
    """LG-1: a stub's method exposes its channel and its path, and serializes its request."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        method = EchoStub(channel).Unary
        assert method.method == "/echo.v1.Echo/Unary"
        assert method.channel is channel
        assert method.serialized(Message(text="a")) == Message(text="a").SerializeToString()
