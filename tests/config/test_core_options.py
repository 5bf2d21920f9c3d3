"""Options in grpcio's form, and those that limit a core channel to one attempt."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grpc_backoff.config.core_options import (
    CORE_LIMIT_SLACK,
    attempt_options,
    core_traits,
    first_values,
    keepalive_options,
    key_text,
    milliseconds,
    resolver_configures,
    spreads_calls,
    typed_pairs,
)
from grpc_backoff.decide.connections.dial_times import CORE_JITTER
from grpc_backoff.policy.presets import CONNECT


def test_one_attempt():
    """CB-1, CB-3: the core's own time limit, within which it does not redial, is slightly longer than the attempt's."""
    given = dict(attempt_options(CONNECT, 20.0, spreads=False))
    limit = round((20 + CORE_LIMIT_SLACK) * 1000)
    assert given["grpc.min_reconnect_backoff_ms"] == limit
    assert given["grpc.initial_reconnect_backoff_ms"] * (1 + CORE_JITTER) == pytest.approx(limit, abs=1)


def test_the_cores_own_gaps_grow():
    """CB-12: if the process is too late to end an attempt, the core's gaps grow from its limit to the policy's cap."""
    for limit in (0.5, 20.0, 144.0):
        given = dict(attempt_options(CONNECT, limit, spreads=False))
        assert "grpc.testing.fixed_reconnect_backoff_ms" not in given
        assert given["grpc.max_reconnect_backoff_ms"] == max(120_000, given["grpc.initial_reconnect_backoff_ms"])


def test_several_connections():
    """CH-8: with round_robin, the core's own schedule follows the policy as closely as possible."""
    options = dict(attempt_options(CONNECT, 20.0, spreads=True))
    assert options["grpc.initial_reconnect_backoff_ms"] == 1000
    assert options["grpc.max_reconnect_backoff_ms"] == 120_000
    assert options["grpc.min_reconnect_backoff_ms"] == 20_150


@pytest.mark.parametrize(
    ("given", "slower", "expected"),
    [(10, 4, 40), (2**30, 4, 2**31 - 1), (2**31 - 1, 2, None), (0, 2, None), ("10", 2, None), (None, 2, None)],
)
def test_rarer_pings(given, slower, expected):
    """CH-8: pings become rarer within the core's integers; where the core sends none, nothing changes."""
    key = "grpc.keepalive_time_ms"
    made = keepalive_options([(key.encode(), given), (key, 5)] if given is not None else [], slower)
    assert made == (() if expected is None else ((key, expected),))


@pytest.mark.parametrize("limit", [float("inf"), 1e12])
def test_what_the_core_cannot_take(limit):
    """CH-9: a limit that is too large for the core's integers is reduced to the largest of them."""
    policy = replace(CONNECT, min_connect_timeout=1e9)
    assert dict(attempt_options(policy, limit, spreads=False))["grpc.min_reconnect_backoff_ms"] == 2**31 - 1


