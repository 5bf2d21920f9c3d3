"""The class that `grpc_backoff.install` puts in the place of that of grpc's channels (TH-7).

`tests/test_installation.py` tests what it is for.
"""

from __future__ import annotations

import grpc
import grpc._channel
import pytest

import grpc_backoff
from tests.echo import EchoStub, Message


@pytest.mark.parametrize("derived", ["before", "during"])
def test_a_derived_class(server, derived):
    """TH-7: a class that another library derives from grpcio's makes channels of its own kind."""

    def derive():
        class Theirs(grpc._channel.Channel):
            pass

        return Theirs

    theirs = derive() if derived == "before" else None
    with grpc_backoff.installed():
        theirs = theirs or derive()
        with theirs(server.target, (), None, None) as channel:
            assert type(channel) is theirs
            assert EchoStub(channel).Unary(Message(text="a"), timeout=20).text == "a"


def test_channels_of_before(server):
    """TH-7: grpcio's channels stay instances of the class in its module."""
    with grpc.insecure_channel(server.target) as channel, grpc_backoff.installed():
        assert isinstance(channel, grpc._channel.Channel)
        assert not isinstance(object(), grpc._channel.Channel)
