"""With what the connectors of both APIs make each attempt's channel of grpcio's core."""

from __future__ import annotations

import json

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