@pytest.mark.parametrize(
    ("target", "options", "spreads"),
    [
        ("localhost:1", [], False),
        *((f"{scheme}:///service", [], True) for scheme in ("xds", "google-c2p", "google-c2p-experimental")),
        ("localhost:1", [("grpc.lb_policy_name", "round_robin")], True),
        ("localhost:1", [("grpc.lb_policy_name", "pick_first")], False),
        ("localhost:1", [("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')], True),
        ("localhost:1", [("grpc.service_config", '{"loadBalancingConfig": [{"pick_first": {}}]}')], False),
        ("localhost:1", [("grpc.service_config", '{"loadBalancingPolicy": "ROUND_ROBIN"}')], True),
        ("localhost:1", [(b"grpc.service_config", b'{"loadBalancingPolicy": "round_robin"}')], True),
        ("localhost:1", [("grpc.service_config", '{"loadBalancingPolicy": 5}')], False),
        ("localhost:1", [("grpc.service_config", '{"loadBalancingConfig": [{"new": {}}, {"pick_first": {}}]}')], False),
        (
            "localhost:1",
            [("grpc.service_config", '{"loadBalancingConfig": [{"grpclb": {}}, {"pick_first": {}}]}')],
            True,
        ),
        (
            "localhost:1",
            [("grpc.lb_policy_name", "round_robin"), ("grpc.service_config", '{"loadBalancingPolicy": "pick_first"}')],
            False,
        ),
        ("localhost:1", [("grpc.service_config", "not json")], False),
        ("localhost:1", [("grpc.service_config", '{"loadBalancingConfig": 3}')], False),
    ],
)
def test_who_spreads_calls(target, options, spreads):
    """CB-3, CH-8: with round_robin or xDS, the core keeps several connections, and otherwise only one."""
    assert spreads_calls(target, first_values(options)) is spreads


@pytest.mark.parametrize(
    ("target", "options", "configures"),
    [
        ("localhost:1", [], False),
        ("localhost:1", [("grpc.service_config", "{}")], False),
        ("localhost:1", [("grpc.service_config_disable_resolution", 1)], False),
        ("localhost:1", [("grpc.service_config_disable_resolution", 0)], True),
        *((f"{scheme}:///service", [], True) for scheme in ("xds", "google-c2p", "google-c2p-experimental")),
    ],
)
def test_whether_the_resolver_sends_a_service_config(target, options, configures):
    """CH-8: a resolver sends a service config only if it is asked to, or with xDS."""
    assert resolver_configures(target, first_values(options)) is configures


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, 1), (0.0001, 1), (1.0, 1000), (1e9, 2**31 - 1), (float("inf"), 2**31 - 1)]
)
def test_milliseconds(seconds, expected):
    """CH-9: a duration in milliseconds never exceeds the range of the core's integers."""
    assert milliseconds(seconds) == expected


def test_first_values():
    """CH-9: if a key occurs twice, as text or bytes, the first value wins; pairs may be lists."""
    assert first_values([(b"grpc.x", 1), ("grpc.y", 2), ["grpc.x", 3], (b"grpc.y", 4)]) == {"grpc.x": 1, "grpc.y": 2}
    assert first_values([]) == {}


@pytest.mark.parametrize(("key", "text"), [("grpc.x", "grpc.x"), (b"grpc.x", "grpc.x"), (b"\xff", "\ufffd")])
def test_key_text(key, text):
    """CH-9: a key in bytes equals the same key as text, and invalid UTF-8 is not an error."""
    assert key_text(key) == text


def test_options_are_known_by_values_and_types():
    """CH-10: `typed_pairs` distinguishes equal values of different types; for unusual options it returns None."""
    known = [typed_pairs([("a", value)]) for value in (1, 1.0, True, "1", b"1")]
    assert len(set(known)) == len(known)
    assert typed_pairs((("a", 1), ("b", 2))) == typed_pairs([("a", 1), ("b", 2)])
    assert [typed_pairs([each]) for each in (["a", 1], ("a",), ("a", object()), (1, 1), ("a", [1]), None)] == [None] * 6


def config(**content):
    return ("grpc.service_config", json.dumps(content))


@pytest.mark.parametrize(
    ("target", "options", "repeats"),
    [
        ("a:1", (), True),
        ("a:1", (config(methodConfig=[{"name": [{}], "waitForReady": True}]),), True),
        ("a:1", (config(methodConfig=[{"name": [{}], "retryPolicy": {}}]),), False),
        ("a:1", (("grpc.enable_retries", 0),), False),
        ("a:1", (("grpc.lb_policy_name", "round_robin"),), False),
        ("a:1", (("grpc.service_config_disable_resolution", 0),), False),
        ("xds:///a", (), False),
    ],
)
def test_whether_the_core_repeats_calls(target, options, repeats):
    """CB-16: the core repeats unsent calls, unless its policies do, it is told not to, or it spreads its calls."""
    assert core_traits(target, options).repeats is repeats


def test_values_that_are_equal():
    """CH-8: what options mean does not depend on those of an earlier channel: grpcio takes 9000.0 for a pointer."""
    for value, pings in [(9000.0, False), (9000, True), (9000.0, False)]:
        assert core_traits("a:1", (("grpc.keepalive_time_ms", value),)).pings is pings
