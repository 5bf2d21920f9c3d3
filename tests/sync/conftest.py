"""Channels for the drop-in tests: grpc's, ours, and ours with retries; each is fresh or READY."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace

import grpc
import pytest

import grpc_backoff
from grpc_backoff.grpcio.sync_private import _conditions
from tests.echo import EchoStub

RETRY = "retry: 3, delay: 10ms"
RETRYING = SimpleNamespace(
    insecure_channel=partial(grpc_backoff.insecure_channel, retry=RETRY),
    secure_channel=partial(grpc_backoff.secure_channel, retry=RETRY),
)


@pytest.fixture(params=[grpc, grpc_backoff, RETRYING], ids=["plain", "ours", "retrying"])
def kind(request):
    """The module, or namespace, that makes the channels: grpc's, ours, or ours with retries for every call."""
    return request.param


@pytest.fixture
def channel(kind, phase, server):
    """A channel to the server, of each kind and in each phase."""
    with kind.insecure_channel(server.target) as channel:
        if phase == "ready":
            grpc.channel_ready_future(channel).result(20)
        yield channel


@pytest.fixture
def stub(channel):
    """The generated stub on the fixture `channel`."""
    return EchoStub(channel)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """TH-5: check that none of this library's threads is left after the last close."""
    yield
    end = time.monotonic() + 5
    while time.monotonic() < end and ours():
        time.sleep(0.01)
    assert ours() == []


def ours():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("grpc-backoff")]


@pytest.fixture
def locked():
    """Return a function that locks a connection's channel in another thread, as one that begins a call does.

    It returns a function that unlocks it.
    """
    ends, threads = threading.Event(), []

    def lock(connection):
        has_begun = threading.Event()

        def begin():
            (condition,) = _conditions(connection.channel)
            with condition:
                has_begun.set()
                ends.wait(60)

        threads.append(threading.Thread(target=begin))
        threads[-1].start()
        assert has_begun.wait(20)
        return ends.set

    yield lock
    ends.set()
    for thread in threads:
        thread.join(20)
