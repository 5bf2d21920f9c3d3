"""The classes that `grpc_backoff.install` puts in the place of those of grpc's channels (TH-7).

`tests/test_installation.py` tests what they are for.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc._channel
import grpc.aio._channel
import pytest

import grpc_backoff
from tests.echo import EchoStub, Message

MODULES = pytest.mark.parametrize("module", [grpc._channel, grpc.aio._channel], ids=["threads", "asyncio"])


async def answer(channel):
    """Make a call and close the channel; return the response."""
    if isinstance(channel, grpc.aio.Channel):
        async with channel:
            return (await EchoStub(channel).Unary(Message(text="a"), timeout=20)).text
    with channel:
        return (await asyncio.to_thread(EchoStub(channel).Unary, Message(text="a"), timeout=20)).text


@MODULES
@pytest.mark.parametrize("derived", ["before", "during"])
async def test_a_derived_class(server, module, derived):
    """CH-1, TH-7: a class that another library derives from grpcio's makes channels of its own kind."""

    def derive():
        return type("Theirs", (module.Channel,), {})

    theirs = derive() if derived == "before" else None
    with grpc_backoff.installed():
        theirs = theirs or derive()
        channel = theirs(server.target, (), None, None, *([None] if module is grpc.aio._channel else []))
        assert type(channel) is theirs
        assert await answer(channel) == "a"


@MODULES
async def test_channels_of_before(server, module):
    """CH-1, TH-7: grpcio's channels stay instances of the class in its module, so that they keep making stubs."""
    api = grpc if module is grpc._channel else grpc.aio
    channel = api.insecure_channel(server.target)
    with grpc_backoff.installed():
        assert isinstance(channel, module.Channel)
        assert not isinstance(object(), module.Channel)
        assert await answer(channel) == "a"
