"""Whether grpcio's core would connect through an HTTP proxy, which only the core can do (CH-4, PO-6).

The core looks for a proxy in channel options and in the environment. Where it is not certain that it would connect
directly, this module says that a proxy applies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.core_options import first_values, key_text
from grpc_backoff.config.target import parse_target

_ENABLED = "grpc.enable_http_proxy"
_OPTION = "grpc.http_proxy"
PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The environment variables that name a proxy, the first that is set first."""
_SPARED = ("no_grpc_proxy", "no_proxy")
_FOR_ADDRESSES = "grpc.address_http_proxy"
_FOR_ADDRESSES_VARIABLE = "GRPC_ADDRESS_HTTP_PROXY"

_SCHEME = "http:"  # what the URL of a proxy begins with, or the core ignores it

DIRECT = (_ENABLED, 0)
"""The option that makes the core connect directly."""


def proxy_applies(host: str, options: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Return whether a proxy may apply to a host; `options` are grpcio's own.

    The first of these applies, even if it is empty or not an `http:` URL, which mean no proxy: `grpc.http_proxy`,
    `grpc_proxy`, `https_proxy`, `http_proxy`. Hosts in `no_grpc_proxy`, or else in `no_proxy`, are dialled directly.
    """
    if options.get(_FOR_ADDRESSES) or environment.get(_FOR_ADDRESSES_VARIABLE):
        return True
    return proxy_of(host, options, environment) != ""


def is_proxied(target: str, core: Iterable[tuple[str | bytes, object]]) -> bool:
    """Return whether the core connects to a target through a proxy for names, as far as that is certain (CH-4)."""
    named, environment = first_values(core), os.environ
    if _OPTION not in named and not any(name in environment for name in PROXY_VARIABLES):
        return False
    try:
        read = parse_target(target)
    except OptionError:  # what only the core can resolve
        return False
    return not read.unix and len(read.addresses) <= 1 and proxy_of(read.host, named, environment) != ""


def proxy_of(host: str, options: Mapping[str, object], environment: Mapping[str, str]) -> str:
    """Return the URL of the proxy for names that applies to a host, which may contain a password; "" for none."""
    if not options.get(_ENABLED, True):
        return ""
    proxy = _named(options, environment)[1]
    if not proxy.lower().startswith(_SCHEME):
        return ""
    spared = next((environment[name] for name in _SPARED if name in environment), "")
    return "" if any(_covers(entry.strip(), host) for entry in spared.split(",")) else proxy


def proxy_source(options: Mapping[str, object], environment: Mapping[str, str]) -> str:
    """Return the channel option or the variable that names the proxy for names; "" if none of them does."""
    return _named(options, environment)[0]


def _named(options: Mapping[str, object], environment: Mapping[str, str]) -> tuple[str, str]:
    """Return which setting names a proxy for names, and what it names; both are empty if none does."""
    found = {_OPTION: options.get(_OPTION), **{name: environment.get(name) for name in PROXY_VARIABLES}}
    texts = ((name, key_text(text)) for name, text in found.items() if isinstance(text, str | bytes))
    return next(texts, ("", ""))  # the core skips an option that is no text


def _covers(entry: str, host: str) -> bool:
    """Return whether an entry of `no_proxy` is the host, a domain of it, or a network that contains it."""
    if not entry:
        return False
    name, domain = host.lower(), entry.lower().removeprefix(".")
    if name == domain or name.endswith(f".{domain}"):
        return True
    import ipaddress  # noqa: PLC0415 - it is slow to import, and few programs have a proxy

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
