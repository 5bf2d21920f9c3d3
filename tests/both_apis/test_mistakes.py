"""CH-1, TH-1: what grpc rejects before it sends anything, this library rejects at once, and with grpc's own error.

A call that waits for a connection, or that may be retried, must not hide its caller's mistake.
"""

from __future__ import annotations

import concurrent.futures

import grpc
import pytest

import grpc_backoff
from grpc_backoff.testing.front import silent
from tests.both_apis.api import NO_STREAM
from tests.echo import Message
from tests.sync.service import front

UNSERVED = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.DEADLINE_EXCEEDED}
PATH = "/a.Service/Method"
INVALID = "INTERNAL: Invalid metadata"
ARGUMENTS = {
    "key": ({"metadata": [("Key", "value")]}, INVALID),
    "empty key": ({"metadata": [("", "value")]}, INVALID),
    "value": ({"metadata": [("fine", "value"), ("key", "two\nlines")]}, INVALID),
    "key that is no text": ({"metadata": [(1, "value")]}, "TypeError"),
    "value that is no text": ({"metadata": [("key", 1)]}, "TypeError"),
    "binary value": ({"metadata": [("key-bin", "text")]}, "TypeError"),
    "three in place of a pair": ({"metadata": [("key", "value", "more")]}, "ValueError"),
    "metadata": ({"metadata": 5}, "TypeError"),
    "compression": ({"compression": "gzip"}, "KeyError"),
    "credentials": ({"credentials": "mine"}, "AttributeError"),
    "timeout": ({"timeout": "1"}, "TypeError"),
}


@pytest.fixture
def channel(kind, phase, server):
    """A channel that is READY, or one that waits for a connection forever."""
    with front(silent) as peer, kind.channel(server.target if phase == "ready" else peer.target) as channel:
        if phase == "ready":
            channel.ready()
        yield channel


def mistaken(channel, way, texts=("a",), **how):
    """Make a call that waits for ready, without a deadline; return how it ended, within seconds."""
    try:
        error = channel.begin(way, texts, wait_for_ready=True, **how).outcome(10).error
    except (concurrent.futures.TimeoutError, TimeoutError):
        raise
    except Exception as raised:  # noqa: BLE001
        error = raised
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.RpcError) else type(error).__name__


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70),
    reason="grpcio 1.63 words these errors differently, and its own asyncio streams hang on some of them",
)
def test_arguments(channel, kind, way):
    """CH-1: wrong metadata, compression, credentials and timeouts are rejected, without a connection too."""
    expected = {mistake: ends for mistake, (_, ends) in ARGUMENTS.items()}
    if kind.name == "asyncio":
        expected["credentials"] = "UsageError"
        if way == "Unary":
            expected |= {mistake: "ExecuteBatchError" for mistake, ends in expected.items() if ends is INVALID}
    assert {mistake: mistaken(channel, way, **how) for mistake, (how, _) in ARGUMENTS.items()} == expected


def test_requests_that_are_no_bytes(channel, kind):
    """CH-1: a serializer that returns no bytes, or a request that is none, is rejected, without a connection too."""
    for way in set(kind.ways) - set(kind.sending):
        for serializer in (None, lambda _: "text"):
            assert mistaken(channel, way, path=PATH, serializer=serializer) == "TypeError"


def test_serializer_that_raises(channel, kind):
    """CH-1: on threads, a serializer that raises ends the call; on asyncio, grpc sends an empty message instead."""

    def serialize(_):
        raise ValueError("mine")

    for way in set(kind.ways) - set(kind.sending):
        error = mistaken(channel, way, path=PATH, serializer=serialize, timeout=0.5)
        if kind.name == "threads":
            assert error == "INTERNAL: Exception serializing request!"
        else:
            assert error.partition(":")[0] in {code.name for code in UNSERVED}


def test_requests_that_are_no_stream(channel, kind, sending):
    """CH-1: an object that is no stream of requests ends the call as an iterator that raises does."""
    expected = "CancelledError" if kind.name == "asyncio" else "UNKNOWN: Exception iterating requests!"
    assert mistaken(channel, sending, NO_STREAM) == expected


def test_method_that_is_no_text(kind):
    """CH-1: no multicallable can be made for a method whose name is no text, so no call can fail for it later."""
    with kind.channel("127.0.0.1:1") as channel:
        for path in (5, None, "/\ud800"):
            with pytest.raises((AttributeError, UnicodeEncodeError)):
                channel.calls.unary_unary(path)


def test_method_as_bytes(channel):
    """CH-1: a method's name may be bytes."""
    assert channel.begin(path=b"/a.Service/Method", timeout=0.2).outcome().code in UNSERVED


def test_cancel_before_a_read(channel):
    """CH-1, TH-6: a stream that was cancelled returns no message any more."""
    for _ in range(10):
        call = channel.begin("Down", Message(text="a", count=100))
        call.cancel()
        with pytest.raises((grpc.RpcError, concurrent.futures.CancelledError)):
            call.read()


def test_compression_of_a_channel(kind, server):
    """CH-10: a channel's compression that is none is refused when the channel is created, as in grpc."""
    with pytest.raises(ValueError, match="gzip"), kind.channel(server.target, compression="gzip"):
        pass


def test_call_credentials_of_an_installed_channel():
    """TH-7: credentials of calls are refused as a channel's credentials, with grpc's kind of error."""
    with grpc_backoff.installed(), pytest.raises(TypeError):
        grpc.secure_channel("localhost:1", grpc.access_token_call_credentials("token"))
