"""CH-1, TH-1: what a program can do with a channel does on ours what it does on grpc's own, in every phase."""

from __future__ import annotations

import contextlib
import threading

import grpc
import pytest

from tests.echo import EchoStub, Message
from tests.sync.service import TRAILING, until

# grpc's own: a watch that finds its channel closed raises in its thread.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

OK = grpc.StatusCode.OK


WAYS = {
    "blocking": lambda stub, request: stub.Unary(request),
    "with_call": lambda stub, request: stub.Unary.with_call(request),
    "future": lambda stub, request: stub.Unary.future(request).result(20),
    "stream": lambda stub, request: list(stub.Down(request)),
}


def each(*texts):
    return iter([Message(text=text) for text in texts])


def texts(call):
    return [message.text for message in call]


def pairs(metadata):
    return [tuple(pair) for pair in metadata]


def test_it_is_a_channel(channel):
    """TH-1: `isinstance` says so."""
    assert isinstance(channel, grpc.Channel)


def test_unary_unary(stub):
    """CH-1: one request, one response, in all three ways."""
    assert stub.Unary(Message(text="a")).text == "a"
    response, call = stub.Unary.with_call(Message(text="b"), timeout=20)
    assert (response.text, call.code(), call.details()) == ("b", OK, "")
    future = stub.Unary.future(Message(text="c"))
    assert future.result(20).text == "c"
    assert (future.exception(), future.traceback(), future.code(), future.done()) == (None, None, OK, True)
    assert (future.cancelled(), future.running(), future.cancel(), future.is_active()) == (False, False, False, False)


def test_unary_stream(stub):
    """CH-1: one request, a stream of responses, which is iterator, call and future."""
    call = stub.Down(Message(text="a", count=3))
    assert isinstance(call, grpc.Call)
    assert isinstance(call, grpc.Future)
    assert iter(call) is call
    assert texts(call) == ["a", "a", "a"]
    assert (call.code(), call.done()) == (OK, True)


def test_stream_unary(stub):
    """CH-1: a stream of requests, one response, in all three ways, the requests by keyword too."""
    assert stub.Up(each("a", "b")).text == "ab"
    response, call = stub.Up.with_call(request_iterator=each("c", "d"))
    assert (response.text, response.count, call.code()) == ("cd", 2, OK)
    assert stub.Up.future(each("e")).result(20).text == "e"


def test_stream_stream(stub):
    """CH-1: a stream each way, one answer for each request."""
    asked = threading.Event()

    def requests():
        yield Message(text="a")
        assert asked.wait(20)
        yield Message(text="b")

    call = stub.Both(requests())
    assert next(call).text == "a"
    asked.set()
    assert texts(call) == ["b"]


@pytest.mark.parametrize("registered", [None, False, True])
def test_registered_methods_by_position(channel, registered):
    """TH-1: `intercept_channel` gives the fourth parameter by position."""
    call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, Message.FromString, registered)
    assert call(Message(text="a")).text == "a"


@pytest.mark.parametrize("way", ["blocking", "with_call", "future", "stream"])
def test_errors(stub, way):
    """TH-1: an error is an RpcError, a Call and a Future, and says all that the server said."""
    with pytest.raises(grpc.RpcError) as caught:
        WAYS[way](stub, Message(text="abort"))
    error = caught.value
    assert isinstance(error, grpc.Call)
    assert isinstance(error, grpc.Future)
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not now")
    assert pairs(error.trailing_metadata()) == [*TRAILING]
    if way in ("blocking", "with_call"):
        assert isinstance(error, grpc._channel._InactiveRpcError)


def test_a_future_that_is_not_waited_for_long_enough(stub):
    """CH-1: `result` with a timeout raises FutureTimeoutError, and the call goes on."""
    future = stub.Unary.future(Message(text="hang"))
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(0.1)
    assert future.running()
    assert future.cancel()


@pytest.mark.parametrize("way", ["future", "stream"])
def test_a_call_that_is_dropped(stub, server, way):
    """TH-1: a call that nobody has any more is cancelled, as grpcio does it."""
    call = stub.Unary.future(Message(text="hang")) if way == "future" else stub.Down(Message(text="hang"))
    assert server.servicer.hanging.wait(20)
    del call
    assert server.servicer.cancelled.wait(10)


def test_callbacks(stub):
    """CH-1: done callbacks get the call, before and behind its end."""
    told, done = [], threading.Event()
    future = stub.Unary.future(Message(text="a"))
    future.add_done_callback(lambda call: (told.append(call), done.set()))
    assert done.wait(20)
    future.add_done_callback(told.append)
    assert told == [future, future]
    assert not future.add_callback(done.clear)


