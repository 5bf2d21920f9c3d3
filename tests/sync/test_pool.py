"""The threaded shell around the pool's machine, with real connections. Runs in real time."""

from __future__ import annotations

import pytest

import grpc_backoff
from grpc_backoff import Closed, CoreRedial
from grpc_backoff.pool.events import SlotClosed, SlotOpened, SlotRetiring, SlotServing
from grpc_backoff.pool.machine import Role
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

OPTIONS = [("grpc.initial_reconnect_backoff_ms", 50)]


@pytest.fixture
def events():
    """The events of the channel."""
    return []


@pytest.fixture
def channel(events):
    """A channel with a connection to a server."""
    with place() as server, grpc_backoff.insecure_channel(server.target, OPTIONS, listeners=[events.append]) as made:
        EchoStub(made).Unary(Message(text="x"), timeout=20, wait_for_ready=True)
        yield made


def roles(channel):
    return [slot.role for slot in channel.connection_status().connections]


def test_a_replacement(channel, events):
    """PO-3, PO-9: running calls end on the old connection, new ones use the new one, and nothing of the old is left."""
    stub = EchoStub(channel)
    stream = stub.Down(Message(text="then hang", count=1), timeout=20)
    next(stream)
    old = channel._pool.connection()
    channel.refresh_connection()
    until(lambda: roles(channel) == [Role.RETIRING, Role.SERVING])
    assert channel.connection_status().connections[0].calls == 1
    assert channel._pool.connection() is not old
    assert stub.Unary(Message(text="y"), timeout=20).text == "y"
    stream.cancel()
    until(lambda: roles(channel) == [Role.SERVING])
    until(lambda: old.shown() == 4)  # the core channel is closed
    slots = [type(event) for event in events if not isinstance(event, CoreRedial)][2:]
    assert [kind for kind in slots if kind in (SlotOpened, SlotServing, SlotRetiring, SlotClosed)] == [
        *(SlotOpened, SlotServing, SlotRetiring, SlotClosed)
    ]


def test_close_with_a_retiring_connection(channel, events):
    """PO-12: `close` ends the calls on a retiring connection too, and `Closed` comes last, once."""
    stream = EchoStub(channel).Down(Message(text="then hang", count=1), timeout=20)
    next(stream)
    channel.refresh_connection()
    until(lambda: roles(channel) == [Role.RETIRING, Role.SERVING])
    channel.close()
    until(stream.done)
    assert type(events[-1]) is Closed
    assert [type(event) for event in events].count(Closed) == 1
    assert channel.connection_status().connections == ()


def test_a_condemned_connection(channel):
    """PO-2: the calls of a condemned connection end at once, and new calls use another one."""
    stream = EchoStub(channel).Down(Message(text="then hang", count=1), timeout=20)
    next(stream)
    channel._conductor.post(lambda: channel._pool.condemn(0, "no answer"))
    until(stream.done)
    assert EchoStub(channel).Unary(Message(text="y"), timeout=20, wait_for_ready=True).text == "y"
    until(lambda: roles(channel) == [Role.SERVING])
