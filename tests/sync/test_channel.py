"""The threaded channel: outages, closing in any phase, dropped channels and calls, and interpreter exit."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

import grpc_backoff
from grpc_backoff import NoConnectionError
from grpc_backoff.sync.conductor import CONDUCTOR
from tests.echo import EchoStub, Message
from tests.sync.service import dialled, elsewhere, place, until

FAST = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def kinds(events):
    return [type(event) for event in events]


def test_a_future_that_nobody_has():
    """TH-3: a pending future without references is cancelled, as in grpc."""
    with place(up=False) as nowhere, grpc_backoff.insecure_channel(nowhere.target, FAST) as channel:
        future = EchoStub(channel).Unary.future(Message(text="a"), wait_for_ready=True)
        until(lambda: len(channel.calls.pending) == 1)
        del future
        gc.collect()
        until(lambda: len(channel.calls.pending) == 0)


def test_close_from_a_callback():
    """TH-6: a listener may close the channel, and so may a done callback, which runs on grpc's thread."""
    with place() as server:
        channel, closed = grpc_backoff.insecure_channel(server.target), threading.Event()
        other = EchoStub(channel).Down(Message(text="then hang", count=1))
        assert next(other).text == "then hang"
        EchoStub(channel).Unary.future(Message(text="a")).add_done_callback(lambda _: (channel.close(), closed.set()))
        assert closed.wait(20)
        closed.clear()
        channel = grpc_backoff.insecure_channel(server.target, listeners=[lambda _: (channel.close(), closed.set())])
        channel.subscribe(lambda _: None, try_to_connect=True)
        assert closed.wait(20)


def test_a_listener_that_blocks():
    """TH-5a: a listener that blocks delays neither its own channel's calls nor another channel's dial."""
    go = threading.Event()
    with place() as server:
        with grpc_backoff.insecure_channel(server.target, listeners=[lambda _: go.wait(20)]) as channel:
            assert EchoStub(channel).Unary(Message(text="a"), timeout=10).text == "a"
            with grpc_backoff.insecure_channel(server.target) as other:
                assert EchoStub(other).Unary(Message(text="a"), timeout=10).text == "a"
        go.set()


def test_dropped():
    """CB-10: a channel dropped without `close` issues a ResourceWarning and stops dialling; running calls continue."""
    with place() as server:
        channel = grpc_backoff.insecure_channel(server.target)
        call = EchoStub(channel).Both(iter([Message(text="a"), Message(text="b")]))
        assert next(call).text == "a"
        with pytest.warns(ResourceWarning, match="unclosed channel to"):  # noqa: PT031 - the first statement warns
            del channel
            gc.collect()
        assert next(call).text == "b"
        with pytest.raises(StopIteration):
            next(call)
        del call
        until(lambda: dialled() == [])


def test_a_call_in_a_finalizer():
    """TH-6: a call that a finalizer makes during garbage collection does not hang, whichever thread runs the finalizer.

    The server runs in another process, because a call on one of its own threads would wait for itself.
    """
    with place(up=False) as server, elsewhere(server), grpc_backoff.insecure_channel(server.target) as channel:
        stub, answers, refused = EchoStub(channel), [], []

        class Calls:
            def __init__(self):
                self.me = self

            def __del__(self):
                try:
                    answers.append(stub.Unary(Message(text="a"), timeout=20).text)
                except NoConnectionError as error:
                    refused.append((threading.current_thread().name, error.code()))

        before = gc.get_threshold()
        gc.set_threshold(20)
        try:
            for _ in range(20):
                Calls()
                stub.Unary(Message(text="b"), timeout=20)
            gc.collect()
        finally:
            gc.set_threshold(*before)
        assert set(refused) <= {("grpc-backoff", UNAVAILABLE)}
        assert answers == ["a"] * (20 - len(refused))


def test_a_call_on_the_channels_own_thread():
    """TH-6: a blocking call on the channel's own thread fails at once if it would have to wait for a connection."""
    ended = SimpleQueue()
    with place(up=False) as server, grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)

        def call():
            try:
                stub.Unary(Message(text="a"), wait_for_ready=True)
            except NoConnectionError as error:
                ended.put(error)

        CONDUCTOR.post(call)
        error = ended.get(timeout=20)
    assert error.code() is UNAVAILABLE
    assert error.details().startswith(f"no connection to {server.target}, and a finalizer")


def test_interpreter_exit():
    """TH-6: a program that exits with one channel READY and one in backoff neither hangs nor prints anything."""
    with place() as server, place(up=False) as nowhere:
        program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import grpc, grpc_backoff
from tests.echo import EchoStub, Message
one = grpc_backoff.insecure_channel({server.target!r}, listeners=[lambda event: None])
two = grpc_backoff.insecure_channel({nowhere.target!r})
assert EchoStub(one).Unary(Message(text="a")).text == "a"
stream = EchoStub(one).Down(Message(text="then hang", count=1))
next(stream)
waits = EchoStub(two).Unary.future(Message(text="a"), wait_for_ready=True)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("", "")
