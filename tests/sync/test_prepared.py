"""TH-1, TH-2: futures that wait for a connection are grpcio's own calls as soon as there is one."""

from __future__ import annotations

import threading

import grpc
import pytest

import grpc_backoff
from grpc_backoff.decide.calls.call_machine import Begun
from grpc_backoff.grpcio import sync_private
from grpc_backoff.sync.call import FutureCall
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

CALLS = 20


@pytest.fixture
def nowhere():
    with place(up=False) as made:
        yield made


@pytest.fixture
def channel(nowhere):
    options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]
    with grpc_backoff.insecure_channel(nowhere.target, options) as made:
        yield made


def wait(channel, calls=CALLS, **how):
    made = [
        EchoStub(channel).Unary.future(Message(text=f"{turn}"), wait_for_ready=True, **how) for turn in range(calls)
    ]
    until(lambda: len(channel.calls.pending) == calls)
    return made


def test_one_state_for_each_call(nowhere, channel, monkeypatch):
    """TH-2: a call that waits has one state of grpcio's, and this library writes no end of a call that is answered."""
    states, ends = [], []

    class State(sync_private._channel._RPCState):
        def __init__(self, *how):
            super().__init__(*how)
            if threading.current_thread() in callers:
                states.append(self)

    callers = {threading.main_thread()}
    monkeypatch.setattr(sync_private._channel, "_RPCState", State)
    monkeypatch.setattr(FutureCall, "_settle", lambda *how: ends.append(how))
    waiting = wait(channel)
    assert len(states) == CALLS
    callers.update(thread for thread in threading.enumerate() if thread.name == "grpc-backoff")
    nowhere.start()
    assert [call.result(20).text for call in waiting] == [f"{turn}" for turn in range(CALLS)]
    assert len(states) - CALLS < CALLS, "only dials, and their questions, have made others"
    assert ends == []


def test_one_wake_for_each_call(nowhere, channel):
    """TH-2: a thread that waits for a future is woken once, when the call has ended."""
    wakes, (waiting,) = [], wait(channel, 1)
    condition = waiting._call.state.condition
    notify = condition.notify_all
    condition.notify_all = lambda: (wakes.append(waiting.done()), notify())[1]
    nowhere.start()
    assert waiting.result(20).text == "0"
    assert wakes == [True]


def test_calls_leave_their_connection(nowhere, channel):
    """CH-6: a call is counted on its connection until it has ended, and removed before its caller knows the end."""
    waiting = wait(channel)
    hangs = EchoStub(channel).Unary.future(Message(text="hang"), wait_for_ready=True)
    nowhere.start()
    for call in waiting:
        call.result(20)
    assert nowhere.servicer.hanging.wait(20)
    until(lambda: len(channel.connection().calls) == 1)
    assert hangs.cancel()
    assert nowhere.servicer.cancelled.wait(20)
    until(lambda: not channel.connection().calls)
    assert channel.connection().served


def test_a_callback_that_raises(nowhere, channel, caplog):
    """TH-1: a callback that raises neither keeps others from being called nor ends grpcio's thread."""
    told, (waiting,) = [], wait(channel, 1)
    waiting.add_callback(lambda: 1 / 0)
    waiting.add_done_callback(told.append)
    nowhere.start()
    assert waiting.result(20).text == "0"
    until(lambda: told == [waiting])
    assert EchoStub(channel).Unary.future(Message(text="b")).result(20).text == "b"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_cancelled(nowhere, channel, when):
    """TH-3: a call is cancelled while it waits, and while it runs; its callbacks are called once."""
    told = []
    call = EchoStub(channel).Unary.future(Message(text="hang"), wait_for_ready=True)
    call.add_done_callback(told.append)
    if when == "running":
        nowhere.start()
        assert nowhere.servicer.hanging.wait(20)
    assert call.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        call.result(20)
    assert (call.code(), call.details()) == (grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
    until(lambda: told)
    assert told == [call]
    if when == "running":
        assert nowhere.servicer.cancelled.wait(20)


def test_closed_while_it_runs(nowhere, channel):
    """CB-10: closing the channel cancels a call that has waited and now runs."""
    call = EchoStub(channel).Unary.future(Message(text="hang"), wait_for_ready=True)
    nowhere.start()
    assert nowhere.servicer.hanging.wait(20)
    channel.close()
    assert call.exception(20) is call
    assert (call.code(), call.details()) == (grpc.StatusCode.CANCELLED, "Channel closed!")


def test_the_deadline_of_the_whole_call(nowhere, channel):
    """RT-7: what is left of the deadline after the wait is the attempt's."""
    (waiting,) = wait(channel, 1, timeout=20)
    assert 0 < waiting.time_remaining() <= 20
    nowhere.start()
    assert waiting.result(20).text == "0"
    assert 0 < nowhere.servicer.remaining[0] <= 20
    late = EchoStub(channel).Unary.future(Message(text="hang"), timeout=0.2)
    assert late.exception(20).code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_the_server_s_end(nowhere, channel):
    """TH-1: the call has the server's status and metadata, and raises itself."""
    call = EchoStub(channel).Unary.future(Message(text="abort"), wait_for_ready=True)
    nowhere.start()
    with pytest.raises(grpc.RpcError) as raised:
        call.result(20)
    assert raised.value is call
    assert (call.code(), call.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not now")
    assert ("last", "2") in [tuple(pair) for pair in call.trailing_metadata()]


def test_a_response_that_cannot_be_read(nowhere, channel):
    """TH-1: a deserializer that raises ends the call with INTERNAL, as in grpc."""

    def broken(_):
        raise ZeroDivisionError

    method = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, broken)
    call = method.future(Message(text="a"), wait_for_ready=True)
    nowhere.start()
    assert call.exception(20).code() is grpc.StatusCode.INTERNAL
    assert call.details() == "Exception deserializing response!"


def test_a_core_channel_that_refuses(nowhere, channel, monkeypatch):
    """CH-1: if grpcio refuses the call, its caller gets grpcio's error."""

    def refuse(*_):
        raise ValueError("no")

    monkeypatch.setattr(sync_private.Prepared, "begin", refuse)
    (waiting,) = wait(channel, 1)
    nowhere.start()
    with pytest.raises(ValueError, match="no"):
        waiting.result(20)
    until(lambda: not channel.connection().calls)


def test_a_step_that_raises(nowhere, channel):
    """CH-1: if the step after the attempt's start raises, the attempt is cancelled, and the caller gets the error."""
    (waiting,) = wait(channel, 1)
    given = waiting._call._machine

    class Broken(type(given)):
        def step(self, state, input_, *how):
            if isinstance(input_, Begun):
                raise ZeroDivisionError("no time")
            return super().step(state, input_, *how)

    waiting._call._machine = Broken(*given)
    nowhere.start()
    with pytest.raises(ZeroDivisionError):
        waiting.result(20)
    until(lambda: channel.connection() and not channel.connection().calls)
    assert EchoStub(channel).Unary.future(Message(text="b")).result(20).text == "b"
