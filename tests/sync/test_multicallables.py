"""The direct path of calls on a READY channel, how methods are bound, and how connections track calls."""

from __future__ import annotations

import gc
import threading

import grpc
import pytest

import grpc_backoff
from tests.echo import EchoStub, Message
from tests.sync.conftest import RETRY
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


@pytest.mark.parametrize("phase", ["fresh", "ready", "retrying"])
@pytest.mark.parametrize("style", ["__call__", "with_call", "future", "stream"])
@pytest.mark.parametrize("own", [None, [("mine", "own")]], ids=["without", "with"])
def test_a_tracer_that_adds_metadata(server, monkeypatch, phase, style, own):
    """CH-1: grpcio's methods are called as stubs are, by keyword, and without metadata there is none to trip over."""
    streams = style == "stream"
    kind, name = (
        (grpc._channel._UnaryStreamMultiCallable, "__call__")
        if streams
        else (grpc._channel._UnaryUnaryMultiCallable, style)
    )
    plain = getattr(kind, name)

    def traced(method, *given, **named):
        return plain(method, *given, **{**named, "metadata": (*named.get("metadata", ()), ("traced", "yes"))})

    monkeypatch.setattr(kind, name, traced)
    with grpc_backoff.insecure_channel(server.target, retry=RETRY if phase == "retrying" else None) as channel:
        if phase == "ready":
            EchoStub(channel).Up(iter([Message(text="a")]))
        for _ in range(2):  # on the way of a bound connection, too
            method = EchoStub(channel).Down if streams else EchoStub(channel).Unary
            answer = getattr(method, name)(Message(text="a"), timeout=20, **({} if own is None else {"metadata": own}))
            if style == "future":
                answer.result(20)
            elif streams:
                list(answer)
        seen = server.servicer.metadata[-1]
        assert (seen["traced"], seen.get("mine")) == ("yes", own and "own")


@pytest.mark.parametrize("way", ["__call__", "with_call", "future", "stream", "retrying", "patient"])
def test_a_call_that_is_held_up(server, locked, way):
    """CH-3: the deadline includes the time until another call, which the core repeats (CB-16), has begun."""
    with grpc_backoff.insecure_channel(server.target, retry=RETRY if way == "retrying" else None) as channel:
        stub = EchoStub(channel)
        method, style = (stub.Down, "__call__") if way == "stream" else (stub.Unary, way)
        call = getattr(method, style if style in {"with_call", "future"} else "__call__")
        for held in (False, False, True):  # the third call finds its method bound
            if held:
                unlock = locked(channel.connection())
                threading.Timer(1.0, unlock).start()
            answer = call(Message(text="a"), timeout=20.0, wait_for_ready=way == "patient" or None)
            if way in {"future", "stream"}:
                assert answer.code() is grpc.StatusCode.OK
        *free, held_up = server.servicer.remaining
        assert 19.2 < free[-1] < 20.1
        assert held_up < 19.2


@pytest.mark.parametrize("way", ["__call__", "with_call", "future"])
def test_a_call_that_is_held_up_for_nothing(server, locked, way):
    """CH-3: so it does if the call then finds its connection lost, and waits for the next one."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        call = EchoStub(channel).Unary
        for _ in range(2):
            call(Message(text="a"))
        unlock = locked(channel.connection())
        server.kill()

        def restart():
            server.start()
            unlock()

        threading.Timer(1.0, restart).start()
        answer = getattr(call, way)(Message(text="a"), timeout=20.0)
        if way == "future":
            assert answer.result().text == "a"
        assert server.servicer.remaining[-1] < 19.2


def test_a_connection_counts_its_calls(server):
    """CH-6: a call of any kind is counted on its connection until it has ended."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"))
        connection = channel.connection()
        assert not connection.calls
        call = stub.Down(Message(text="then hang", count=1))
        assert len(connection.calls) == 1
        assert next(call).text == "then hang"
        future = stub.Unary.future(Message(text="hang"))
        assert len(connection.calls) == 2
        call.cancel()
        future.cancel()
        until(lambda: not connection.calls)
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
        assert not connection.calls


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


def test_serialized(server):
    """LG-1: a stub's method exposes its channel and its path, and serializes its request."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        method = EchoStub(channel).Unary
        assert method.method == "/echo.v1.Echo/Unary"
        assert method.channel is channel
        assert method.serialized(Message(text="a")) == Message(text="a").SerializeToString()


class Connection:
    """Stands in for a connection and its channel; a multicallable on it is the function that reads a message."""

    times_calls = False

    def __init__(self, served):
        self.served = served
        self.channel = self

    def unary_stream(self, _method, _serializer, deserializer, _registered):
        return deserializer

    def delivered(self):
        self.served = True


def test_a_method_notes_messages_until_the_first():
    """CB-7, PO-6: the first message of a connection is noted for good, whichever connection was bound after it."""
    with grpc_backoff.insecure_channel("127.0.0.1:1") as channel:
        method = channel.unary_stream("/echo.v1.Echo/Down")
        silent, answered = Connection(served=False), Connection(served=True)
        method._several = {silent: method._on(silent), answered: method._on(answered)}
        method._several[silent](b"")
        assert silent.served
        assert method._several == {}, "from now on, multicallables that note nothing"


def test_a_retired_connection_is_not_entered(server):
    """CB-16: no call starts on a connection that the manager has retired."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"))
        connection = channel.connection()
        connection.calls.retire()
        assert stub.Unary.enter() is None
        assert not connection.calls


def test_bound_anew_once_a_message_was_noted(server):
    """CB-7, TH-2: only until the first message of a response stream do its messages pass through this library."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        grpc.channel_ready_future(channel).result(20)
        method = EchoStub(channel).Down
        stream = method(Message(text="a", count=2), timeout=20)
        noting = method._bound
        assert next(stream).text == "a"
        assert method._bound is None
        assert len(list(method(Message(text="a", count=2)))) == 2
        assert method._bound[0] is noting[0]
        assert method._bound[1] is not noting[1]
