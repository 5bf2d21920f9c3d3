"""Fixtures for the drop-in tests: channels of grpc, of this library, and of the latter with retries; fresh or READY."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import grpc.aio
import pytest

import grpc_backoff.aio
from tests.echo import EchoStub

RETRY = "retry: 3, delay: 10ms"
RETRYING = SimpleNamespace(
    insecure_channel=partial(grpc_backoff.aio.insecure_channel, retry=RETRY),
    secure_channel=partial(grpc_backoff.aio.secure_channel, retry=RETRY),
)


@pytest.fixture(params=[grpc.aio, grpc_backoff.aio, RETRYING], ids=["plain", "ours", "retrying"])
def kind(request):
    """The module that makes the channels: grpc's own, this library's, or this library's with retries for every call."""
    return request.param


@pytest.fixture
async def channel(kind, phase, server):
    """A channel to the server, of each kind and in both phases."""
    async with kind.insecure_channel(server.target) as channel:
        if phase == "ready":
            await channel.channel_ready()
        yield channel


@pytest.fixture
def stub(channel):
    """The generated stub on the fixture `channel`."""
    return EchoStub(channel)
