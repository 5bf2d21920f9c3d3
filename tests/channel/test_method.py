"""What the methods of both faces have in common."""

from __future__ import annotations

import grpc
import pytest

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.channel.method import replaced
from tests.echo import EchoStub


def test_retrying_serves_both_faces():
    """BP-2: one function has a method of a stub retried in another way, on whichever face its channel is."""
    assert aio.retrying is grpc_backoff.retrying
    with grpc_backoff.insecure_channel("127.0.0.1:1") as channel:
        given = EchoStub(channel).Unary
        made = grpc_backoff.retrying(given, "retry: 2, delay: 1s", call_id="order 17")
        assert type(made) is type(given)
        assert (made.channel, made.method) == (channel, given.method)
        assert made is not given


def test_it_takes_methods_of_ours_alone():
    """CH-10: what is no method of a stub on a channel of ours is refused by what it is."""
    expected = "_UnaryUnaryMultiCallable: expected a method of a stub on a grpc_backoff channel"
    with grpc.insecure_channel("127.0.0.1:1") as plain, pytest.raises(TypeError, match=expected):
        grpc_backoff.retrying(EchoStub(plain).Unary, "standard")
    with grpc_backoff.insecure_channel("127.0.0.1:1") as ours, pytest.raises(grpc_backoff.OptionError, match="retry"):
        grpc_backoff.retrying(EchoStub(ours).Unary, "no such policy")


def test_metadata_in_place_of_others():
    """RT-4: renewed metadata take the place of the caller's under the same keys, and leave the rest in order."""
    given = (("a", "1"), ("token", "old"), ("b", b"2"), ("token", "older"))
    assert replaced(given, (("token", "new"),)) == (("a", "1"), ("b", b"2"), ("token", "new"))
    assert replaced(None, (("token", "new"),)) == (("token", "new"),)
