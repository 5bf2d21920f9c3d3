"""The parts of stubs' methods that the asyncio and the threaded API share."""

from __future__ import annotations

import contextlib

import grpc
import pytest

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.engine.method import Arguments
from grpc_backoff.grpcio.private import NOWHERE
from tests.echo import EchoStub


def test_retrying_serves_both_apis():
    """BP-2: `retrying` is one function for both APIs; the method it returns has the same type, channel and name."""
    assert aio.retrying is grpc_backoff.retrying
    with grpc_backoff.insecure_channel("127.0.0.1:1") as channel:
        given = EchoStub(channel).Unary
        made = grpc_backoff.retrying(given, "retry: 2, delay: 1s", call_id="order 17")
        assert type(made) is type(given)
        assert (made.channel, made.method) == (channel, given.method)
        assert made is not given


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("standart", "did you mean 'standard'"),
        (None, "a RetryPolicy, a policy name, or a policy string"),
        (5, "retry=5: expected"),
        ("", "a policy string such as"),
    ],
)
def test_it_takes_policies_alone(wrong, words):
    """CH-10: `retrying` raises OptionError for an invalid policy."""
    with grpc_backoff.insecure_channel("127.0.0.1:1") as ours, pytest.raises(grpc_backoff.OptionError, match=words):
        grpc_backoff.retrying(EchoStub(ours).Unary, wrong)


async def test_it_takes_methods_of_ours_alone():
    """CH-10: `retrying` accepts only methods of stubs on this library's channels; the error shows what it got."""
    expected = "expected a method of a stub on a grpc_backoff channel"
    with grpc.insecure_channel("127.0.0.1:1") as plain, grpc_backoff.insecure_channel("127.0.0.1:1") as ours:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as asynchronous:
            for given, kind in (
                (EchoStub(plain).Unary, r"<grpc\._channel\._UnaryUnaryMultiCallable object at .*>"),
                (EchoStub(asynchronous).Unary, r"<grpc\.aio\._channel\.UnaryUnaryMultiCallable object at .*>"),
                (None, "None"),
                (print, "<built-in function print>"),
                (ours, "<.*Channel.*>"),
            ):
                with pytest.raises(TypeError, match=f"^multicallable={kind}: {expected}"):
                    grpc_backoff.retrying(given, "standard")


def test_which_arguments_grpc_rejects():
    """CH-1: the arguments that this library recognizes as rejected are exactly those that grpc rejects."""
    characters = [chr(number) for number in (*range(130), 233)]
    keys = [(key, "value") for key in ("", "a", "A", "k-bin", ":a", "-bin", b"k", b"K", None, 1, *characters)]
    values = [("k", value) for value in ("", b"v", b"\xff", None, 1, 1.5, "\ud800", *characters)]
    binary = [("k-bin", value) for value in (b"\x00\xff", b"", "text", None, bytearray(b"v"))]
    pairs = [("k",), ("k", "v", "w"), "ab", "abc", ["k", "v"], 5, None]
    given = [{"metadata": (pair,)} for pair in (*keys, *values, *binary, *pairs)]
    given += [{"metadata": ()}, {"metadata": (("k", "v"), ("K", "v"))}]
    given += [{"compression": each} for each in (*grpc.Compression, 0, 1, 7, "", "gzip", [])]
    given += [{"credentials": each} for each in (grpc.access_token_call_credentials("t"), "mine", 0)]
    nothing = Arguments(None, None, None, None, None)
    with grpc.insecure_channel(NOWHERE) as channel:
        method = channel.unary_unary("/a.Service/Method")
        found = {repr(each): bool(nothing._replace(**each).are_rejected) for each in given}
        assert found == {repr(each): rejects(method, each) for each in given}
    assert set(found.values()) == {True, False}


def rejects(method, given):
    with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
        return method.future(b"", **given).code() is grpc.StatusCode.INTERNAL
    return True
