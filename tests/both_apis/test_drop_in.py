"""CH-1, TH-1: calls behave as on grpc's own channels, in both phases and for every way of making them.

Each test runs on a fresh channel, where this library's calls have to wait, and on a READY one.
"""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest

from grpc_backoff.testing.front import silent
from tests.both_apis.wire import counting
from tests.echo import Message
from tests.sync.service import INITIAL, TRAILING, front, until

CODE = grpc.StatusCode
GZIP = grpc.Compression.Gzip


@pytest.fixture
def channel(in_phase, server):
    """A channel to the server, of each kind and in both phases."""
    with in_phase(server.target) as channel:
        yield channel


def test_answer(channel, way):
    """CH-1: every kind of call returns the server's responses and is done when it has ended."""
    call = channel.begin(way, ["a", "b"])
    outcome = call.outcome()
    assert (outcome.code, outcome.details, outcome.error) == (CODE.OK, "", None)
    assert outcome.texts == (["a", "b"] if way == "Both" else ["ab"])
    assert call.done()


def test_after_the_end(channel, cancellable):
    """CH-1: a finished call still reports how it ended, is not cancelled, and cannot be cancelled any more."""
    call = channel.begin(cancellable)
    for _ in range(2):
        assert call.outcome().code is CODE.OK
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)


def test_many_at_once(channel, kind):
    """CH-1, TH-6: a hundred calls of all kinds can run at the same time, and each gets its own response."""
    calls = {f"{way} {number}": channel.begin(way, [f"{way} {number}"]) for way in kind.ways for number in range(25)}
    assert {text: call.outcome().texts for text, call in calls.items()} == {text: [text] for text in calls}


def test_a_request_after_a_response(channel):
    """CH-1: a call may send a request after it has received a response, and its reader may pause between responses."""
    asked = threading.Event()
    call = channel.begin("Both", (each for each in ["a", asked, "b", "c"]))
    assert call.read() == "a"
    asked.set()
    assert call.outcome().texts == ["b", "c"]


def test_a_response_before_the_end_of_the_requests(channel, sending):
    """CH-1: a server may finish a call before all requests have been sent."""
    over = threading.Event()
    outcome = channel.begin(sending, (each for each in ["enough", over])).outcome()
    over.set()
    assert (outcome.code, outcome.texts) == (CODE.OK, ["enough"])


def test_requests_that_raise(channel, kind, sending):
    """CH-1: an exception from the request iterator ends the call, with UNKNOWN on threads and CANCELLED on asyncio.

    grpc's own channels do the same.
    """

    def requests():
        yield "a"
        raise ValueError("mine")

    assert channel.begin(sending, requests()).outcome().code is kind.broken


def test_metadata_sent(channel, kind, way, server):
    """CH-1: metadata reaches the server, including binary values, and repeated keys keep their order."""
    sent = [("key", "value"), ("key", "again"), ("key-bin", b"\x00\xff")]
    for metadata in (tuple(sent), sent, kind.metadata(*sent)):
        channel.begin(way, metadata=metadata).outcome()
    assert [[pair for pair in pairs if pair[0].startswith("key")] for pairs in server.servicer.pairs] == [sent] * 3


@pytest.mark.parametrize("stream", [False, True])
def test_metadata_and_request_belong_to_the_call(kind, nowhere, stream):
    """CH-1: changing the request or its metadata after the call was made has no effect, even while the call waits."""
    request, metadata = Message(text="before", count=1), [("mine", "before")]
    with kind.channel(nowhere.target, [("grpc.initial_reconnect_backoff_ms", 100)]) as channel:
        way = "Down" if stream else kind.cancellable[0]
        call = channel.begin(way, request, metadata=metadata, wait_for_ready=True, timeout=20)
        assert 0 < call.remaining() <= 20
        request.text = "after"
        metadata[0] = ("mine", "after")
        nowhere.start()
        assert call.outcome().texts == ["before"]
    assert nowhere.servicer.metadata[0]["mine"] == "before"


def test_wait_for_ready(channel, way):
    """CH-1: `wait_for_ready` may be True, False or None."""
    calls = [channel.begin(way, wait_for_ready=each) for each in (True, False, None)]
    assert [call.outcome().texts for call in calls] == [["a"]] * 3