def test_a_callback_that_raises(stub):
    """TH-6: it harms nobody else."""
    done = threading.Event()
    future = stub.Unary.future(Message(text="a"))

    def raises(_call):
        raise ValueError("mine")

    with contextlib.suppress(ValueError):  # where the call has ended already
        future.add_done_callback(raises)
    future.add_done_callback(lambda _: done.set())
    assert done.wait(20)
    assert future.result(20).text == "a"
    assert stub.Unary(Message(text="b")).text == "b"


def test_a_serializer_that_raises(channel, phase):
    """CH-1: INTERNAL, as with grpc's own."""
    call = channel.unary_unary("/echo.v1.Echo/Unary", lambda _: 1 / 0, Message.FromString)
    with pytest.raises(grpc.RpcError) as caught:
        call(Message())
    assert caught.value.code() is grpc.StatusCode.INTERNAL


def test_requests_that_raise(stub):
    """CH-1: an iterator of requests that raises ends its call with UNKNOWN."""

    def requests():
        yield Message(text="a")
        raise ValueError("mine")

    with pytest.raises(grpc.RpcError) as caught:
        stub.Up(requests())
    assert caught.value.code() is grpc.StatusCode.UNKNOWN


def test_intercepted(channel, server):
    """TH-1: `grpc.intercept_channel` works; an interceptor sees each call once, and may change it."""
    seen = []

    class Interceptor(
        grpc.UnaryUnaryClientInterceptor,
        grpc.UnaryStreamClientInterceptor,
        grpc.StreamUnaryClientInterceptor,
        grpc.StreamStreamClientInterceptor,
    ):
        def _go_on(self, continuation, details, request):
            seen.append(details.method)
            return continuation(details, request)

        intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _go_on

    stub = EchoStub(grpc.intercept_channel(channel, Interceptor()))
    assert stub.Unary(Message(text="a")).text == "a"
    assert stub.Unary.future(Message(text="a")).result(20).text == "a"
    assert texts(stub.Down(Message(text="a", count=2))) == ["a", "a"]
    assert stub.Up(each("a", "b")).text == "ab"
    assert texts(stub.Both(each("a"))) == ["a"]
    with pytest.raises(grpc.RpcError):
        stub.Unary(Message(text="abort"))
    assert len(seen) == 6


def test_channel_ready_future(channel):
    """TH-1: it needs `subscribe` and `unsubscribe`, and connects."""
    grpc.channel_ready_future(channel).result(20)
    ready = grpc.channel_ready_future(channel)
    ready.result(20)
    assert ready.done()


def test_subscribe(kind, server):
    """TH-1: callbacks get the state at first and each that follows; not on the caller's thread, and none any more
    when they are taken away."""
    with kind.insecure_channel(server.target) as channel:
        seen, threads, gone = [], set(), []

        def note(state):
            seen.append(state)
            threads.add(threading.current_thread())

        channel.subscribe(note)
        channel.subscribe(gone.append)
        until(lambda: seen and gone)
        channel.unsubscribe(gone.append)
        channel.unsubscribe(gone.append)
        assert seen == [grpc.ChannelConnectivity.IDLE]
        EchoStub(channel).Unary(Message(text="a"))
        until(lambda: seen[-1] is grpc.ChannelConnectivity.READY)
        server.kill()
        until(lambda: seen[-1] is not grpc.ChannelConnectivity.READY)
        assert threading.current_thread() not in threads
        assert gone == [grpc.ChannelConnectivity.IDLE]


def test_a_connectivity_callback_that_raises(kind, server, caplog):
    """TH-6: it is logged, and the others are told."""
    with kind.insecure_channel(server.target) as channel:
        seen = []

        def raises(state):
            raise ValueError(state)

        channel.subscribe(raises)
        channel.subscribe(seen.append, try_to_connect=True)
        until(lambda: grpc.ChannelConnectivity.READY in seen)
    assert "ValueError" in caplog.text


@pytest.mark.parametrize("how", ["blocking", "future", "stream"])
def test_close_amid_a_call(channel, stub, server, how):
    """TH-6: close from another thread cancels a call that runs."""
    closing = threading.Thread(target=lambda: (server.servicer.hanging.wait(20), channel.close()))
    closing.start()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)) as caught:
        WAYS[how](stub, Message(text="hang"))
    if isinstance(caught.value, grpc.RpcError):
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert "Channel closed!" in caught.value.details()
    closing.join(20)


def test_single_threaded_streams(kind, phase, server):
    """TH-1: with `SingleThreadedUnaryStream` a stream is read in its caller's thread."""
    option = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)
    with kind.insecure_channel(server.target, options=[option]) as channel:
        if phase == "ready":
            grpc.channel_ready_future(channel).result(20)
        call = EchoStub(channel).Down(Message(text="a", count=3))
        with pytest.raises(grpc.experimental.UsageError):
            call.code()
        assert texts(call) == ["a", "a", "a"]
        assert call.code() is OK
