"""CH-1, TH-1: features that only threaded calls and channels have, on plain channels and on ours, fresh or READY.

`tests/both_apis/test_drop_in.py` covers what they do on both APIs.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref

import grpc
import pytest

import grpc_backoff
from grpc_backoff import AttemptStarted
from grpc_backoff.testing.front import settings_then_close, silent
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.echo import EchoStub, Message
from tests.sync.service import front, until

# On grpc's channels, a connectivity watch raises in its own thread when the channel is closed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

OK, INTERNAL = grpc.StatusCode.OK, grpc.StatusCode.INTERNAL


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


def test_future(stub):
    """CH-1: the future of a successful call has no exception and is neither running nor cancelled."""
    future = stub.Unary.future(Message(text="c"))
    assert future.result(20).text == "c"
    assert (future.exception(), future.traceback(), future.code(), future.done()) == (None, None, OK, True)
    assert (future.cancelled(), future.running(), future.cancel(), future.is_active()) == (False, False, False, False)


def test_unary_stream(stub):
    """CH-1: a unary-stream call is an iterator, a Call and a Future."""
    call = stub.Down(Message(text="a", count=3))
    assert isinstance(call, grpc.Call)
    assert isinstance(call, grpc.Future)
    assert iter(call) is call
    assert texts(call) == ["a", "a", "a"]
    assert (call.code(), call.done()) == (OK, True)


def test_requests_by_keyword(stub):
    """CH-1: stream-unary methods accept their requests by keyword."""
    response, call = stub.Up.with_call(request_iterator=each("c", "d"))
    assert (response.text, response.count, call.code()) == ("cd", 2, OK)


@pytest.mark.parametrize("registered", [None, False, True])
def test_registered_methods_by_position(channel, registered):
    """TH-1: `_registered_method` may be passed by position, as `intercept_channel` does."""
    call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, Message.FromString, registered)
    assert call(Message(text="a")).text == "a"


@pytest.mark.parametrize("way", WAYS)
def test_errors(stub, way):
    """TH-1: a failed call raises an RpcError that is a Call and a Future."""
    with pytest.raises(grpc.RpcError) as caught:
        WAYS[way](stub, Message(text="abort"))
    error = caught.value
    assert isinstance(error, grpc.Call)
    assert isinstance(error, grpc.Future)
    if way in ("blocking", "with_call"):
        assert isinstance(error, grpc._channel._InactiveRpcError)


def test_a_future_that_is_not_waited_for_long_enough(stub):
    """CH-1: `result` raises FutureTimeoutError when its own timeout expires, and the call continues."""
    future = stub.Unary.future(Message(text="hang"))
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(0.1)
    assert future.running()
    assert future.cancel()


@pytest.mark.parametrize("way", ["future", "stream"])
def test_a_call_that_is_dropped(stub, server, way):
    """TH-1: a call without references is cancelled, as in grpcio."""
    call = stub.Unary.future(Message(text="hang")) if way == "future" else stub.Down(Message(text="hang"))
    assert server.servicer.hanging.wait(20)
    del call
    assert server.servicer.cancelled.wait(10)


def test_a_callback_that_raises(stub, caplog):
    """TH-6: an exception from a done callback affects neither other callbacks nor other calls.

    It is logged as grpcio logs it, in one line: many callbacks of programs raise the error of a failed call.
    """
    done = threading.Event()
    future = stub.Unary.future(Message(text="a"))

    def raises(_call):
        raise ValueError("mine")

    lines = 1
    try:
        future.add_done_callback(raises)
    except ValueError:  # raised here if the call has already ended
        lines = 0
    future.add_done_callback(lambda _: done.set())
    assert done.wait(20)
    logged = [record for record in caplog.records if "raises" in record.message]
    assert len(logged) == lines
    for record in logged:
        assert record.name in {"grpc._channel", "root"}  # grpcio 1.63 logs it there
        assert record.exc_info is None
    assert future.result(20).text == "a"
    assert stub.Unary(Message(text="b")).text == "b"


@pytest.mark.parametrize("legible", [0, 1])
def test_a_response_that_cannot_be_deserialized(channel, legible):
    """CH-1: a stream's deserializer that raises ends the call with INTERNAL at once, although more messages follow."""
    messages = iter([Message.FromString] * legible)

    def parsed(message):
        return next(messages)(message)

    call = channel.unary_stream("/echo.v1.Echo/Down", Message.SerializeToString, parsed)
    reading, began = call(Message(text="a", count=9), timeout=30), time.monotonic()
    for _ in range(legible):
        assert next(reading).text == "a"
    with pytest.raises(grpc.RpcError) as caught:
        next(reading)
    assert time.monotonic() - began < 15
    assert (caught.value.code(), reading.code()) == (INTERNAL, INTERNAL)
    assert caught.value.details() == "Exception deserializing response!"


@pytest.mark.parametrize("arity", ["stream_unary", "stream_stream"])
def test_a_request_that_becomes_nothing(channel, arity):
    """CH-1: a serializer that returns None ends the call with INTERNAL, instead of ending the requests."""

    def serialized(request):
        return request.SerializeToString() if request.text else None

    method = "/echo.v1.Echo/" + ("Up" if arity == "stream_unary" else "Both")
    call = getattr(channel, arity)(method, serialized, Message.FromString)
    with pytest.raises(grpc.RpcError) as caught:
        list(call(each("a", "", "b"), timeout=20, wait_for_ready=True))
    assert (caught.value.code(), caught.value.details()) == (INTERNAL, "Exception serializing request!")


