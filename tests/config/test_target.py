"""Targets in all of gRPC's forms that a socket can be dialled from."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from grpc_backoff import OptionError
from grpc_backoff.config.target import Address, names_no_port, parse_target, read_target

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
    with pytest.raises(OptionError, match=r": expected host\[:port\], ") as caught:
        parse_target(text)
    assert (caught.value.key, caught.value.value) == ("target", text)


def test_without_unix_sockets():
    """CH-10: where Python has no Unix sockets, as on Windows, other targets work; a Unix one is refused."""
    program = """
import socket
del socket.AF_UNIX
from grpc_backoff import OptionError
from grpc_backoff.config.target import parse_target
assert str(parse_target("127.0.0.1:1").addresses[0]) == "127.0.0.1:1"
for text in ("unix:/run/a", "unix-abstract:a"):
    try:
        parse_target(text)
    except OptionError as error:
        assert str(error.__cause__) == "no Unix sockets on this system", error.__cause__
    else:
        raise AssertionError(text)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_embedded_null_is_no_address():
    """CH-10: a name that no resolver takes is left to the resolver to refuse, as every name is."""
    assert parse_target("a\0b:1").addresses == ()


def test_addresses_of_one_place_are_equal():
    """CH-8: an address is a value."""
    assert Address(V4, ("127.0.0.1", 1)) == parse_target("127.0.0.1:1").addresses[0]
    assert Address(V6, ("::1", 1, 0, 0)) in set(parse_target("ipv6:[::1]:1").addresses)


DIALLED_BY_THE_CORE = [
    # All of these were dialled by a channel of grpcio 1.85.1, or are of a scheme that it knows.
    *(
        "localhost:50051",
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:http",
        "localhost:050051",
        "localhost: 1",
    ),
    *(
        "DNS:///localhost:50051",
        "dns:localhost:1",
        "dns:/localhost:1",
        "dns:///localhost%3A1",
        "dns:///localhost:1?x=1",
    ),
    *("dns://8.8.8.8/localhost:1", "dns://8.8.8.8:5353/localhost", "[::1]:50051", "::1", "fe80::1%25eth0"),
    *("[fe80::1%eth0]:80", "[fe80::1%25eth0]:80", "ipv4:127.0.0.1:1,127.0.0.2:2", "ipv6:[::1]:1,[::1]:2"),
    *("unix:99999", "unix:/run/a:99999", "unix:///run/a%20b.sock", "unix-abstract:a:99999", "UNIX:99999"),
    *("vsock:4294967295:99999", "xds:///orders:99999", "google-c2p:///orders", "custom:///orders:99999"),
    *("http.example:80", "tcp:50051", "https-proxy:1"),
]


@pytest.mark.parametrize("text", DIALLED_BY_THE_CORE)
def test_a_channels_targets(text):
    """CH-8: whatever grpcio can dial is left to it, as text and in bytes."""
    assert read_target(text) == text
    assert read_target(text.encode()) == text


NO_PORT = "a port from 1 to 65535"
NO_HOST = "a target that names a host, such as 'localhost:50051'"


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("", NO_HOST),
        ("dns:", NO_HOST),
        ("dns:///", NO_HOST),
        (":50051", "a host before the port; did you mean 'localhost:50051'?"),
        ("localhost:65536", NO_PORT),
        ("localhost:99999", NO_PORT),
        ("localhost:0099999", NO_PORT),
        ("localhost:1" + 5000 * "0", NO_PORT),
        ("127.0.0.1:99999", NO_PORT),
        ("[::1]:99999", NO_PORT),
        ("dns:///localhost:99999", NO_PORT),
        ("dns://8.8.8.8/localhost:99999", NO_PORT),
        ("dns:localhost%3A99999", NO_PORT),
        ("http://localhost:50051", "a target without a URL scheme; did you mean 'localhost:50051'?"),
        ("HTTP://localhost:50051/echo.Echo?x=1", "a target without a URL scheme; did you mean 'localhost:50051'?"),
        (
            "https://orders.example",
            "a target without a URL scheme on a secure_channel; did you mean 'orders.example'?",
        ),
        (
            "grpcs://me@orders.example:1/",
            "a target without a URL scheme on a secure_channel; did you mean 'orders.example:1'?",
        ),
        ("tcp://[::1]:1", "a target without a URL scheme; did you mean '[::1]:1'?"),
        ("\udcff:1", "a string such as 'localhost:50051'"),
        (b"\xff:1", "a string such as 'localhost:50051'"),
        (None, "a string such as 'localhost:50051'"),
        (50051, "a string such as 'localhost:50051'"),
        (("localhost", 50051), "a string such as 'localhost:50051'"),
    ],
)
def test_no_targets_of_a_channel(given, allowed):
    """CH-10: what no core can dial is refused, and the error suggests what was meant."""
    with pytest.raises(OptionError) as caught:
        read_target(given)
    assert (caught.value.key, caught.value.value) == ("target", given)
    assert str(caught.value).partition(": expected ")[2] == allowed


@pytest.mark.parametrize("password", ["secret", "se@cret", "1/secret", "1/se@cret"])
@pytest.mark.parametrize("read", [read_target, parse_target])
def test_a_password_in_a_url(read, password):
    """CH-10: neither the value that is shown nor the suggestion has any of it."""
    with pytest.raises(OptionError) as caught:
        read(f"https://me:{password}@orders.example:1")

    assert str(caught.value).startswith("target='https://me:***@orders.example:1': expected ")
    assert "cret" not in str(caught.value)


def test_a_url_is_no_target():
    """CH-10: what reads all of a target says the same of a URL."""
    with pytest.raises(OptionError, match="did you mean 'localhost:1'"):
        parse_target("http://localhost:1")


@pytest.mark.parametrize(
    ("text", "assumed"),
    [
        ("localhost", True),
        ("localhost:", True),
        ("dns:///localhost", True),
        ("[::1]", True),
        ("::1", True),
        ("127.0.0.1", True),
        ("localhost:443", False),
        ("[::1]:1", False),
        ("dns:///localhost:http", False),
        ("unix:/run/a", False),
        ("unix:a", False),
        ("xds:///orders", False),
        ("custom:///orders", False),
    ],
)
def test_names_no_port(text, assumed):
    """CH-4: where port 443 is dialled since nobody named another; sockets and other schemes have no port."""
    assert names_no_port(text) is assumed
