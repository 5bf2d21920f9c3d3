"""Parses target strings into addresses that can be dialled directly, or a host that must be resolved.

The accepted forms are those of gRPC's naming scheme that lead to a socket. Nothing here resolves names.

`parse_target` is for connectors that dial without grpc's core and must understand the whole target. `read_target` is
for channels, where the core interprets the target, so it rejects only targets that no core can dial.
"""

from __future__ import annotations

import contextlib
import re
import socket
from typing import Any

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple

AF_UNIX: socket.AddressFamily | None = getattr(socket, "AF_UNIX", None)
"""The address family of Unix sockets; None on Windows, where Python has none."""

DEFAULT_PORT = 443
"""The port that is dialled if a target names none, even in plaintext, as in gRPC."""

_ALLOWED = (
    "host[:port], dns:[///]host[:port], ipv4:address:port[,...], ipv6:[address]:port[,...], "
    "unix:path, unix:///path or unix-abstract:name, with a port from 1 to 65535"
)
_LARGEST_PORT = 65535
_URL = r"(?i)(https?|grpcs?|tcp|h2c?)://(?:[^/]*@)?([^/?#@]+)"
"""Matches a URL with a scheme that is used on the web or by other tools. gRPC has no resolver for any of these."""
_OTHER_SCHEMES = {"unix", "unix-abstract", "vsock", "ipv4", "ipv6", "xds", "google-c2p", "google-c2p-experimental"}
_NO_HOST = r"(?is)\s*|dns:(?://[^/]*/|/)?\s*(?::.*)?|(?:ipv4|ipv6|unix|unix-abstract):(?:///?)?"
"""Matches a target without a host, an address or a path."""
_MAY_NAME_NONE = {"dns", "ipv4", "ipv6", "unix", "unix-abstract"}
"""The schemes of such targets. Most targets have none, and need no pattern, which takes long to compile."""
_LONGEST_PATH = 107
"""The longest path of a Unix socket, in bytes: Linux has room for one more, the NUL at its end."""
_UNIX_HOST = "localhost"
"""The host name that gRPC uses for a Unix socket, in `:authority` and for verifying the server's certificate."""


class Address(NamedTuple):
    """A socket address; `str` returns it in the form that people write."""

    family: socket.AddressFamily
    sockaddr: Any

    def __str__(self) -> str:
        """Return `127.0.0.1:80`, `[::1]:80`, `[fe80::1%2]:80`, `unix:/path` or `unix-abstract:name`."""
        if self.family is AF_UNIX:
            path = str(self.sockaddr)
            return f"unix-abstract:{path[1:]}" if path.startswith("\0") else f"unix:{path}"
        host, port, *zone = self.sockaddr
        if self.family is socket.AF_INET:
            return f"{host}:{port}"
        return f"[{host}%{zone[1]}]:{port}" if zone[1] else f"[{host}]:{port}"


