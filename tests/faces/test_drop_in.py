"""CH-1, TH-1: what a program can do with a call does the same on ours as on grpc's own, in every phase and every way.

Each test runs on a fresh channel, where our call is a waiting one, and on a READY one.
"""

from __future__ import annotations

import threading

import grpc
import pytest

from tests.sync.service import INITIAL, TRAILING

CODE = grpc.StatusCode


@pytest.fixture(params=["fresh", "ready"])
def phase(request):
    """When the first call is made: on a fresh channel, where it has to wait, or once there is a connection."""
    return request.param


@pytest.fixture
def channel(face, phase, server):
    """A channel of each kind to the server, in either phase."""
    with face.channel(server.target) as channel:
        if phase == "ready":
            channel.ready()
        yield channel


def test_answer(channel, way):
    """CH-1: every way of calling is answered; an ended call is done."""
    call = channel.begin(way, ["a", "b"])
    outcome = call.outcome()
    assert (outcome.code, outcome.details, outcome.error) == (CODE.OK, "", None)
    assert outcome.texts == (["a", "b"] if way == "Both" else ["ab"])
    assert call.done()


def test_many_at_once(channel, face):
    """CH-1, TH-6: calls of all kinds run at the same time, each with its own answer."""
    calls = {f"{way} {number}": channel.begin(way, [f"{way} {number}"]) for way in face.ways for number in range(8)}
    assert {text: call.outcome().texts for text, call in calls.items()} == {text: [text] for text in calls}


def test_metadata_sent(channel, way, server):
    """CH-1: metadata reaches the server, binary too."""
    channel.begin(way, metadata=(("key", "value"), ("key-bin", b"\x00\xff"))).outcome()
    seen = server.servicer.metadata[0]
    assert (seen["key"], seen["key-bin"]) == ("value", b"\x00\xff")


def test_abort(channel, way):
    """CH-1: the server's status, its text and its trailing metadata reach the caller."""
    outcome = channel.begin(way, ["abort"]).outcome()
    assert (outcome.code, outcome.details) == (CODE.FAILED_PRECONDITION, "not now")
    assert isinstance(outcome.error, grpc.RpcError)
    assert set(TRAILING) <= {tuple(pair) for pair in outcome.error.trailing_metadata()}


def test_deadline_while_it_runs(channel, way):
    """CH-1: a deadline ends a call that runs."""
    outcome = channel.begin(way, ["hang"], timeout=0.1).outcome()
    assert (outcome.code, outcome.texts) == (CODE.DEADLINE_EXCEEDED, None)


def test_a_deadline_that_has_passed(face, way, server):
    """CH-1: it is met at once."""
    with face.channel(server.target) as channel:
        assert channel.begin(way, timeout=-1).outcome().code is CODE.DEADLINE_EXCEEDED


def test_deadlines_far_off(channel, server):
    """CH-1: they are kept; the server is told what is left of them."""
    assert channel.unary("a", timeout=1e9) == "a"
    assert channel.unary("b", timeout=100) == "b"
    assert 50 < server.servicer.remaining[1] <= 101  # grpc rounds up on the wire


def test_cancel_while_it_runs(channel, cancellable, server):
    """CH-1, TH-6: cancelling ends the call here and at the server."""
    call = channel.begin(cancellable, ["hang"])
    assert server.servicer.hanging.wait(20)
    threading.Thread(target=call.cancel).start()
    outcome = call.outcome()
    assert (outcome.code, outcome.details) == (CODE.CANCELLED, "Locally cancelled by application!")
    assert call.done()
    assert server.servicer.cancelled.wait(20)


@pytest.mark.parametrize("method", ["Down", "Both"])
def test_cancel_a_stream_that_is_read(channel, server, method):
    """CH-1, TH-6: who reads a stream that is cancelled elsewhere gets CANCELLED."""
    call = channel.begin(method, ["then hang"] if method == "Down" else ["a", "hang"])
    assert call.read() == ("then hang" if method == "Down" else "a")
    threading.Timer(0.05, call.cancel).start()
    assert call.outcome().code is CODE.CANCELLED
    assert server.servicer.cancelled.wait(20)


def test_close_amid_a_call(channel, way, server):
    """CB-10, TH-6: closing cancels a call that runs."""
    call = channel.begin(way, ["hang"])
    assert server.servicer.hanging.wait(20)
    channel.close()
    assert call.outcome().code is CODE.CANCELLED


def test_closed(channel, face, way):
    """CB-10: calls on a channel that is closed raise what grpc's do; closing again does nothing."""
    channel.close()
    channel.close()
    with pytest.raises(face.closed):
        channel.begin(way).outcome()


def test_initial_metadata(channel):
    """CH-1: the server's metadata are told before and behind the answer."""
    call = channel.begin("Down", ["metadata"])
    assert set(INITIAL) <= set(call.metadata("initial"))
    assert call.outcome().texts == ["metadata"]
    assert set(TRAILING) <= set(call.metadata("trailing"))


def test_a_message_that_is_too_large(face, phase, server):
    """CH-1, RT-2: a message past `grpc.max_receive_message_length` is RESOURCE_EXHAUSTED, and made once."""
    with face.channel(server.target, [("grpc.max_receive_message_length", 1000)]) as channel:
        if phase == "ready":
            channel.ready()
        assert channel.begin(texts=["a" * 2000]).outcome().code is CODE.RESOURCE_EXHAUSTED
        assert len(server.servicer.got) == 1
