"""RT-8: the buffer of a stream's requests, which each attempt replays."""

from __future__ import annotations

import contextlib
import threading

import pytest

from grpc_backoff.sync.replay import Replay
from tests.sync.service import until


def test_each_attempt_gets_all():
    """RT-8: each attempt gets all requests from the start, even if another attempt has already taken some."""
    replay = Replay(iter([b"a", b"b", b"c"]), None, 100)
    first = replay.attempt()
    assert [next(first), next(first)] == [b"a", b"b"]
    assert list(replay.attempt()) == [b"a", b"b", b"c"]
    assert list(first) == [b"c"]


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
    old, new, got = replay.attempt(), replay.attempt(), []
    assert next(old) == next(new) == b"a"
    threads = [threading.Thread(target=lambda each=each: got.append(next(each))) for each in (old, new)]
    for thread in threads:
        thread.start()
    until(lambda: replay._taking)
    go.set()
    for thread in threads:
        thread.join(20)
    assert got == [b"b", b"b"]


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
    replay = Replay(iter([b"aa", b"bb"]), None, 3)
    replay.overfull = lambda: (told.append(True), replay.release())
    failed = replay.attempt()
    assert next(failed) == b"aa"
    replay.rest()
    assert next(failed) == b"bb"
    assert told == []
    assert list(replay.attempt()) == [b"aa", b"bb"]
    assert told == [True]


def test_an_earlier_attempt_discards_nothing():
    """RT-8: a request beyond the limit reaches the running attempt, even if an earlier attempt has read it."""
    replay = Replay(iter([b"aa", b"bb", b"cc"]), None, 3)
    replay.overfull = replay.release
    earlier, running = replay.attempt(), replay.attempt()
    assert next(earlier) == next(running) == b"aa"
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
