"""The parts of stubs' methods that the asyncio and the threaded API share."""

from __future__ import annotations

import grpc
import pytest

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.channel.method import replaced
from tests.echo import EchoStub


def test_retrying_serves_both_faces():
    """BP-2: `retrying` is one function for both APIs; the method it returns has the same type, channel and name."""
    assert aio.retrying is grpc_backoff.retrying
    with grpc_backoff.insecure_channel("127.0.0.1:1") as channel:
        given = EchoStub(channel).Unary
        made = grpc_backoff.retrying(given, "retry: 2, delay: 1s", call_id="order 17")
        assert type(made) is type(given)
        assert (made.channel, made.method) == (channel, given.method)
        assert made is not given


def test_it_takes_methods_of_ours_alone():
    """CH-10: `retrying` accepts only methods of stubs on this library's channels; the error names the wrong type."""
    expected = "_UnaryUnaryMultiCallable: expected a method of a stub on a grpc_backoff channel"
    with grpc.insecure_channel("127.0.0.1:1") as plain, pytest.raises(TypeError, match=expected):
        grpc_backoff.retrying(EchoStub(plain).Unary, "standard")
    with grpc_backoff.insecure_channel("127.0.0.1:1") as ours, pytest.raises(grpc_backoff.OptionError, match="retry"):
        grpc_backoff.retrying(EchoStub(ours).Unary, "no such policy")


def test_metadata_in_place_of_others():
    """RT-4: renewed metadata replaces the caller's entries with the same keys; other entries keep their order."""
    given = (("a", "1"), ("token", "old"), ("b", b"2"), ("token", "older"))
    assert replaced(given, (("token", "new"),)) == (("a", "1"), ("b", b"2"), ("token", "new"))
    assert replaced(None, (("token", "new"),)) == (("token", "new"),)