@pytest.mark.parametrize("of", ["channel", "call", "neither"])
def test_compression(kind, in_phase, server, of):
    """CH-1: requests are compressed if the channel or the call specifies compression."""
    sent = []
    ways = [way for way in kind.ways if way != "Up.future"]  # grpcio ignores its compression argument
    of_channel, of_call = (GZIP if of == each else None for each in ("channel", "call"))
    with front(counting(sent), server.port) as peer, in_phase(peer.target, compression=of_channel) as channel:
        for way in ways:
            channel.begin(way, ["a" * 50_000], compression=of_call).outcome()
    assert (sum(sent) >= len(ways) * 50_000) == (of == "neither")
    assert (sum(sent) < 50_000) == (of != "neither")


def test_done_callbacks(channel, cancellable):
    """CH-1: a done callback is called once, with the call itself, even if it is added after the call has ended."""
    call, told = channel.begin(cancellable), []
    call.add_done_callback(told.append)
    assert call.outcome().code is CODE.OK
    until(lambda: told)
    assert told == [True]
    call.add_done_callback(told.append)
    until(lambda: len(told) == 2)
    assert told == [True, True]


def test_unknown_method(channel, way):
    """CH-1: calling a method that the server does not have ends with UNIMPLEMENTED."""
    # grpc.aio reports INTERNAL if the status arrives before a request is written, so the streams are empty.
    assert channel.begin(way, (), path="/echo.v1.Echo/None").outcome().code is CODE.UNIMPLEMENTED


def test_abort(channel, way):
    """CH-1: the caller receives the status code, details and trailing metadata that the server sent."""
    outcome = channel.begin(way, ["abort"]).outcome()
    assert (outcome.code, outcome.details) == (CODE.FAILED_PRECONDITION, "not now")
    assert isinstance(outcome.error, grpc.RpcError)
    assert set(TRAILING) <= {tuple(pair) for pair in outcome.error.trailing_metadata()}


def test_cancelled_by_the_server(channel, way):
    """CH-1: CANCELLED from the server is an error like any other, with the server's details."""
    outcome = channel.begin(way, ["cancelled"]).outcome()
    assert (outcome.code, outcome.details) == (CODE.CANCELLED, "the server's own")
    assert isinstance(outcome.error, grpc.RpcError)


def test_after_a_deadline(channel, cancellable):
    """CH-1: after its deadline, a call is done but not cancelled, cannot be cancelled, and has no time remaining."""
    call = channel.begin(cancellable, ["hang"], timeout=0.1)
    for _ in range(2):
        outcome = call.outcome()
        assert outcome.code is CODE.DEADLINE_EXCEEDED
        assert "Deadline Exceeded" in outcome.details
    assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
    assert call.remaining() == 0


def test_timeout_that_is_no_number(channel, cancellable):
    """CH-1: a timeout that is not a number raises a TypeError at once."""
    with pytest.raises(TypeError):
        channel.begin(cancellable, timeout="1")


def test_deadline_while_it_runs(channel, way):
    """CH-1: a running call ends with DEADLINE_EXCEEDED at its deadline."""
    outcome = channel.begin(way, ["hang"], timeout=0.1).outcome()
    assert (outcome.code, outcome.texts) == (CODE.DEADLINE_EXCEEDED, None)


def test_a_deadline_that_has_passed(kind, way, server):
    """CH-1: a call whose deadline has already passed when it is made ends with DEADLINE_EXCEEDED at once."""
    with kind.channel(server.target) as channel:
        assert channel.begin(way, timeout=-1).outcome().code is CODE.DEADLINE_EXCEEDED


def test_deadlines_far_off(channel, server):
    """CH-1: very long timeouts are accepted, and the server receives the remaining time."""
    assert channel.unary("a", timeout=1e9) == "a"
    assert channel.unary("b", timeout=100) == "b"
    assert 50 < server.servicer.remaining[1] <= 101  # grpc rounds up on the wire


def test_cancel_while_it_runs(channel, cancellable, server):
    """CH-1, TH-6: cancelling a running call ends it on the client and on the server, and calls its done callback.

    Until then, the call shows the seconds until its deadline.
    """
    call, told = channel.begin(cancellable, ["hang"], timeout=60), []
    call.add_done_callback(told.append)
    assert server.servicer.hanging.wait(20)
    assert 20 < call.remaining() <= 60.001
    threading.Thread(target=call.cancel).start()
    outcome = call.outcome()
    assert (outcome.code, outcome.details) == (CODE.CANCELLED, "Locally cancelled by application!")
    assert call.done()
    assert server.servicer.cancelled.wait(20)
    until(lambda: told)
    assert told == [True]


