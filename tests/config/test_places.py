"""What the slots of a channel dial."""

from __future__ import annotations

import json
import socket

import pytest

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.core_options import first_values
from grpc_backoff.config.places import (
    Place,
    dial_options,
    endpoint_target,
    endpoints,
    read_balancing,
    read_place,
)
from grpc_backoff.config.proxies import DIRECT
from grpc_backoff.config.service_config import read_json
from grpc_backoff.config.target import Address, parse_target
from grpc_backoff.policy.pooling import PoolPolicy
from tests.texts import begins

AROUND = PoolPolicy(round_robin=True)
BY_NAME = ("grpc.lb_policy_name", "round_robin")
PROXY = "http://proxy.invalid:3128"


@pytest.fixture(autouse=True)
def no_proxy_from_outside(monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy", "GRPC_ADDRESS_HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def config(**content):
    return ("grpc.service_config", json.dumps(content))


def balancing(options):
    named = first_values(options)
    return read_balancing(read_json(named.get("grpc.service_config", "{}")), named)


@pytest.mark.parametrize(
    "options",
    [
        [BY_NAME],
        [("grpc.lb_policy_name", b"round_robin")],
        [config(loadBalancingConfig=[{"round_robin": {}}])],
        [config(loadBalancingConfig=[{"round_robin": {}}], healthCheckConfig={"serviceName": ""})],
        [config(loadBalancingConfig=[{"unheard_of": {}}, {"round_robin": {}}, {"pick_first": {}}])],
        [config(loadBalancingPolicy="ROUND_ROBIN")],
        [config(methodConfig=[]), BY_NAME],
        [config(loadBalancingPolicy="round_robin"), ("grpc.lb_policy_name", "pick_first")],
    ],
)
def test_round_robin(options):
    """PO-6: the service config or `grpc.lb_policy_name` asks for round_robin, with the core's precedence."""
    assert balancing(options)[0]


@pytest.mark.parametrize(
    "options",
    [
        [],
        [("grpc.lb_policy_name", "pick_first")],
        [("grpc.lb_policy_name", 3)],
        [("grpc.lb_policy_name", "pick_first"), BY_NAME],
        [config(loadBalancingConfig=[{"weighted_round_robin": {}}, {"round_robin": {}}])],
        [config(loadBalancingConfig=[{"outlier_detection_experimental": {}}]), BY_NAME],
        [("grpc.service_config", "{"), BY_NAME],
        [("grpc.service_config", "[]"), BY_NAME],
    ],
)
def test_policies_of_the_core(options):
    """PO-5: other policies, and service configs that the core rejects, stay with the core."""
    assert not balancing(options)[0]


@pytest.mark.parametrize(
    ("target", "name", "authority"),
    [
        ("a.example:50051", ("a.example", 50051), "a.example:50051"),
        ("a.example", ("a.example", 443), "a.example"),
        ("dns:a.example:50051", ("a.example", 50051), "a.example:50051"),
        ("dns:///a.example:50051", ("a.example", 50051), "a.example:50051"),
    ],
)
def test_names(target, name, authority):
    """PO-6, PO-7: a name is resolved here, with port 443 if there is none, and stays the authority."""
    assert read_place(target, AROUND, ()) == Place(AROUND, None, name, authority)


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("ipv4:127.0.0.1:1,127.0.0.2:2", ("127.0.0.1:1", "127.0.0.2:2")),
        ("ipv4:127.0.0.1:1,127.0.0.1:1", ("127.0.0.1:1",)),
        ("ipv6:[::1]:1,[::2]:1", ("[::1]:1", "[::2]:1")),
        ("127.0.0.1:1", ("127.0.0.1:1",)),
        ("dns:///[::1]:1", ("[::1]:1",)),
    ],
)
def test_addresses(target, addresses):
    """PO-6: a target that lists addresses needs no resolution."""
    place = read_place(target, AROUND, ())

    assert (place.policy, place.addresses, place.name) == (AROUND, addresses, None)


@pytest.mark.parametrize(
    "target",
    [
        *("xds:///a.example", "dns://192.0.2.1/a.example", "unix:/tmp/socket", "unix-abstract:socket"),
        *("ipv4:127.0.0.1", "ipv6:::1", "a.example:http", ""),
    ],
)
def test_targets_of_the_core(target):
    """PO-5: a target that only the core can resolve is dialled by the core, with its own round_robin."""
    assert read_place(target, AROUND, ()) == Place(PoolPolicy())
    assert read_place(target, PoolPolicy(resolve_every=1.0), ()) == Place(PoolPolicy())


def test_proxy(monkeypatch):
    """PO-6: where an HTTP proxy applies, the core connects, and resolves nothing."""
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("no_proxy", "b.example,127.0.0.1")

    assert not read_place("a.example:1", AROUND, ()).policy.round_robin
    assert read_place("b.example:1", AROUND, ()).policy.round_robin
    assert read_place("ipv4:127.0.0.1:1", AROUND, ()).policy.round_robin
    assert not read_place("ipv4:127.0.0.1:1,127.0.0.2:1", AROUND, ()).policy.round_robin
    assert read_place("a.example:1", AROUND, (("grpc.enable_http_proxy", 0),)).policy.round_robin


def test_resolver_that_configures():
    """PO-5: if the core may find a service config in DNS, it resolves the name."""
    options = (("grpc.service_config_disable_resolution", 0),)

    assert not read_place("a.example:1", AROUND, options).policy.round_robin


def test_one_slot():
    """PO-5, PO-7: without round_robin, a name is resolved only for `resolve_every`, and an address never is."""
    assert read_place("a.example:1", PoolPolicy(), ()) == Place(PoolPolicy())
    every = PoolPolicy(resolve_every=2.0)
    assert read_place("a.example:1", every, ()).name == ("a.example", 1)
    place = read_place("127.0.0.1:1", every, ())
    assert (place.policy, place.addresses, place.name) == (PoolPolicy(), None, None)


