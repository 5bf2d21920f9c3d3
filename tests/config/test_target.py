"""Targets: the forms that can be dialled through a socket, and those that a channel accepts."""

from __future__ import annotations

import re
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff import OptionError
from grpc_backoff.config.target import Address, core_target, names_no_port, parse_target, read_target, shown_target
from tests.texts import begins

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
        ("ipv4:///127.0.0.1:1", "127.0.0.1", 1, ["127.0.0.1:1"]),
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
    """CH-8: a target is parsed into a host, gRPC's default port if it has none, and any addresses."""
    target = parse_target(text)
    assert (target.text, target.host, target.port) == (text, host, port)
    assert [str(address) for address in target.addresses] == addresses


@pytest.mark.parametrize(
    "text",
    [
        # The last of these ports is a digit, but not an ASCII digit.
        *(
            f"orders.example:{port}"
            for port in ("", "0", "65536", "0000099999", "99999999999999999999", "http", "-1", "\uff15")
        ),
        *("", ":50051", "[::1", "[::1]50051", "xds:///orders", "google-c2p:///orders", "vsock:1:2"),
        *("dns://8.8.8.8/orders.example", "dns://8.8.8.8", "ipv4:orders.example:1", "ipv4:[::1]:1"),
        *("ipv4:127.0.0.1", "ipv4:127.0.0.1:1,127.0.0.2", "ipv6:[::1]"),
        *("ipv4:127.0.0.1:1,", "ipv6:127.0.0.1:1", "unix:", "unix://orders.sock", "unix:/run/a%00b", "unix-abstract:"),
    ],
)
def test_no_targets(text):
    """CH-10: the error for an invalid target shows it and lists the valid forms."""
    with pytest.raises(OptionError, match=r": expected host\[:port\], ") as caught:
        parse_target(text)
    assert (caught.value.key, caught.value.value) == ("target", text)


def test_without_unix_sockets():
    """CH-10: where Python has no Unix sockets, as on Windows, only targets that need them are rejected."""
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
    """CH-10: a host name with a null byte is left for the resolver to reject."""
    assert parse_target("a\0b:1").addresses == ()


def test_addresses_of_one_place_are_equal():
    """CH-8: addresses are values, which compare equal and can be hashed."""
    assert Address(V4, ("127.0.0.1", 1)) == parse_target("127.0.0.1:1").addresses[0]
    assert Address(V6, ("::1", 1, 0, 0)) in set(parse_target("ipv6:[::1]:1").addresses)


DIALLED_BY_THE_CORE = [
    # grpcio 1.85.1 can dial all of these targets, or at least knows their scheme.
    *("localhost", *(f"localhost:{port}" for port in ("50051", "", "0", "http", "050051", " 1"))),
    *("DNS:///localhost:50051", "dns:localhost:1", "dns:/localhost:1", "dns:///localhost%3A1"),
    *("dns:///localhost:1?x=1", "dns://8.8.8.8/localhost:1", "dns://8.8.8.8:5353/localhost", "[::1]:50051", "::1"),
    *(
        "fe80::1%25eth0",
        "[fe80::1%eth0]:80",
        "[fe80::1%25eth0]:80",
        "ipv4:127.0.0.1:1,127.0.0.2:2",
        "ipv6:[::1]:1,[::1]:2",
    ),
    *("unix:99999", "unix:/run/a:99999", "unix:///run/a%20b.sock", "unix-abstract:a:99999", "UNIX:99999"),
    *("vsock:4294967295:99999", "xds:///orders:99999", "google-c2p:///orders", "custom:///orders:99999"),
    *("http.example:80", "tcp:50051", "https-proxy:1"),
    *(f"unix:{107 * 'x'}", f"unix:///{106 * 'x'}", f"unix:{107 * '%41'}", f"unix-abstract:{107 * 'x'}", 200 * "x"),
]


@pytest.mark.parametrize("text", DIALLED_BY_THE_CORE)
def test_a_channels_targets(text):
    """CH-8: every target that grpcio can dial is passed on, as text or as bytes."""
    assert read_target(text) == text
    assert read_target(text.encode()) == text


