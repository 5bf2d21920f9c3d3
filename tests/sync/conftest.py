"""Channels of three kinds, plain, ours and ours with retries, before and after READY: for the drop-in tests."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace

import grpc
import pytest

import grpc_backoff
from tests.echo import EchoStub
from tests.sync.service import place

RETRY = "retry: 3, delay: 10ms"
RETRYING = SimpleNamespace(
    insecure_channel=partial(grpc_backoff.insecure_channel, retry=RETRY),
    secure_channel=partial(grpc_backoff.secure_channel, retry=RETRY),
)


@pytest.fixture(params=[grpc, grpc_backoff, RETRYING], ids=["plain", "ours", "retrying"])
def kind(request):
    """What makes the channels: grpc's own module, ours in its place, or ours with retries for every call."""
    return request.param


@pytest.fixture(params=["fresh", "ready"])
def phase(request):
    """When the first call is made: on a fresh channel, where it has to wait, or once there is a connection."""
    return request.param


@pytest.fixture
def server():
    """A running server's place; its `target` is where it listens."""
    with place() as made:
        yield made


@pytest.fixture
def channel(kind, phase, server):
    """A channel of each kind to the server, in either phase."""
    with kind.insecure_channel(server.target) as channel:
        if phase == "ready":
            grpc.channel_ready_future(channel).result(20)
        yield channel


@pytest.fixture
def stub(channel):
    """The generated stub on that channel."""
    return EchoStub(channel)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """TH-5: within a second of the last close no thread of ours is left."""
    yield
    end = time.monotonic() + 5
    while time.monotonic() < end and ours():
        time.sleep(0.01)
    assert ours() == []


def ours():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("grpc-backoff")]
