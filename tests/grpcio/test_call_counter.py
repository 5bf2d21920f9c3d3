"""The channel on which a plugin of grpcio counts calls that got no connection."""

from __future__ import annotations

import socket

import grpc
import pytest

from grpc_backoff.grpcio.call_counter import CallCounter
from tests.sync.service import until


@pytest.fixture
def counter():
    """A counter for a port that accepts connections, and the socket that listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.3)
        counter = CallCounter(f"127.0.0.1:{listening.getsockname()[1]}")
        yield counter, listening
        counter.close()


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
def test_counts_without_a_dial(counter, code):
    """RT-12, CB-1: the call ends with the code that the plugin is to see, and nobody dials for it."""
    counter, listening = counter
    ended, before = [], counter._ended
    counter._ended = lambda call: (ended.append(call.code()), before(call))
    counter.count("/echo.v1.Echo/Unary", code)
    until(lambda: ended)
    assert ended == [grpc.StatusCode[code]]
    with pytest.raises(TimeoutError):
        listening.accept()


def test_nothing_is_left(counter):
    """CB-10: once the counter is closed, its last call ends, and then its channel; later calls are not counted."""
    counter, _ = counter
    counter.count("/echo.v1.Echo/Unary", "UNAVAILABLE")
    counter.close()
    until(lambda: counter._channel is None and not counter._calls)
    counter.count("/echo.v1.Echo/Unary", "UNAVAILABLE")
    assert counter._channel is None
