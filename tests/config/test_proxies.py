"""When an HTTP proxy applies to a host, as in grpcio's core."""

from __future__ import annotations

import grpc
import pytest

from grpc_backoff.config.proxies import is_proxied, proxy_applies

PROXY = "http://proxy.invalid:3128"
UNREACHABLE = "127.0.0.1:1"
"""An address at which nothing listens."""


@pytest.mark.parametrize(
    ("options", "environment", "applies"),
    [
        *(({}, {name: PROXY}, True) for name in ("grpc_proxy", "https_proxy", "http_proxy")),
        ({}, {}, False),
        # The first that is set applies, and an empty one means no proxy.
        ({}, {"grpc_proxy": "", "http_proxy": PROXY}, False),
        ({"grpc.http_proxy": PROXY}, {}, True),
        ({"grpc.http_proxy": PROXY.encode()}, {}, True),
        ({"grpc.http_proxy": ""}, {"http_proxy": PROXY}, False),
        ({"grpc.http_proxy": b""}, {"http_proxy": PROXY}, False),
        ({"grpc.http_proxy": 1}, {"http_proxy": PROXY}, True),
        ({"grpc.enable_http_proxy": 0}, {"http_proxy": PROXY}, False),
        # The core also has a proxy for addresses, which that option does not turn off.
        ({"grpc.enable_http_proxy": 0}, {"GRPC_ADDRESS_HTTP_PROXY": "192.0.2.1:3128"}, True),
        ({"grpc.address_http_proxy": "192.0.2.1:3128"}, {}, True),
    ],
)
def test_which_applies(options, environment, applies):
    """PO-6: options and the environment name a proxy, as in the core."""
    assert proxy_applies("a.example", options, environment) is applies


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


def says_core(target, **environment):
    """Return what plain grpcio says when it cannot connect."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
        with channel, pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/shop.Orders/Place")(b"", timeout=30)
    return error.value.details()


@pytest.mark.parametrize(
    ("entry", "target", "direct"),
    [
        ("a.invalid", "a.invalid:2", True),
        ("a.invalid", "b.a.invalid:2", True),
        (".a.invalid", "a.invalid:2", True),
        ("A.invalid", "a.invalid:2", True),
        ("b.invalid, a.invalid", "a.invalid:2", True),
        ("127.0.0.1", "127.0.0.1:2", True),
        ("127.0.0.0/8", "127.0.0.1:2", True),
        ("127.0.0.0/8", "localhost:2", False),
        ("::1", "[::1]:2", True),
        ("[::1]", "[::1]:2", False),
        ("*", "a.invalid:2", False),
        ("*.a.invalid", "b.a.invalid:2", False),
        ("a.invalid:2", "a.invalid:2", False),
        ("a.invalid.", "a.invalid:2", False),
    ],
)
def test_the_core_agrees(entry, target, direct):
    """PO-6: grpcio's core reads `no_proxy` as this module and the page about DNS and proxies say."""
    environment = {"http_proxy": f"http://{UNREACHABLE}", "no_proxy": entry}
    host = target.removesuffix(":2").strip("[]")

    assert (UNREACHABLE not in says_core(target, **environment)) is direct
    assert proxy_applies(host, {}, environment) is not direct


@pytest.mark.parametrize(
    ("name", "url", "applies"),
    [
        ("http_proxy", f"http://{UNREACHABLE}", True),
        ("http_proxy", f"HTTP://{UNREACHABLE}", True),
        ("http_proxy", f"https://{UNREACHABLE}", False),
        ("http_proxy", f"socks5://{UNREACHABLE}", False),
        ("http_proxy", UNREACHABLE, False),
        ("HTTP_PROXY", f"http://{UNREACHABLE}", False),
    ],
)
def test_which_proxies_the_core_uses(name, url, applies):
    """PO-6: the core uses a proxy only if its URL begins with `http:`, and reads no variables in capitals."""
    assert (UNREACHABLE in says_core("localhost:2", **{name: url})) is applies
    assert proxy_applies("localhost", {}, {name: url}) is applies


@pytest.mark.parametrize(
    ("target", "proxied"),
    [
        ("a.example:443", True),
        ("dns:///a.example", True),
        ("ipv4:192.0.2.1:443", True),
        ("[::1]:443", True),
        ("b.example:443", False),
        ("unix:/run/a.sock", False),
        ("ipv4:192.0.2.1:443,192.0.2.2:443", False),
        ("xds:///a.example", False),
    ],
)
def test_which_targets(monkeypatch, target, proxied):
    """CH-4: an error says that a proxy applies only where that is certain."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "b.example")
    assert not is_proxied(target, ())
    assert is_proxied(target, [("grpc.http_proxy", PROXY)]) is proxied
    monkeypatch.setenv("http_proxy", PROXY)
    assert is_proxied(target, ()) is proxied
    assert not is_proxied(target, [("grpc.enable_http_proxy", 0)])
