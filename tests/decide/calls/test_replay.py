"""The buffer for requests that may have to be sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.decide.calls.replay import ReplayBuffer


def test_empty():
    """RT-8: a new buffer contains no requests and is not closed."""
    buffer = ReplayBuffer(100)

    assert (buffer.end, buffer.closed) == (0, False)
    with pytest.raises(IndexError):
        buffer[0]


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
    """RT-8: after any series of requests and releases, the buffer holds what a plain list would, in the same order.

    Released requests are discarded and take up no space, and those that remain keep their numbers.
    """
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
