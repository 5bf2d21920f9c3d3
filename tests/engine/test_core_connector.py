"""With what the connectors of both APIs make each attempt's channel of grpcio's core."""

from __future__ import annotations

import grpc
import pytest

from grpc_backoff.config.core_options import CoreArguments
from grpc_backoff.engine.core_connector import BaseConnector
from grpc_backoff.engine.spares import SpareKey
from tests.setups import pool_setup

RETRIES = ("grpc.enable_retries", 0)


def test_the_guard():
    """CB-16: the guard turns the core's retries off."""
    connector = BaseConnector(pool_setup("a:1"), "", None)
    assert RETRIES not in connector._options_for(1.0)
    connector.guards = True
    assert RETRIES in connector._options_for(1.0)


class Connector(BaseConnector):
    """A connector whose channels are only what they were made with."""

    def make_channel(self, arguments):
        return arguments


@pytest.mark.parametrize(
    ("options", "credentials", "familiar", "spare"),
    [
        ((), None, True, True),
        ((), None, False, False),
        ((), grpc.local_channel_credentials(), True, False),
        ((("grpc.use_local_subchannel_pool", 1),), None, True, False),
        ((("grpc.lb_policy_name", "round_robin"),), None, True, False),
        ((("a.list", [1]),), None, True, False),
    ],
)
def test_whose_channels_may_be_spare(options, credentials, familiar, spare):
    """SH-8: those of a series without credentials, unless the channel shares nothing, or the core spreads its calls."""
    connector = Connector(pool_setup("a:1", options, credentials), "", "home")
    connector.familiar = familiar
    arguments = CoreArguments("a:1", connector._options_for(5.0), None)
    assert connector.channel_for(5.0) == (arguments, None, SpareKey("home", arguments) if spare else None)


def test_the_key_of_a_spare_channel():
    """SH-8: everything that the core's channel is made with, and where it lives."""
    keys = set()
    for target, options, compression, home, guards in [
        ("a:1", (), None, "home", False),
        ("a:2", (), None, "home", False),
        ("a:1", (("a", 1),), None, "home", False),
        ("a:1", (), grpc.Compression.Gzip, "home", False),
        ("a:1", (), None, "another", False),
        ("a:1", (), None, "home", True),
    ]:
        connector = Connector(pool_setup(target, options, None, compression), "", home)
        connector.familiar, connector.guards = True, guards
        keys.add(connector.channel_for(5.0)[2])
    assert len(keys) == 6
