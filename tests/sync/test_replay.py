"""RT-8: the requests of a stream, for one attempt after the other."""

from __future__ import annotations

import threading

import pytest

from grpc_backoff.sync.replay import Replay
from tests.sync.service import until


def test_each_attempt_gets_all():
    """RT-8: from the first on, whatever another attempt has taken."""
    replay = Replay(iter([b"a", b"b", b"c"]), None, 100)
    first = replay.attempt()
    assert [next(first), next(first)] == [b"a", b"b"]
    assert list(replay.attempt()) == [b"a", b"b", b"c"]
    assert list(first) == [b"c"]


def test_serialized_once():
    """RT-8: a request is serialized when it is taken, once."""
    seen = []
    replay = Replay([1, 2], lambda number: seen.append(number) or b"%d" % number, 100)
    assert list(replay.attempt()) == list(replay.attempt()) == [b"1", b"2"]
    assert seen == [1, 2]


def test_one_that_was_being_taken():
    """RT-8: what an attempt that is over takes out of the iterator goes to the one that runs."""
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
    """RT-8: past the limit the call is told, once; nothing is lost for the attempt that runs."""
    told = []
    replay = Replay(iter([b"aa", b"bb", b"cc"]), None, 3)
    replay.overfull = lambda: (told.append(True), replay.release())
    assert list(replay.attempt()) == [b"aa", b"bb", b"cc"]
    assert told == [True]
    assert replay._buffer._size == 0


def test_an_iterator_that_raises():
    """RT-8: what it raises reaches every attempt, behind what it gave before."""

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
    """CH-1: grpcio gets None for it, which it reports as it does such a thing."""
    replay = Replay(iter([1]), lambda _: 1 / 0, 100)
    assert next(replay.attempt()) is None
    assert "ZeroDivisionError" in caplog.text
