"""TH-5a: listeners and callbacks run in order, on a thread of their channel, and their errors are contained."""

from __future__ import annotations

import logging
import threading

import grpc

from grpc_backoff.decide.calls.events import CallExhausted, Reason
from grpc_backoff.decide.connections.events import Closed, State
from grpc_backoff.sync.listeners import Listeners
from tests.sync.service import until

CLOSED = Closed(target="target", at=1.0, attempt=1, lived=None)


def test_in_order_and_elsewhere():
    """TH-5a: a listener receives events in order, and not on the thread that reports them."""
    heard = []
    listeners = Listeners([lambda event: heard.append((event, threading.current_thread()))], "target")
    for number in range(200):
        listeners.hear(number)
    until(lambda: len(heard) == 200)
    assert [event for event, _ in heard] == list(range(200))
    assert threading.current_thread() not in {thread for _, thread in heard}


def test_one_that_raises(caplog):
    """CH-11: an exception from a listener, even SystemExit, is logged, and the other listeners run."""
    heard = []

    def leaves(_event):
        raise SystemExit

    listeners = Listeners([heard.append, lambda _: 1 / 0, leaves, heard.append], "target")
    listeners.hear(CLOSED)
    until(lambda: len(heard) == 2)
    listeners.wait(20)
    assert caplog.text.count("a listener of the channel to target raised") == 2


def test_one_that_blocks():
    """TH-5a: a blocking listener delays no other thread or channel, and delays `close` only for a limited time."""
    go, heard = threading.Event(), []
    listeners = Listeners([lambda _: go.wait(20), heard.append], "target")
    other = Listeners([heard.append], "other")
    listeners.hear(1)
    other.hear(2)
    until(lambda: heard == [2])
    listeners.close()
    listeners.wait(0.05)
    go.set()
    until(lambda: heard == [2, 1])


def test_nobody_waits_for_its_thread(monkeypatch):
    """TH-5: whoever reports an event does not wait until the thread that delivers it runs."""
    go, heard, start = threading.Event(), [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (go.wait(20), start(thread)))
    listeners = Listeners([heard.append], "target")
    listeners.hear(1)
    listeners.hear(2)
    assert heard == []
    go.set()
    until(lambda: heard == [1, 2])


def test_without_a_thread_the_end_delivers(monkeypatch):
    """TH-5: where no thread can be started, events are delivered, in order, to those who wait at the close."""

    def none(_work, _name):
        raise RuntimeError("can't start new thread")

    heard = []
    listeners = Listeners([lambda event: heard.append((event, threading.current_thread()))], "target")
    monkeypatch.setattr("grpc_backoff.base.threads.start", none)
    for number in range(3):
        listeners.hear(number)
    assert heard == []
    listeners.close()
    listeners.wait(20)
    assert heard == [(number, threading.current_thread()) for number in range(3)]


def test_no_thread_without_a_listener(monkeypatch):
    """TH-5: without listeners, callbacks and logging, no thread is started."""
    monkeypatch.setattr(logging.getLogger("grpc_backoff"), "level", logging.WARNING)
    listeners = Listeners([], "target")
    listeners.hear(CLOSED)
    listeners.changed(State.READY)
    assert listeners._thread is None


def test_the_log_is_a_listener(caplog):
    """RT-6: a call whose retries are exhausted is logged even if there are no listeners."""
    exhausted = CallExhausted(
        target="target",
        method="/m",
        at=1.0,
        attempt=2,
        call_id="1",
        code="UNAVAILABLE",
        reason=Reason.ATTEMPTS,
        took=1.0,
    )
    listeners = Listeners([], "target")
    listeners.hear(exhausted)
    listeners.wait(20)
    assert "gave up" in caplog.text


def test_states():
    """TH-1: a callback receives the current state first, then each change once, and nothing after `unsubscribe`."""
    told = []
    listeners = Listeners([], "target")
    listeners.subscribe(told.append, lambda: State.IDLE)
    for state in (State.IDLE, State.CONNECTING, State.CONNECTING, State.READY):
        listeners.changed(state)
    listeners.wait(20)
    assert told == [
        grpc.ChannelConnectivity.IDLE,
        grpc.ChannelConnectivity.CONNECTING,
        grpc.ChannelConnectivity.READY,
    ]
    listeners.unsubscribe(told.append)
    listeners.unsubscribe(told.append)
    listeners.changed(State.IDLE)
    listeners.wait(20)
    assert len(told) == 3


def test_a_callback_that_takes_itself_away():
    """TH-6: a callback may subscribe and unsubscribe callbacks, including itself."""
    told = []
    listeners = Listeners([], "target")

    def once(state):
        told.append(state)
        listeners.unsubscribe(once)
        listeners.subscribe(told.append, lambda: State.READY)

    listeners.subscribe(once, lambda: State.IDLE)
    until(lambda: len(told) == 2)
    assert told == [grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.READY]


def test_closed():
    """CB-10: after `close`, listeners receive only the events that were reported before it."""
    heard = []
    listeners = Listeners([heard.append], "target")
    listeners.hear(1)
    listeners.close()
    listeners.hear(2)
    listeners.changed(State.IDLE)
    listeners.wait(20)
    assert heard == [1]


def test_unsubscribed_while_a_state_is_on_its_way():
    """TH-1: a callback that has been unsubscribed is not called, even if the state had changed before."""
    go, seen = threading.Event(), []
    listeners = Listeners([], "target")
    listeners.subscribe(lambda _state: go.wait(20), lambda: State.IDLE)
    listeners.subscribe(seen.append, lambda: State.IDLE)
    listeners.unsubscribe(seen.append)
    go.set()
    listeners.wait(20)
    assert seen == []