NO_HOST = "a host name, an address or a path"
LONG = "a path of at most 107 bytes"
NO_PORT = "a port from 1 to 65535"
NO_SCHEME = "a target without a URL scheme"
FOR_TLS = "passed to secure_channel for TLS"


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        (":50051", "a host name or address before the port; did you mean 'localhost:50051'?"),
        *((f"localhost:{port}", NO_PORT) for port in ("65536", "99999", "0099999", "1" + 5000 * "0")),
        *((f"{host}:99999", NO_PORT) for host in ("127.0.0.1", "[::1]", "dns:///localhost", "dns://8.8.8.8/localhost")),
        ("dns:localhost%3A99999", NO_PORT),
        ("http://localhost:50051", f"{NO_SCHEME}; did you mean 'localhost:50051'?"),
        ("HTTP://localhost:50051/echo.Echo?x=1", f"{NO_SCHEME}; did you mean 'localhost:50051'?"),
        ("https://orders.example", f"{NO_SCHEME}, {FOR_TLS}; did you mean 'orders.example'?"),
        ("grpcs://me@orders.example:1/", f"{NO_SCHEME}, {FOR_TLS}; did you mean 'orders.example:1'?"),
        ("tcp://[::1]:1", f"{NO_SCHEME}; did you mean '[::1]:1'?"),
        *((each, NO_HOST) for each in (" ", "\t\n", "dns:", "DNS:///", "dns:/ ", "dns:///:50051", "dns://8.8.8.8/")),
        *((f"{scheme}:{path}", NO_HOST) for scheme in ("ipv4", "ipv6", "unix", "unix-abstract") for path in ("", "//")),
        *((f"{start}{108 * 'x'}", LONG) for start in ("unix:", "UNIX:/", "unix:///", "unix-abstract:", "unix:%41")),
        *((each, "a string such as 'localhost:50051'") for each in ("\udcff:1", b"\xff:1", None, 50051, ("a", 50051))),
    ],
)
def test_no_targets_of_a_channel(given, allowed):
    """CH-10: a target that no core can dial is rejected, with a suggestion where possible."""
    with pytest.raises(OptionError) as caught:
        read_target(given)
    assert (caught.value.key, caught.value.value) == ("target", given)
    assert str(caught.value).partition(": expected ")[2] == allowed


@pytest.mark.parametrize("password", ["secret", "se@cret", "1/secret", "1/se@cret"])
@pytest.mark.parametrize("read", [read_target, parse_target])
def test_a_password_in_a_url(read, password):
    """CH-10: the error shows no part of a password, neither in the value nor in the suggestion."""
    with pytest.raises(OptionError, match=begins("target='https://me:***@orders.example:1': expected ")) as caught:
        read(f"https://me:{password}@orders.example:1")

    assert "cret" not in str(caught.value)


def test_a_url_is_no_target():
    """CH-10: `parse_target` rejects a URL with the same suggestion."""
    with pytest.raises(OptionError, match="did you mean 'localhost:1'"):
        parse_target("http://localhost:1")


@pytest.mark.parametrize(
    ("text", "assumed"),
    [
        *((text, True) for text in ("localhost", "localhost:", "dns:///localhost", "[::1]", "::1", "127.0.0.1")),
        *((text, True) for text in ("2001:db8::1", "dns:///2001:db8::1", "dns:///::1")),
        *((text, False) for text in ("localhost:443", "[::1]:1", "dns:///localhost:http", "unix:/run/a", "unix:a")),
        *((text, False) for text in ("xds:///orders", "custom:///orders")),
    ],
)
def test_names_no_port(text, assumed):
    """CH-4: the default port is assumed only for a target that can name a port but does not."""
    assert names_no_port(text) is assumed


def test_no_host():
    """CH-10: an empty target is accepted, as by grpcio, for the sake of fixtures; it is shown with what it lacks."""
    assert read_target("") == ""
    assert shown_target("") == "'' (which names no host)"


@pytest.mark.parametrize("place", ["127.0.0.1:80", "0.0.0.0:1", "255.249.199.99:65535"])
def test_an_ipv4_address_needs_no_resolver(place):
    """CH-8: an IPv4 address with a port is passed to the core as an `ipv4:` target, which needs no resolver."""
    assert core_target(place) == f"ipv4:///{place}"


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", *(f"127.0.0.1:{port}" for port in ("", "0", "080", "http", "80\n", "80,127.0.0.1:81"))),
        *(f"{host}:80" for host in ("127.0.0.01", "127.0.0.256", "127.1", "\u0661\u0662\u0667.0.0.1", "[::1]")),
        *(f"{before}127.0.0.1:80" for before in ("dns:///", "ipv4:", "user@")),
        "localhost:80",
    ],
)
def test_other_targets_are_left_to_the_core(text):
    """CH-8: every target that is not plainly an IPv4 address with a port is passed to the core as it was given."""
    assert core_target(text) == text


OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"


@given(st.text("0125:.\u0661", max_size=22) | st.from_regex(rf"\A{OCTET}(\.{OCTET}){{3}}:[0-9]{{1,6}}\Z"))
def test_ipv4_addresses_as_the_core_writes_them(text):
    """CH-8: an address is known as one only if the core would write it in the same way."""
    written = re.fullmatch(rf"{OCTET}(\.{OCTET}){{3}}:[1-9][0-9]{{0,4}}", text)
    assert core_target(text) == (f"ipv4:///{text}" if written else text)