@pytest.mark.parametrize("option", ["grpc.default_authority", "grpc.ssl_target_name_override"])
def test_given_authority(option):
    """PO-6: an authority from the options, or the core's from a name for TLS, is not replaced."""
    given = ((option, "b.example"),)
    place = read_place("a.example:1", AROUND, given)

    assert place.authority == ""
    assert dict(dial_options(given, place)[1]) == {"grpc.enable_http_proxy": 0, option: "b.example"}


def test_options_of_an_endpoint():
    """PO-6: an endpoint's core channel gets everything but the policy for several connections and a proxy."""
    options = (
        ("grpc.primary_user_agent", "x"),
        BY_NAME,
        config(loadBalancingConfig=[{"round_robin": {}}], loadBalancingPolicy="x", methodConfig=[{"timeout": "1s"}]),
    )

    whole, alone = dial_options(options, Place(AROUND, authority="a.example:1"))
    assert whole == options
    assert alone == (
        ("grpc.enable_http_proxy", 0),
        ("grpc.primary_user_agent", "x"),
        config(methodConfig=[{"timeout": "1s"}]),
        ("grpc.default_authority", "a.example:1"),
    )


def test_service_config_without_a_policy():
    """CH-9: a service config without a policy is passed on as it was written."""
    written = ("grpc.service_config", '{ "methodConfig" : [] }')

    assert written in dial_options((written,), Place(AROUND))[1]


def test_endpoints():
    """PO-6: an address becomes an endpoint, and that becomes a target that the core does not resolve."""
    zoned = Address(socket.AF_INET6, ("fe80::1", 1, 0, 2))
    found = endpoints([Address(socket.AF_INET, ("192.0.2.1", 1)), zoned, zoned])

    assert found == ("192.0.2.1:1", "[fe80::1%2]:1")
    assert [endpoint_target(each) for each in found] == ["ipv4:192.0.2.1:1", "ipv6:[fe80::1%252]:1"]
    assert str(parse_target(endpoint_target(found[0])).addresses[0]) == found[0]


# Health (RO-1).

CHECKED = {"healthCheckConfig": {"serviceName": "shop.Orders"}}


@pytest.mark.parametrize(
    ("options", "service"),
    [
        ([config(**CHECKED)], "shop.Orders"),
        ([config(**CHECKED), BY_NAME], "shop.Orders"),
        ([config(loadBalancingConfig=[{"pick_first": {}}], **CHECKED)], "shop.Orders"),
        ([config(healthCheckConfig={"serviceName": ""})], ""),
        ([config(healthCheckConfig={})], None),
        ([config(healthCheckConfig=None)], None),
        ([config(**CHECKED), ("grpc.inhibit_health_checking", 1)], None),
        ([config(**CHECKED), ("grpc.inhibit_health_checking", 0)], "shop.Orders"),
        ([config(loadBalancingConfig=[{"weighted_round_robin": {}}], **CHECKED)], None),
        ([("grpc.service_config", "{")], None),
        ([BY_NAME], None),
        ([], None),
    ],
)
def test_whose_health_is_watched(options, service):
    """RO-1: the service config names the service; without a name, no health is watched, as in gRPC."""
    assert balancing(options)[1] == service


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("orders", "healthCheckConfig='orders': expected an object"),
        ([], "healthCheckConfig="),
        ({"serviceName": 3}, "healthCheckConfig.serviceName=3: expected the name of a service"),
        ({"serviceName": "\ud800"}, "healthCheckConfig.serviceName='\\ud800': expected the name of a service"),
    ],
)
def test_a_bad_health_check_config(value, message):
    """RO-1, CH-10: a `healthCheckConfig` of the wrong type is refused, because the core never sees it."""
    with pytest.raises(OptionError, match=begins(message)):
        balancing([config(healthCheckConfig=value)])


def test_whose_watch_it_is():
    """RO-1: where round_robin or its targets are the core's, so are the health checks."""
    around, first = PoolPolicy(round_robin=True, health_service=""), PoolPolicy(health_service="")
    assert read_place("a.example:1", around, ()).policy == around
    assert read_place("unix:/a", around, ()).policy == PoolPolicy()
    assert read_place("unix:/a", first, ()).policy == first
    assert read_place("xds:a", first, ()).policy == PoolPolicy()


def test_pick_first_with_several_addresses():
    """RO-1: with several literal addresses, pick_first watches nothing: its replacement would dial the first again."""
    first, follows = PoolPolicy(health_service=""), PoolPolicy(health_service="", resolve_every=1.0)
    several = "ipv4:192.0.2.1:1,192.0.2.2:1"
    assert [read_place(several, each, ()).policy for each in (first, follows)] == [PoolPolicy()] * 2
    for one in ("ipv4:192.0.2.1:1", "ipv4:192.0.2.1:1,192.0.2.1:1", "dns:///a.example:1"):
        assert read_place(one, first, ()).policy == first
    assert read_place(several, PoolPolicy(round_robin=True, health_service=""), ()).policy.health_service == ""


def test_the_core_does_not_watch():
    """RO-1: the core gets the service config without `healthCheckConfig`, and everything else as it is."""
    options = (config(methodConfig=[], **CHECKED), ("grpc.a", 1))
    place = Place(PoolPolicy(health_service=""))
    left = (config(methodConfig=[]), ("grpc.a", 1))
    assert dial_options(options, place) == (left, (DIRECT, *left))
    assert dial_options(options[1:], place)[0] == options[1:]