class Target(NamedTuple):
    """A parsed target string.

    Attributes:
        text: the string as given.
        host: the name, or the first address, against which the server's certificate is verified.
        port: the port to dial on the host.
        addresses: the addresses to dial; empty if the host must be resolved first.
    """

    text: str
    host: str
    port: int
    addresses: tuple[Address, ...] = ()

    @property
    def unix(self) -> bool:
        """Whether this is a Unix socket."""
        return any(address.family is AF_UNIX for address in self.addresses)

    @property
    def host_port(self) -> str:
        """The host and the port, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(text: str) -> Target:
    """Parse a target string.

    Raises:
        OptionError: it is not a valid target, or needs more than a socket: `xds:`, or a name server in its authority.
    """
    _refuse_url(text)
    _refuse_path(text)
    try:
        return _parse(text)
    except ValueError as error:
        raise OptionError("target", text, _ALLOWED) from error


def read_target(value: object) -> str:
    """Return a channel's target as text; accepts bytes, as grpcio does.

    Raises:
        OptionError: it is not text, or grpcio's core can never dial it: a web URL, a port without a host, or a port
            above 65535 (of which the core dials the lower 16 bits), a Unix path over 107 bytes, or nothing but blanks
            or a scheme. An empty target is accepted, because programs' tests create channels with it.
    """
    try:
        text = value.decode() if isinstance(value, bytes) else value
        if isinstance(text, str):
            text.encode()  # as the core does
    except UnicodeError:
        text = None
    if not isinstance(text, str):
        raise OptionError("target", value, "a string such as 'localhost:50051'")
    if text.startswith(":") and text[1:].isdigit():
        raise OptionError("target", value, "a host name or address before the port", f"localhost{text}")
    if text:
        refuse_nowhere(text)
    _refuse_url(text)
    _refuse_path(text)
    if (_number(_port(text) or "") or 0) > _LARGEST_PORT:
        raise OptionError("target", value, f"a port from 1 to {_LARGEST_PORT}")
    return text


def refuse_nowhere(text: str) -> None:
    """Raise OptionError if a target names no host, no address and no path, so that nothing can be dialled."""
    if (not text.strip() or text.partition(":")[0].lower() in _MAY_NAME_NONE) and re.fullmatch(_NO_HOST, text):
        raise OptionError("target", text, "a host name, an address or a path")


def _refuse_path(text: str) -> None:
    scheme, _, rest = text.partition(":")
    path = rest.removeprefix("//") if scheme.lower() == "unix" else rest if scheme.lower() == "unix-abstract" else ""
    if len(_unquote(path).encode()) > _LONGEST_PATH:
        raise OptionError("target", text, f"a path of at most {_LONGEST_PATH} bytes")


def _refuse_url(text: str) -> None:
    if "://" in text and (url := re.match(_URL, text)):
        secure = ", passed to secure_channel for TLS" if url[1].lower() in {"https", "grpcs"} else ""
        meant = None if "@" in text[url.end() :] else url[2]  # otherwise it could be part of a password
        raise OptionError("target", text, f"a target without a URL scheme{secure}", meant)


def _number(port: str) -> int | None:
    """Return a port as a number, of which six digits are enough; None if it is none."""
    return int(port.lstrip("0")[:6] or "0") if port.isascii() and port.isdigit() else None


def core_target(text: str) -> str:
    """Return the target in a form that keeps grpcio's core from passing an IPv4 address with a port to its resolver.

    The resolver would return that address, but from another thread, and later. Every other target is unchanged.
    """
    host, _, port = text.partition(":")
    octets = host.split(".")
    known = len(octets) == 4 and all(map(_is_octet, octets)) and port.isascii() and port.isdigit()  # noqa: PLR2004
    return f"ipv4:///{text}" if known and port[0] != "0" and len(port) <= len(str(_LARGEST_PORT)) else text


def _is_octet(text: str) -> bool:
    """Return whether this is a number of an IPv4 address, written as the core itself writes it."""
    return text.isascii() and text.isdigit() and len(text) <= 3 and str(min(int(text), 255)) == text  # noqa: PLR2004


def bare_target(text: str) -> str:
    """Return a target without the scheme `dns`, which is gRPC's default, unless it also names a name server."""
    found = re.fullmatch(r"(?i)dns:(?:///|/)?([^/].*)", text)
    return found[1] if found else text


def canonical_target(text: str) -> str:
    """Return a target in A66's form, with the scheme that grpc's core would use if it names none."""
    scheme, colon, _ = text.partition(":")
    return text if colon and scheme.lower() in {"dns", *_OTHER_SCHEMES} else f"dns:///{text}"


def names_no_port(text: str) -> bool:
    """Return whether a target names no port, so that DEFAULT_PORT is dialled."""
    return _port(text) == "" and not text.isspace()


def shown_target(text: str) -> str:
    """Return a target as it is shown in errors: with the default port if it names none, or with what it lacks."""
    if not text:
        return f"{text!r} (which names no host)"
    return f"{text} (port {DEFAULT_PORT}, because the target specifies none)" if names_no_port(text) else text


