"""Channels of both kinds, plain and ours, before and after READY: what the drop-in tests run on."""

from __future__ import annotations

import grpc.aio
import pytest

import grpc_backoff.aio
from tests.aio.service import Scripted
from tests.echo import EchoStub, serving


@pytest.fixture(params=[grpc.aio, grpc_backoff.aio], ids=["plain", "ours"])
def kind(request):
    """The module that makes the channels: grpc's own, or ours in its place."""
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
    """A channel of either kind to the server, in either phase."""
    async with kind.insecure_channel(server.target) as channel:
        if phase == "ready":
            await channel.channel_ready()
        yield channel


@pytest.fixture
def stub(channel):
    """The generated stub on that channel."""
    return EchoStub(channel)
