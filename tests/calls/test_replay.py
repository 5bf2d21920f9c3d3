"""The buffer for requests that may have to be sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.calls.replay import ReplayBuffer


def filled(*requests, limit=100):
    buffer = ReplayBuffer(limit)
    for request in requests:
        buffer.add(request)
    return buffer


def test_empty():
    """RT-8: a new buffer contains no requests and is not closed."""
    buffer = ReplayBuffer(100)

    assert (buffer.end, buffer.closed) == (0, False)
    with pytest.raises(IndexError):
        buffer[0]


def test_in_order():
    """RT-8: every attempt gets all requests from the first on, in the order in which they were written."""
    buffer = filled(b"a", b"", b"ccc")

    assert buffer.end == 3
    assert [buffer[number] for number in (0, 1, 2, 0, 1, 2)] == [b"a", b"", b"ccc"] * 2


@pytest.mark.parametrize(
    ("limit", "sizes", "all_kept"),
    [
        (10, [10], [True]),
        (10, [11], [False]),
        (10, [5, 5, 0, 1, 0], [True, True, True, False, False]),
        (0, [0, 0, 1], [True, True, False]),
        (256 * 1024, [256 * 1024, 1], [True, False]),
    ],
)
def test_limit(limit, sizes, all_kept):
    """RT-8: the buffer reports when the limit is exceeded, but still returns every request."""
    buffer = ReplayBuffer(limit)

    assert [buffer.add(bytes(size)) for size in sizes] == all_kept
    assert [len(buffer[number]) for number in range(buffer.end)] == sizes


def test_released():
    """RT-8: released requests are discarded, and the remaining requests keep their numbers."""
    buffer = filled(b"a", b"b", b"c")
    buffer.release(2)

    assert buffer[2] == b"c"
    assert buffer.end == 3
    assert buffer.add(b"d")
    assert [buffer[2], buffer[3]] == [b"c", b"d"]
    for number in (0, 1, 4, 5):
        with pytest.raises(IndexError):
            buffer[number]


def test_room_again():
    """RT-8: released requests take up no space, so a committed stream can continue forever."""
    buffer = ReplayBuffer(10)
    for number in range(1000):
        assert buffer.add(bytes(10))
        buffer.release(number + 1)

    assert not list(buffer._kept)


class Model:
    """A model of the buffer: a list of all requests, and the number of the first request that is kept."""

    def __init__(self, limit):
        self.limit = limit
        self.requests = []
        self.first = 0

    def add(self, request):
        self.requests.append(request)
        return sum(map(len, self.requests[self.first :])) <= self.limit

    def release(self, number):
        self.first = max(self.first, number)


steps = st.tuples(st.just("add"), st.binary(max_size=12)) | st.tuples(st.just("release"), st.floats(0, 1))


@given(limit=st.integers(0, 60), steps=st.lists(steps, max_size=40))
def test_as_the_model(limit, steps):
    """RT-8: after any series of requests and releases, the buffer holds what a plain list would."""
    buffer, model = ReplayBuffer(limit), Model(limit)
    for name, drawn in steps:
        argument = drawn if name == "add" else round(drawn * len(model.requests))  # of those added
        assert getattr(buffer, name)(argument) == getattr(model, name)(argument)
        assert buffer.end == len(model.requests)
        kept = range(model.first, buffer.end)
        assert [buffer[number] for number in kept] == [model.requests[number] for number in kept]
        assert len(buffer._kept) == len(kept)
        for number in (model.first - 1, buffer.end):
            with pytest.raises(IndexError):
                buffer[number]
