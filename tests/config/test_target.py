"""Targets in all of gRPC's forms that a socket can be dialled from."""

from __future__ import annotations

import socket

import pytest

from grpc_backoff import OptionError
from grpc_backoff.config.target import Address, parse_target

V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.mark.parametrize(
    ("text", "host", "port", "addresses"),
    [
        ("orders.example:50051", "orders.example", 50051, []),
        ("orders.example", "orders.example", 443, []),
        ("dns:orders.example:50051", "orders.example", 50051, []),
        ("dns:///orders.example:50051", "orders.example", 50051, []),
        ("dns:/orders.example", "orders.example", 443, []),
        ("dns:///b%c3%bccher.example:1", "bücher.example", 1, []),
        ("127.0.0.1:50051", "127.0.0.1", 50051, ["127.0.0.1:50051"]),
        ("dns:///127.0.0.1", "127.0.0.1", 443, ["127.0.0.1:443"]),
        ("[::1]:50051", "::1", 50051, ["[::1]:50051"]),
        ("[::1]", "::1", 443, ["[::1]:443"]),
        ("::1", "::1", 443, ["[::1]:443"]),
        ("ipv4:127.0.0.1:50051", "127.0.0.1", 50051, ["127.0.0.1:50051"]),
        ("ipv4:///127.0.0.1", "127.0.0.1", 443, ["127.0.0.1:443"]),
        ("ipv4:127.0.0.1:1,127.0.0.2:2", "127.0.0.1", 1, ["127.0.0.1:1", "127.0.0.2:2"]),
        ("ipv6:[::1]:1,[::1]:2", "::1", 1, ["[::1]:1", "[::1]:2"]),
        ("ipv6:%5B::1%5D:1", "::1", 1, ["[::1]:1"]),
        ("unix:orders.sock", "localhost", 443, ["unix:orders.sock"]),
        ("unix:/run/orders.sock", "localhost", 443, ["unix:/run/orders.sock"]),
        ("unix:///run/a%20b.sock", "localhost", 443, ["unix:/run/a b.sock"]),
        ("unix-abstract:orders", "localhost", 443, ["unix-abstract:orders"]),
        ("localhost:65535", "localhost", 65535, []),
    ],
)
def test_targets(text, host, port, addresses):
    """CH-8: what a target names, with gRPC's default port; an address needs no resolver."""
    target = parse_target(text)
    assert (target.text, target.host, target.port) == (text, host, port)
    assert [str(address) for address in target.addresses] == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":50051",
        "orders.example:",
        "orders.example:0",
        "orders.example:65536",
        "orders.example:99999999999999999999",
        "orders.example:http",
        "orders.example:５",  # noqa: RUF001 - a digit, and none of ASCII
        "orders.example:-1",
        "[::1",
        "[::1]50051",
        "xds:///orders",
        "google-c2p:///orders",
        "vsock:1:2",
        "dns://8.8.8.8/orders.example",
        "dns://8.8.8.8",
        "ipv4:orders.example:1",
        "ipv4:[::1]:1",
        "ipv4:127.0.0.1:1,",
        "ipv6:127.0.0.1:1",
        "unix:",
        "unix://orders.sock",
        "unix:/run/a%00b",
        "unix-abstract:",
    ],
)
def test_no_targets(text):
    """CH-10: what is no target is an error that shows it and says what is allowed."""
    with pytest.raises(OptionError, match="is not allowed; what can be dialled is") as caught:
        parse_target(text)
    assert (caught.value.key, caught.value.value) == ("target", text)


def test_an_embedded_null_is_no_address():
    """CH-10: a name that no resolver takes is left to the resolver to refuse, as every name is."""
    assert parse_target("a\0b:1").addresses == ()


def test_addresses_of_one_place_are_equal():
    """CH-8: an address is a value."""
    assert Address(V4, ("127.0.0.1", 1)) == parse_target("127.0.0.1:1").addresses[0]
    assert Address(V6, ("::1", 1, 0, 0)) in set(parse_target("ipv6:[::1]:1").addresses)