def _port(text: str) -> str | None:
    """Return a target's port, "" if it has none; None if the target is not a host with an optional port."""
    if text.partition(":")[0].lower() in _OTHER_SCHEMES and ":" in text:
        return None
    place = _unquote(text)
    scheme, colon, rest = place.partition(":")
    if colon and scheme.lower() == "dns":
        _, place = _path(rest)
    try:
        host, port = _split(place)
    except ValueError:
        return None
    if not place.startswith("["):
        if not host or any(sign in host for sign in "/,[]"):
            return None
        if ":" in host and not _literal(host, DEFAULT_PORT, socket.AF_INET6):
            return None
    return port or ""


def _unquote(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote  # noqa: PLC0415 - few targets are quoted

    return unquote(text)


_FAMILIES = {"dns": socket.AF_UNSPEC, "ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
"""The families of addresses that the schemes for hosts allow."""


def _parse(text: str) -> Target:
    """Parse a target string; ValueError if it is not valid."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("unix", "unix-abstract"):
        return Target(text, _UNIX_HOST, DEFAULT_PORT, (_unix_address(rest, abstract=scheme == "unix-abstract"),))
    family = _FAMILIES.get(scheme) if colon else None
    authority, path = ("", text) if family is None else _path(rest)
    if authority:
        raise ValueError("a target cannot name a DNS server; only the system's resolver is supported")
    place = path if family is None else _unquote(path)
    family = family or socket.AF_UNSPEC
    places = [_place(part, needs_port=bool(family)) for part in (place.split(",") if family else [place])]
    found = [_literal(host, port, family) for host, port in places]
    for (host, _), addresses in zip(places, found, strict=True):
        if (family or ":" in host) and not addresses:
            raise ValueError("not an address of this family" if family else "colons, but not an IPv6 address")
    return Target(text, *places[0], tuple(address for group in found for address in group))


def _unix_address(rest: str, *, abstract: bool) -> Address:
    path = _unquote(rest if abstract else rest.removeprefix("//"))
    relative = rest.startswith("//") and not path.startswith("/")
    if not path or (not abstract and ("\0" in path or relative)):
        raise ValueError("no name" if abstract else "no path")
    if AF_UNIX is None:
        raise ValueError("no Unix sockets on this system")
    return Address(AF_UNIX, f"\0{path}" if abstract else path)


def _path(rest: str) -> tuple[str, str]:
    """Return a URI's authority, and its path without leading slashes, from what follows the scheme."""
    if not rest.startswith("//"):
        return "", rest.removeprefix("/")
    authority, _, path = rest.removeprefix("//").partition("/")
    return authority, path


def _split(place: str) -> tuple[str, str | None]:
    """Split `host:port`, `[host]:port`, or either without a port; a text with several colons is an IPv6 address.

    The port is any text, None if there is none.
    """
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("brackets")
        return host, rest[1:] if rest else None
    host, colon, port = place.partition(":")
    return (host, port if colon else None) if ":" not in port else (place, None)


def _place(text: str, *, needs_port: bool) -> tuple[str, int]:
    """Return the host and the port of a target that can be dialled; the core knows no default for `ipv4` and `ipv6`."""
    host, named = _split(text)
    port = DEFAULT_PORT if named is None and not needs_port else _number(named or "")
    if not host.strip() or not port or port > _LARGEST_PORT:
        raise ValueError("host or port")
    return host, port


def _literal(host: str, port: int, family: socket.AddressFamily) -> tuple[Address, ...]:
    """Parse a literal IP address without resolving names; return an empty tuple if the host is not one."""
    with contextlib.suppress(OSError, UnicodeError):
        # As bytes, because for a text, `getaddrinfo` imports a codec, which must not happen in an outage (CH-12).
        name = host.encode() if host.isascii() else host
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        found = socket.getaddrinfo(name, port, family, socket.SOCK_STREAM, socket.IPPROTO_TCP, flags)
        return tuple(Address(info[0], info[4]) for info in found)
    return ()
