"""The way of a call on a READY channel, and what stays of it when the connection goes."""

from __future__ import annotations

import threading

import grpc

import grpc_backoff
from tests.echo import EchoStub, Message
from tests.sync.service import place, until


def test_straight_to_grpcs_own(server):
    """TH-2: on a READY channel a call is grpc's own, made in the caller's thread; what it returns is grpc's own."""
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


def test_a_connection_counts_its_calls(server):
    """CH-6: a call is on its connection from before it enters until it has ended, whatever kind it is."""
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


def test_a_retired_connection_is_not_entered(server):
    """CB-7: nothing enters a connection that the manager has given up; what was bound to it goes with it."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        stub.Unary(Message(text="a"))
        connection = channel.connection()
        connection.retired = True
        assert stub.Unary.enter() is None
        assert connection.calls == set()


def test_metadata_and_requests_are_those_of_the_call():
    """CH-1: what the caller changes while its call waits does not change the call."""
    with place(up=False) as server, grpc_backoff.insecure_channel(server.target) as channel:
        request, metadata = Message(text="before"), [("mine", "before")]
        future = EchoStub(channel).Unary.future(request, metadata=metadata, wait_for_ready=True, timeout=20)
        request.text = "after"
        metadata[0] = ("mine", "after")
        server.start()
        channel.reset_connect_backoff()
        assert future.result(20).text == "before"
        assert server.servicer.metadata[-1]["mine"] == "before"


def test_serialized(server):
    """LG-1: a method says how a request is sent, and which one it is."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        method = EchoStub(channel).Unary
        assert method.method == "/echo.v1.Echo/Unary"
        assert method.channel is channel
        assert method.serialized(Message(text="a")) == Message(text="a").SerializeToString()
