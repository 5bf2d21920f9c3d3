"""With what the connectors of both APIs make each attempt's channel of grpcio's core."""

from __future__ import annotations

import json

import grpc
import pytest

from grpc_backoff.engine.core_connector import BaseConnector
from grpc_backoff.policy.presets import CONNECT

RETRIES = ("grpc.enable_retries", 0)


def config(**content):
    return ("grpc.service_config", json.dumps(content))


@pytest.mark.parametrize(
    ("target", "options", "guards"),
    [
        ("a:1", (), True),
        ("a:1", (config(methodConfig=[{"name": [{}], "waitForReady": True}]),), True),
        ("a:1", (config(methodConfig=[{"name": [{}], "retryPolicy": {}}]),), False),
        ("a:1", (RETRIES,), False),
        ("a:1", (("grpc.lb_policy_name", "round_robin"),), False),
        ("a:1", (("grpc.service_config_disable_resolution", 0),), False),
        ("xds:///a", (), False),
    ],
)
def test_the_guard(target, options, guards):
    """CB-16: the guard turns the core's retries off, unless policies of the core, or several connections, need them."""
    connector = BaseConnector(target, None, options, None, CONNECT, home=None)
    connector.guard_next()
    assert connector.guards is guards
    assert (RETRIES in connector._options_for(1.0)) is (guards or RETRIES in options)


class Connector(BaseConnector):
    """A connector whose channels are only what they were made with."""

    def make_channel(self, made_with):
        return made_with


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
    connector = Connector("a:1", credentials, options, None, CONNECT, home="home")
    connector.familiar = familiar
    made_with = "a:1", connector._options_for(5.0), None
    assert connector.channel_for(5.0) == (made_with, None, ("home", made_with) if spare else None)


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
        connector = Connector(target, None, options, compression, CONNECT, home=home)
        connector.familiar, connector.guards = True, guards
        keys.add(connector.channel_for(5.0)[2])
    assert len(keys) == 6
