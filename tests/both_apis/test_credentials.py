"""CH-8: call credentials on both APIs, including those of retried calls."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import weakref

import grpc
import pytest

from grpc_backoff import OptionError
from grpc_backoff.grpcio.private import _SINGLE_USE, for_one_channel
from tests.both_apis.tries import Tries, fails
from tests.certificates import AUTHORITY, client_credentials, server_credentials
from tests.sync.service import ROOT, place

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


def test_compute_engine(served, service, ours, tmp_path):
    """CH-8: credentials that grpcio's core can use for one channel only serve any number of connections."""
    roots = tmp_path / "roots.pem"
    AUTHORITY.cert_pem.write_to_path(str(roots))
    with place(up=False) as silent:
        done = subprocess.run(
            [sys.executable, "-m", "tests.both_apis.compute_engine", ours.name, str(served.port), str(silent.port)],
            cwd=ROOT,
            env=os.environ | {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert service.pairs
    assert all(("authorization", "Bearer token") in pairs for pairs in service.pairs)


def test_compute_engine_before_the_import(ours):
    """CH-8: such credentials are refused if they were made before this library could note what they consist of."""
    for_calls = credentials("a")
    outer = grpc.ChannelCredentials(_SINGLE_USE(for_calls._credentials))
    with pytest.raises(OptionError, match="created after"), ours.channel("localhost:1", credentials=outer):
        pass


def test_compute_engine_is_used():
    """CH-8: the first channel uses the credentials themselves, because the core frees only what a channel has used."""
    made = grpc.compute_engine_channel_credentials(credentials("a"))
    outer = grpc.composite_channel_credentials(made, credentials("b"))
    inner = [for_one_channel(outer)._credentials.parts[1], *(for_one_channel(made)._credentials for _ in range(2))]
    assert inner[0] is made._credentials
    assert len(set(map(id, inner))) == 3
