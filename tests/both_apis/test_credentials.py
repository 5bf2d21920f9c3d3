"""CH-8: call credentials on both APIs, including those of retried calls."""

from __future__ import annotations

import gc
import time
import weakref

import grpc
import pytest

from tests.both_apis.tries import Tries, fails
from tests.certificates import client_credentials, server_credentials
from tests.sync.service import place

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
MADE = weakref.WeakSet()


class Token(grpc.AuthMetadataPlugin):
    """Adds an `authorization` header and counts how often grpc asks for it; fails if it has no token."""

    def __init__(self, token):
        self.token = token
        self.asked = []
        MADE.add(self)

    def __call__(self, context, callback):
        self.asked.append(context.method_name)
        error = None if self.token else RuntimeError("no token")
        callback((("authorization", self.token or ""),), error)


def credentials(token):
    return grpc.metadata_call_credentials(Token(token))


@pytest.fixture(scope="module")
def served():
    """A server with TLS for all tests here, which stops when the core has released the tests' credentials.

    The core frees credentials written in Python in its own thread, which needs the GIL, and grpcio holds the GIL while
    it stops a server. If both happen at the same time, they deadlock. The oldest supported grpcio never frees them.
    """
    with place(Tries(), server_credentials()) as made:
        yield made
        end = time.monotonic() + 1
        while MADE and time.monotonic() < end:
            gc.collect()
            time.sleep(0.01)


@pytest.fixture
def service(served):
    """The service of `served`, with the records of earlier tests cleared."""
    served.servicer.pairs.clear()
    served.servicer.metadata.clear()
    return served.servicer


def test_call_credentials(in_phase, way, served, service):
    """CH-8: the call credentials of both call and channel are sent; if they fail, the call ends with UNAVAILABLE."""
    both = grpc.composite_channel_credentials(client_credentials(), credentials("channel"))
    with in_phase(served.target, credentials=both) as channel:
        assert channel.begin(way, credentials=credentials("call")).outcome().texts == ["a"]
        assert {("authorization", "channel"), ("authorization", "call")} <= set(service.pairs[0])
        assert channel.begin(way, credentials=credentials(None)).outcome().code is UNAVAILABLE


def test_credentials_of_each_attempt(ours, way, served, service):
    """CH-1, CH-8: call credentials are requested again for each attempt."""
    service.behaviours[:] = [fails(), fails()]
    token = Token("secret")
    with ours.channel(served.target, credentials=client_credentials(), retry="retry: 2, delay: 1ms") as channel:
        outcome = channel.begin(way, credentials=grpc.metadata_call_credentials(token)).outcome()
    assert outcome.texts == ["a"]
    assert [metadata["authorization"] for metadata in service.metadata] == ["secret"] * 3
    assert token.asked == [way.partition(".")[0]] * 3


def test_without_tls(kind, in_phase, way, server):
    """CH-1: call credentials are not sent over a plaintext connection."""
    with in_phase(server.target) as channel, pytest.raises(kind.insecure):
        raise channel.begin(way, credentials=credentials("call")).outcome().error
    assert server.servicer.got == []