@pytest.mark.parametrize("method", ["Down", "Both"])
def test_cancel_a_stream_that_is_read(channel, server, method):
    """CH-1, TH-6: if a stream is cancelled from another thread, its reader fails with CANCELLED."""
    call = channel.begin(method, ["then hang"] if method == "Down" else ["a", "hang"])
    assert call.read() == ("then hang" if method == "Down" else "a")
    assert server.servicer.hanging.wait(20)
    threading.Timer(0.05, call.cancel).start()
    assert call.outcome().code is CODE.CANCELLED
    assert server.servicer.cancelled.wait(20)


def test_close_amid_a_call(channel, kind, way, server):
    """CB-10, TH-6: closing the channel cancels a running call."""
    call = channel.begin(way, ["hang"])
    assert server.servicer.hanging.wait(20)
    channel.close()
    outcome = call.outcome()
    assert outcome.code is CODE.CANCELLED
    assert kind.at_close in outcome.details


@pytest.mark.parametrize("refusing", [True, False])
def test_close_without_a_connection(kind, cancellable, refusing):
    """CB-10: closing a channel that is dialling a silent peer, or is in backoff, cancels its pending calls."""
    with front(silent) as peer, kind.channel(peer.target) as channel:
        if refusing:
            peer.refuse()
        call = channel.begin(cancellable, wait_for_ready=True)
        until(lambda: refusing or peer.visits)
        channel.close()
        outcome = call.outcome()
    assert (outcome.code, call.cancelled()) == (CODE.CANCELLED, kind.name == "asyncio")
    assert isinstance(outcome.error, grpc.RpcError if kind.name == "threads" else asyncio.CancelledError)


def test_closed(channel, kind, way):
    """CB-10: a call on a closed channel raises the same error as in grpc, and a second `close()` does nothing."""
    channel.close()
    channel.close()
    with pytest.raises(kind.closed):
        channel.begin(way).outcome()


def test_metadata_received(channel, cancellable):
    """CH-1: initial metadata can be read before the response, and trailing metadata after it; both may be binary."""
    call = channel.begin(cancellable, ["metadata"])
    assert set(INITIAL) <= set(call.metadata("initial"))
    assert call.outcome().texts == ["metadata"]
    assert set(TRAILING) <= set(call.metadata("trailing"))


@pytest.mark.parametrize("method", ["Up", "Both"])
def test_metadata_received_before_the_last_request(channel, kind, method):
    """CH-1: initial metadata that comes while requests are still to be sent can be read then."""
    over = threading.Event()
    way = "Up.future" if (kind.name, method) == ("threads", "Up") else method
    call = channel.begin(way, (each for each in ("metadata", over)))
    try:
        assert set(INITIAL) <= set(call.metadata("initial"))
        assert not call.done()
    finally:
        over.set()
    assert call.outcome().texts == ["metadata"]


def test_a_message_that_is_too_large(in_phase, server):
    """CH-1, RT-2: a response over the size limit fails the call with RESOURCE_EXHAUSTED, without a retry."""
    with in_phase(server.target, [("grpc.max_receive_message_length", 1000)]) as channel:
        assert channel.begin(texts=["a" * 2000]).outcome().code is CODE.RESOURCE_EXHAUSTED
        assert len(server.servicer.got) == 1


def test_names_that_other_libraries_read(api, server):
    """CH-1: the target and the state are also under grpcio's private names, which client libraries read."""
    states = grpc.ChannelConnectivity
    with api.channel(server.target) as channel:
        core = channel.own._channel
        assert channel.stub.Unary._method == b"/echo.v1.Echo/Unary"
        if api.name == "threads":
            assert core.target() == f"dns:///{server.target}".encode()
        assert core.check_connectivity_state(False) == states.IDLE.value[0]
        assert core.check_connectivity_state(True) in {states.IDLE.value[0], states.CONNECTING.value[0]}
        until(lambda: core.check_connectivity_state(False) == states.READY.value[0])
        if api.name == "asyncio":
            channel._loop.run(channel.own._close(None))
            assert core.check_connectivity_state(True) == states.SHUTDOWN.value[0]
        else:
            channel.own._close()
            with pytest.raises(ValueError, match="closed"):
                core.check_connectivity_state(True)
