"""When an HTTP proxy applies to a host, as in grpcio's core."""

from __future__ import annotations

import pytest

from grpc_backoff.config.proxies import proxy_applies

PROXY = "http://proxy.invalid:3128"


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_environment(name):
    """PO-6: each of the core's variables names a proxy."""
    assert proxy_applies("a.example", {}, {name: PROXY})
    assert not proxy_applies("a.example", {}, {})


def test_first_applies():
    """PO-6: the first that is set applies, and an empty one means no proxy."""
    assert not proxy_applies("a.example", {}, {"grpc_proxy": "", "http_proxy": PROXY})
    assert proxy_applies("a.example", {"grpc.http_proxy": PROXY}, {})
    assert not proxy_applies("a.example", {"grpc.http_proxy": ""}, {"http_proxy": PROXY})


def test_turned_off():
    """PO-6: with `grpc.enable_http_proxy=0`, no proxy applies."""
    assert not proxy_applies("a.example", {"grpc.enable_http_proxy": 0}, {"http_proxy": PROXY})


def test_proxy_for_addresses():
    """PO-6: the core also has a proxy for addresses, which cannot be turned off by `grpc.enable_http_proxy`."""
    assert proxy_applies("a.example", {"grpc.enable_http_proxy": 0}, {"GRPC_ADDRESS_HTTP_PROXY": "192.0.2.1:3128"})
    assert proxy_applies("a.example", {"grpc.address_http_proxy": "192.0.2.1:3128"}, {})


@pytest.mark.parametrize(
    ("spared", "host", "applies"),
    [
        ("a.example", "a.example", False),
        ("A.example", "a.EXAMPLE", False),
        ("b.example,a.example", "a.example", False),
        ("b.example, a.example", "a.example", False),
        ("example", "a.example", False),
        (".example", "a.example", False),
        ("a.example", "ba.example", True),
        ("", "a.example", True),
        (",", "a.example", True),
        ("192.0.2.0/24", "192.0.2.9", False),
        ("192.0.2.0/24", "192.0.3.9", True),
        ("192.0.2.9", "192.0.2.9", False),
        ("2001:db8::/32", "2001:db8::1", False),
        ("192.0.2.0/24", "a.example", True),
    ],
)
def test_spared_hosts(spared, host, applies):
    """PO-6: hosts, their domains and their networks in `no_proxy` are dialled directly."""
    assert proxy_applies(host, {}, {"http_proxy": PROXY, "no_proxy": spared}) is applies


def test_which_list_of_spared_hosts():
    """PO-6: `no_grpc_proxy` replaces `no_proxy`."""
    environment = {"http_proxy": PROXY, "no_grpc_proxy": "b.example", "no_proxy": "a.example"}

    assert proxy_applies("a.example", {}, environment)
    assert not proxy_applies("b.example", {}, environment)
