"""Retried calls in threads: what holds them to an attempt, which threads they need. The rest is in `tests/faces`."""

from __future__ import annotations

import threading

import grpc
import pytest

import grpc_backoff
from grpc_backoff.sync import multicallables
from grpc_backoff.sync.pump import needs_pump
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

POLICY = "retry: 3, delay: 10ms"
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def each(*texts):
    return iter([Message(text=text) for text in texts])


@pytest.fixture
def channel(server):
    with grpc_backoff.insecure_channel(server.target, retry=POLICY) as channel:
        yield channel


def test_committed(channel, server):
    """RT-8: a stream of which a response has reached the caller is not made again."""
    call = EchoStub(channel).Down(Message(text="then fail", count=2))
    assert [next(call).text, next(call).text] == ["then fail", "then fail"]
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert (caught.value.code(), caught.value.details()) == (UNAVAILABLE, "behind the responses")
    assert call.code() is UNAVAILABLE
    assert len(server.servicer.got) == 1


def test_too_much_to_keep(server):
    """RT-8: a call whose requests pass the buffer is held to its attempt."""
    options = [("grpc.per_rpc_retry_buffer_size", 5)]
    with grpc_backoff.insecure_channel(server.target, options, retry=POLICY) as channel:
        for method in (EchoStub(channel).Up, lambda requests: EchoStub(channel).Up.future(requests).result(20)):

            def requests():
                yield from each("aaaa", "bbbb")
                until(lambda: server.servicer.got and server.servicer.got[-1] == ["aaaa", "bbbb"])
                server.servicer.fails = 1
                yield from each("cccc")

            server.servicer.got.clear()
            with pytest.raises(grpc.RpcError) as caught:
                method(requests())
            assert caught.value.details() == "as told"
            assert len(server.servicer.got) == 1


def test_cancel_while_an_attempt_is_being_made(server, monkeypatch):
    """TH-3, TH-6: an attempt that is on the wire, and not known yet to the call, is cancelled too."""
    made, cancelled, make = threading.Event(), threading.Event(), multicallables._Attempts.make

    def slowly(*how):
        attempt = make(*how)
        made.set()
        cancelled.wait(20)
        return attempt

    monkeypatch.setattr(multicallables._Attempts, "make", slowly)
    with grpc_backoff.insecure_channel(server.target) as channel:
        future = EchoStub(channel).Unary.future(Message(text="hang"))
        assert made.wait(20)
        assert server.servicer.hanging.wait(20)
        assert future.cancel()
        cancelled.set()
        assert server.servicer.cancelled.wait(10)


def test_futures_and_streams_need_no_threads():
    """TH-4: on a READY channel, with retries for every call, only threads of grpcio's own come with them."""
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


def ours():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("grpc-backoff")}
