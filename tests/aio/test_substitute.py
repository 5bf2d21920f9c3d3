"""The class that `grpc_backoff.install` puts in the place of that of grpc.aio's channels.

`tests/test_installation.py` tests what it is for.
"""

from __future__ import annotations

import grpc.aio
import grpc.aio._channel
import pytest

import grpc_backoff
from tests.echo import EchoStub, Message, serving


@pytest.mark.parametrize("derived", ["before", "during"])
async def test_a_derived_class(derived):
    """CH-1: a class that another library derives from grpcio's makes channels of its own kind."""

    def derive():
        class Theirs(grpc.aio._channel.Channel):
            pass

        return Theirs

    theirs = derive() if derived == "before" else None
    with grpc_backoff.installed():
        theirs = theirs or derive()
        async with serving() as port, theirs(f"127.0.0.1:{port}", (), None, None, None) as channel:
            assert type(channel) is theirs
            assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


async def test_channels_of_before():
    """CH-1: grpcio's channels stay instances of the class in its module, so that they keep making stubs."""
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with grpc_backoff.installed():
            assert isinstance(channel, grpc.aio._channel.Channel)
            assert not isinstance(object(), grpc.aio._channel.Channel)
            assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"
