"""What the slots of a channel dial: the whole target, or each of its addresses (PO-5, PO-6).

An address is dialled by a channel of grpcio's core that knows nothing else: no name, no policy for several connections,
and no proxy. The name of the target stays the one that TLS verifies and that `:authority` carries.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.core_options import (
    BALANCING_POLICY,
    PICK_FIRST,
    ROUND_ROBIN,
    SERVICE_CONFIG,
    Pairs,
    balancing_policy,
    first_values,
    key_text,
    resolver_configures,
)
from grpc_backoff.config.proxies import DIRECT, proxy_applies
from grpc_backoff.config.service_config import read_json, with_config
from grpc_backoff.config.target import Address, Target, parse_target
from grpc_backoff.policy.pooling import PoolPolicy

_CONFIG_POLICIES = ("loadBalancingConfig", "loadBalancingPolicy")
_HEALTH = "healthCheckConfig"
_SERVICE_NAME = "serviceName"
_INHIBITED = "grpc.inhibit_health_checking"
AUTHORITY = "grpc.default_authority"
NAME_OVERRIDE = "grpc.ssl_target_name_override"
_NUMERIC = r"ipv[46]:.*"
_WITH_PORTS = r"ipv4:/{0,3}[\d.]+:\d+(,[\d.]+:\d+)*|ipv6:/{0,3}\[[^\]]+\]:\d+(,\[[^\]]+\]:\d+)*"


class Place(NamedTuple):
    """What a channel's slots dial.

    Attributes:
        policy: which connections there are; with round_robin only if this library finds the addresses of the target.
        addresses: the addresses that a target for round_robin names; None if it has a name.
        name: the host and port to resolve; None if there is nothing to resolve.
        authority: the name that servers are told, and that their certificates are for; empty if the options say it.
    """

    policy: PoolPolicy
    addresses: tuple[str, ...] | None = None
    name: tuple[str, int] | None = None
    authority: str = ""


def read_balancing(config: object, named: Mapping[str, object]) -> tuple[bool, str | None]:
    """Return whether grpcio's options ask for round_robin, and the service whose health they ask to watch (RO-1).

    `config` is their parsed service config, empty if they have none. The service is None if there is none. With a
    policy that only the core knows, health checks are the core's.

    Raises:
        OptionError: the `healthCheckConfig` or its `serviceName` has the wrong type.
    """
    if not isinstance(config, dict):
        return False, None
    policy, health = balancing_policy(config, named), config.get(_HEALTH)
    round_robin = policy == ROUND_ROBIN
    if health is None or named.get(_INHIBITED) or policy not in (None, PICK_FIRST, ROUND_ROBIN):
        return round_robin, None
    if not isinstance(health, dict):
        raise OptionError(_HEALTH, health, 'an object such as {"serviceName": ""}')
    name = health.get(_SERVICE_NAME)
    if name is not None and (not isinstance(name, str) or name.encode(errors="ignore").decode() != name):
        raise OptionError(f"{_HEALTH}.{_SERVICE_NAME}", name, "the name of a service, or an empty string")
    return round_robin, name


def read_place(target: str, policy: PoolPolicy, core: Iterable[tuple[str | bytes, object]]) -> Place:
    """Return what the slots of a channel to this target dial; what only the core can resolve, the core dials whole."""
    named = first_values(core)
    if resolver_configures(target, named):
        return Place(policy._replace(round_robin=False, resolve_every=0.0, health_service=None))
    read = _parse(target)
    if not policy.round_robin and read is not None and len(endpoints(read.addresses)) > 1:
        # The core tries the addresses in their order, so a replacement would reach the unhealthy server again.
        policy = policy._replace(health_service=None)
    if not (policy.round_robin or policy.resolve_every):
        return Place(policy)
    hosts = () if read is None else [str(address.sockaddr[0]) for address in read.addresses] or [read.host]
    if read is None or any(proxy_applies(host, named, os.environ) for host in hosts):
        health = None if policy.round_robin else policy.health_service  # round_robin of the core watches it itself
        return Place(policy._replace(round_robin=False, resolve_every=0.0, health_service=health))
    authority = "" if {AUTHORITY, NAME_OVERRIDE} & named.keys() else _authority(target)
    if read.addresses:
        addresses = endpoints(read.addresses) if policy.round_robin else None
        return Place(policy._replace(resolve_every=0.0), addresses, authority=authority)
    return Place(policy, name=(read.host, read.port), authority=authority)


def endpoints(addresses: Iterable[Address]) -> tuple[str, ...]:
    """Return addresses as endpoints, such as `192.0.2.1:443` or `[::1]:443`: in their order, each once."""
    return tuple(dict.fromkeys(map(str, addresses)))


def endpoint_target(endpoint: str) -> str:
    """Return the target with which the core dials one endpoint."""
    scheme = "ipv6" if endpoint.startswith("[") else "ipv4"
    return f"{scheme}:{endpoint.replace('%', '%25')}"


def dial_options(core: Iterable[tuple[str | bytes, object]], place: Place) -> tuple[Pairs, Pairs]:
    """Return the core's options for the whole target, and those for one endpoint, from the options of the channel.

    Both are without health checks if this library makes them: the core would, too, and be READY only if all is well.
    """
    core = tuple(core)
    config = read_json(first_values(core).get(SERVICE_CONFIG))
    checks = () if place.policy.health_service is None else (_HEALTH,)
    alone = _without(core, config, *checks, *_CONFIG_POLICIES)
    alone = tuple(pair for pair in alone if key_text(pair[0]) != BALANCING_POLICY)
    authority = ((AUTHORITY, place.authority),) if place.authority else ()
    return _without(core, config, *checks), (DIRECT, *alone, *authority)


def _parse(target: str) -> Target | None:
    """Parse a target whose addresses this library can find; None if only the core can."""
    if re.fullmatch(_NUMERIC, target) and not re.fullmatch(_WITH_PORTS, target):
        return None  # the core rejects an address without a port
    try:
        read = parse_target(target)
    except OptionError:
        return None
    return read if all(address.family in (socket.AF_INET, socket.AF_INET6) for address in read.addresses) else None


def _authority(target: str) -> str:
    """Return the `:authority` that the core sends for a target: the target without its scheme."""
    scheme, _, rest = target.partition(":")
    return re.sub(r"^/{0,3}", "", rest) if scheme in ("dns", "ipv4", "ipv6") else target


def _without(core: Pairs, config: object, *names: str) -> Pairs:
    """Return options without these fields of their parsed service config."""
    if not isinstance(config, dict) or not any(name in config for name in names):
        return core
    return with_config(core, {name: value for name, value in config.items() if name not in names})
