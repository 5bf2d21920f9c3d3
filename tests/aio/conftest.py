"""Channels of three kinds, plain, ours and ours with retries, before and after READY: for the drop-in tests."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import grpc.aio
import pytest

import grpc_backoff.aio
from tests.aio.service import Scripted
from tests.echo import EchoStub, serving

RETRY = "retry: 3, delay: 10ms"
RETRYING = SimpleNamespace(
    insecure_channel=partial(grpc_backoff.aio.insecure_channel, retry=RETRY),
    secure_channel=partial(grpc_backoff.aio.secure_channel, retry=RETRY),
)


@pytest.fixture(params=[grpc.aio, grpc_backoff.aio, RETRYING], ids=["plain", "ours", "retrying"])
def kind(request):
    """What makes the channels: grpc's own module, ours in its place, or ours with retries for every call."""
    return request.param


@pytest.fixture(params=["fresh", "ready"])
def phase(request):
    """When the first call is made: on a fresh channel, where it has to wait, or once there is a connection."""
    return request.param


@pytest.fixture
async def server():
    """A running server; its `target` is where it listens."""
    servicer = Scripted()
    async with serving(servicer) as port:
        servicer.target = f"127.0.0.1:{port}"
        yield servicer


@pytest.fixture
async def channel(kind, phase, server):
    """A channel of each kind to the server, in either phase."""
    async with kind.insecure_channel(server.target) as channel:
        if phase == "ready":
            await channel.channel_ready()
        yield channel


@pytest.fixture
def stub(channel):
    """The generated stub on that channel."""
    return EchoStub(channel)
