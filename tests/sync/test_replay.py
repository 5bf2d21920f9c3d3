"""RT-8: the buffer of a stream's requests, which each attempt replays."""

from __future__ import annotations

import contextlib
import threading

import pytest

import grpc_backoff
from grpc_backoff.sync.replay import Replay
from tests.echo import EchoStub, Message
from tests.sync.service import until


def test_each_attempt_gets_all():
    """RT-8: each attempt gets all requests from the start, even if another attempt has already taken some."""
    replay = Replay(iter([b"a", b"b", b"c"]), None, 100)
    first = replay.attempt()
    assert [next(first), next(first)] == [b"a", b"b"]
    assert list(replay.attempt()) == [b"a", b"b", b"c"]
    assert list(first) == [], "its attempt has ended"


def test_serialized_once():
    """RT-8: each request is serialized only once."""
    seen = []
    replay = Replay([1, 2], lambda number: seen.append(number) or b"%d" % number, 100)
    assert list(replay.attempt()) == list(replay.attempt()) == [b"1", b"2"]
    assert seen == [1, 2]


def test_one_that_was_being_taken():
    """RT-8: a request that an earlier attempt is still taking from the iterator also reaches the running one."""
    go = threading.Event()

    def requests():
        yield b"a"
        go.wait(20)
        yield b"b"

    replay = Replay(requests(), None, 100)
    old, got = replay.attempt(), []
    assert next(old) == b"a"
    new = replay.attempt()
    assert next(new) == b"a"
    threads = [threading.Thread(target=lambda each=each: got.append(next(each, "over"))) for each in (old, new)]
    replay._running = old
    threads[0].start()
    until(lambda: replay._taking)
    replay._running = new
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(20)
    assert sorted(got, key=str) == [b"b", "over"]


def test_too_much():
    """RT-8: when the buffer exceeds its limit, the call is notified once, and the running attempt loses no request."""
    told = []
    replay = Replay(iter([b"aa", b"bb", b"cc"]), None, 3)
    replay.overfull = lambda: (told.append(True), replay.release())
    assert list(replay.attempt()) == [b"aa", b"bb", b"cc"]
    assert told == [True]
    assert replay._buffer._size == 0


def test_too_much_after_a_failure():
    """RT-8: a request beyond the limit that is read after its attempt has failed is kept for one last attempt."""
    told = []

    def requests():
        yield b"aa"
        replay.end(failed)
        yield b"bb"

    replay = Replay(requests(), None, 3)
    replay.overfull = lambda: (told.append(True), replay.release())
    failed = replay.attempt()
    assert list(failed) == [b"aa"]
    assert told == []
    assert list(replay.attempt()) == [b"aa", b"bb"]
    assert told == [True]


def test_an_earlier_attempt_discards_nothing():
    """RT-8: a request beyond the limit reaches the running attempt, even if an earlier attempt has read it."""
    replay = Replay(iter([b"aa", b"bb", b"cc"]), None, 3)
    replay.overfull = replay.release
    earlier = replay.attempt()
    assert next(earlier) == b"aa"
    running = replay.attempt()
    assert next(running) == b"aa"
    with contextlib.suppress(StopIteration):  # the attempt has ended
        next(earlier)
    assert list(running) == [b"bb", b"cc"]
    assert list(earlier) == []
    assert replay._buffer._size == 0


def test_an_iterator_that_raises():
    """RT-8: an exception from the iterator reaches every attempt, after the requests that preceded it."""

    def requests():
        yield b"a"
        raise ValueError("mine")

    replay = Replay(requests(), None, 100)
    for _ in range(2):
        attempt = replay.attempt()
        assert next(attempt) == b"a"
        with pytest.raises(ValueError, match="mine"):
            next(attempt)


def test_a_request_that_cannot_be_serialized(caplog):
    """CH-1: a request that cannot be serialized is passed to grpcio as None, and the exception is logged."""
    replay = Replay(iter([1]), lambda _: 1 / 0, 100)
    assert next(replay.attempt()) is None
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("method", ["Up", "Both", "Up.future"])
def test_threads_of_failed_attempts(server, method):
    """RT-8: attempts that have failed leave no thread behind, even while the next request has not come."""
    server.servicer.fails, go = 50, threading.Event()

    def requests():
        yield Message(text="a")
        go.wait(60)

    def of_grpcio():
        return [thread for thread in threading.enumerate() if thread.name.endswith("(_run)")]

    retry = "retry: 50, delay: 1ms, max_delay: 1ms, jitter: none"
    with grpc_backoff.insecure_channel(server.target, retry=retry) as channel:
        stub, called = EchoStub(channel), threading.Event()
        if method == "Up":
            threading.Thread(target=lambda: stub.Up(requests(), timeout=60) and called.set()).start()
        else:
            call = (stub.Up.future if method == "Up.future" else stub.Both)(requests(), timeout=60)
            call.add_callback(called.set)
        until(lambda: server.servicer.got[50:] == [["a"]])
        until(lambda: len(of_grpcio()) < 10)  # of the running attempt, the one that reads requests, and the channel's
        go.set()
        if method == "Both":
            assert [message.text for message in call] == ["a"]
        assert called.wait(20)