def test_requests_of_an_ended_call(stub):
    """CH-1: a call that has ended keeps no iterator of requests, so that a generator ends while the call is held."""
    ended = threading.Event()

    def requests():
        try:
            for _ in range(10_000):
                yield Message(text="a")
                time.sleep(0.01)
        finally:
            ended.set()

    call = stub.Both(requests(), timeout=60)
    assert next(call).text == "a"
    call.cancel()
    assert ended.wait(10)
    assert call.cancelled()


def test_channel_ready_future(channel):
    """TH-1: `grpc.channel_ready_future` connects a `grpc.Channel`, and can be used again when it is READY."""
    assert isinstance(channel, grpc.Channel)
    grpc.channel_ready_future(channel).result(20)
    ready = grpc.channel_ready_future(channel)
    ready.result(20)
    assert ready.done()


def test_subscribe(kind, server):
    """TH-1: a subscribed callback receives every new state, on another thread, until it is unsubscribed."""
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
    """TH-6: an exception from a connectivity callback is logged, and other callbacks still receive the state."""
    with kind.insecure_channel(server.target) as channel:
        seen = []

        def raises(state):
            raise ValueError(state)

        channel.subscribe(raises)
        channel.subscribe(seen.append, try_to_connect=True)
        until(lambda: grpc.ChannelConnectivity.READY in seen)
    assert {record.name for record in caplog.records if record.exc_info} == {"grpc._channel"}


def test_single_threaded_streams(kind, phase, server):
    """TH-1: with `SingleThreadedUnaryStream`, a response stream works, but has no status before it ends."""
    option = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)
    with kind.insecure_channel(server.target, options=[option]) as channel:
        if phase == "ready":
            grpc.channel_ready_future(channel).result(20)
        call = EchoStub(channel).Down(Message(text="a", count=3))
        with pytest.raises(grpc.experimental.UsageError):
            call.code()
        assert texts(call) == ["a", "a", "a"]
        assert call.code() is OK


@pytest.mark.parametrize("how", ["refused", "timed out"])
def test_a_single_threaded_stream_that_fails_before_its_connection(kind, how):
    """TH-1: what reads it gets the error, not what makes it, so an interceptor gets a call that it can read."""
    options = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)]
    code = grpc.StatusCode.UNAVAILABLE if how == "refused" else grpc.StatusCode.DEADLINE_EXCEEDED
    made = []

    class Interceptor(grpc.UnaryStreamClientInterceptor):
        def intercept_unary_stream(self, continuation, details, request):
            made.append(continuation(details, request))
            return made[-1]

    with front(silent) as peer, kind.insecure_channel(peer.target, options=options) as channel:
        if how == "refused":
            peer.refuse()
        intercepted = grpc.intercept_channel(channel, Interceptor())
        call = EchoStub(intercepted).Down(Message(), timeout=20 if how == "refused" else 0.3)
        assert iter(call) is made[0]
        assert isinstance(call, grpc.Call | grpc.Future)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as raised:
                next(call)
            assert raised.value.code() is code
        assert kind is not grpc_backoff or how != "refused" or isinstance(raised.value, grpc_backoff.NoConnectionError)
        assert call.code() is call.exception().code() is code
        assert call.details() == raised.value.details()
        assert (call.done(), call.running(), call.is_active(), call.cancelled()) == (True, False, False, False)
        assert not call.initial_metadata()
        assert call.traceback() is not None
        with pytest.raises(grpc.RpcError):
            call.result()
        assert not call.cancel()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("cycle", ["none", "itself", "callback"])
def test_a_single_threaded_stream_that_is_dropped(server, waits, cycle):
    """CH-6, PO-14: it no longer counts as running, also if it belongs to a cycle; grpcio calls back only its reader."""
    options = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)]
    with grpc_backoff.insecure_channel(server.target, options) as channel:
        if not waits:
            grpc.channel_ready_future(channel).result(20)
        stream = EchoStub(channel).Down(Message(text="a", count=2), wait_for_ready=waits, timeout=20)
        assert next(stream).text == "a"
        assert len(channel.connection().calls) == 1
        if cycle == "itself":
            stream.itself = stream
        elif cycle == "callback":
            stream.add_done_callback(lambda _: None)  # to which grpcio passes the stream
        held = weakref.ref(stream)
        del stream
        gc.collect()
        assert held() is None
        assert not channel.connection().calls


def test_a_single_threaded_stream_that_has_begun_is_no_answer():
    """CB-7: if it waits, and its peer then hangs up, the next attempt starts one INITIAL_BACKOFF after the last."""
    log = Log()
    options = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1), *backoff_ms(300, 300)]
    with front(settings_then_close(0.1)) as peer:
        with grpc_backoff.insecure_channel(peer.target, options, listeners=[log.hear]) as channel:
            while len(log.of(AttemptStarted)) < 4:
                with pytest.raises(grpc.RpcError):
                    texts(EchoStub(channel).Down(Message(text="a"), wait_for_ready=True, timeout=20))
        assert min(log.gaps()) >= 0.29


def test_names_that_other_libraries_read(kind, server):
    """TH-1: a threaded channel's target and its last known state are also under grpcio's private names."""
    with kind.insecure_channel(server.target) as channel:
        if hasattr(channel, "_target"):  # newer releases of grpcio
            assert channel._target == server.target
        channel.subscribe(lambda _state: None, try_to_connect=True)
        until(lambda: channel._connectivity_state.connectivity is grpc.ChannelConnectivity.READY)
