"""A channel's options in grpcio's form, what they mean for grpcio's core, and those that limit it to one attempt.

Options are pairs of a key and a value, with the first pair for a key in effect (CH-9).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.target import core_target
from grpc_backoff.decide.connections.dial_texts import MORE_THAN_THE_RETRY_BUFFER
from grpc_backoff.decide.connections.dial_times import CORE_LIMIT_SLACK, core_backoff
from grpc_backoff.policy.connect import ConnectPolicy

if TYPE_CHECKING:
    import grpc

Options = Sequence[tuple[str | bytes, object]]
Pairs = tuple[tuple[str | bytes, object], ...]
TypedPairs = tuple[tuple[str | bytes, type, str | bytes | int], ...]
"""Options with the types of their values, because 1, 1.0 and True compare equal but may be read differently."""

SERVICE_CONFIG = "grpc.service_config"
ENABLE_RETRIES = "grpc.enable_retries"
LOCAL_POOL = "grpc.use_local_subchannel_pool"
BALANCING_POLICY = "grpc.lb_policy_name"
PICK_FIRST = "pick_first"
ROUND_ROBIN = "round_robin"

_PLAIN = (str, bytes, int, bool, float)
_MAX_INT32 = 2**31 - 1
_KEEPALIVE_TIME = "grpc.keepalive_time_ms"
_XDS = ("xds:", "google-c2p:", "google-c2p-experimental:")
_KNOWN = {
    "grpclb",
    "outlier_detection_experimental",
    PICK_FIRST,
    "priority_experimental",
    "ring_hash_experimental",
    "rls_experimental",
    ROUND_ROBIN,
    "weighted_round_robin",
    "weighted_target_experimental",
}
"""The policies that grpcio's core may know. It takes the first one that it knows."""


def first_values(options: Iterable[tuple[str | bytes, object]]) -> dict[str, object]:
    """Return the value that applies to each key: the one in its first pair."""
    values: dict[str, object] = {}
    for key, value in options:
        values.setdefault(key_text(key), value)
    return values


def key_text(key: str | bytes) -> str:
    """Return a key as text; grpcio also accepts bytes."""
    return key.decode(errors="replace") if isinstance(key, bytes) else key


def typed_pairs(options: Iterable[object]) -> TypedPairs | None:
    """Return options in hashable form; None if one of them is not a tuple of a key and a plain value."""
    typed = []
    for pair in options:
        if type(pair) is not tuple or len(pair) != 2:  # noqa: PLR2004 - a pair
            return None
        key, value = pair
        if type(key) not in (str, bytes) or type(value) not in _PLAIN:
            return None
        typed.append((key, type(value), value))
    return tuple(typed)


def attempt_options(policy: ConnectPolicy, limit: float, *, spreads: bool) -> Pairs:
    """Return the options that limit a core channel to one attempt of `limit` seconds.

    `spreads` is the result of `spreads_calls`.
    """
    # The core's limit is the larger of its shortest limit and its backoff. If this process does not end the attempt in
    # time, the gaps between the core's dials grow. After READY, the core's round_robin redials individual addresses by
    # itself, so there, match the policy as closely as possible.
    initial, longest = core_backoff(limit), policy.backoff.cap
    if spreads:
        initial = min(policy.initial_backoff, limit / 1.25)
    return (
        ("grpc.initial_reconnect_backoff_ms", milliseconds(initial)),
        ("grpc.max_reconnect_backoff_ms", milliseconds(longest if spreads else max(initial, longest))),
        ("grpc.min_reconnect_backoff_ms", milliseconds(limit + CORE_LIMIT_SLACK)),
    )


def idle_options(policy: ConnectPolicy) -> Pairs:
    """Return the option for the idle timeout, because the core itself closes unused connections (CB-14)."""
    return (("grpc.client_idle_timeout_ms", milliseconds(policy.idle_timeout)),)


def keepalive_options(options: Iterable[tuple[str | bytes, object]], slower: int) -> Pairs:
    """Return the option that lengthens the time between keepalive pings by the factor `slower`; none without pings."""
    keepalive_time = first_values(options).get(_KEEPALIVE_TIME)
    if not isinstance(keepalive_time, int) or not 0 < keepalive_time < _MAX_INT32:
        return ()
    return ((_KEEPALIVE_TIME, min(keepalive_time * slower, _MAX_INT32)),)


def milliseconds(seconds: float, least: int = 1) -> int:
    """Return a time as an option of grpc's, in milliseconds: a number that fits in 32 bits."""
    return max(least, min(round(seconds * 1000), _MAX_INT32)) if math.isfinite(seconds) else _MAX_INT32


def resolver_configures(target: str, options: Mapping[str, object]) -> bool:
    """Return whether the core may get a service config from the resolver, which this library never sees."""
    return target.startswith(_XDS) or not options.get("grpc.service_config_disable_resolution", True)


def spreads_calls(target: str, options: Mapping[str, object]) -> bool:
    """Return whether the core uses several connections at once with these options, as all but pick_first do."""
    config = read_json(options.get(SERVICE_CONFIG))
    return target.startswith(_XDS) or balancing_policy(config, options) not in (None, PICK_FIRST)


def balancing_policy(config: object, options: Mapping[str, object]) -> str | None:
    """Return the name of the policy with which the core balances calls; None for its default, pick_first.

    `config` is the parsed service config, which has precedence over the option `grpc.lb_policy_name`.
    """
    config = config if isinstance(config, dict) else {}
    listed, deprecated = config.get("loadBalancingConfig"), config.get("loadBalancingPolicy")
    if isinstance(listed, list):
        named = (name for entry in listed if isinstance(entry, dict) for name in entry)
        return next((name for name in named if name in _KNOWN), None)
    if isinstance(deprecated, str) and deprecated:
        return deprecated.lower()
    name = options.get(BALANCING_POLICY)
    return key_text(name) if isinstance(name, str | bytes) else None


def read_json(text: object) -> Any:
    """Parse the text of a service config; return None if gRPC's cores would not accept it as JSON.

    The cores are stricter than Python: UTF-8 only, no duplicate keys in an object, and no NaN or Infinity.
    """
    if not isinstance(text, str | bytes):
        return None
    import json  # noqa: PLC0415 - most channels have no service config

    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("a duplicate key")
    return read


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


class CoreArguments(NamedTuple):
    """What a channel of the core is made with, besides credentials."""

    target: str
    options: Options
    compression: grpc.Compression | None


class CoreTraits(NamedTuple):
    """What a target and options mean for the core.

    Attributes:
        target: the target as the core is given it.
        may_wait: whether its resolver may make calls wait-for-ready, by a service config.
        spreads: whether it makes several connections by itself (PO-5).
        repeats: whether it repeats calls that were not sent on a lost connection, and no others (CB-16).
        pings: whether its connections ping at all.
        shares: whether channels with the same options may share a connection.
        question: the request of the call that asks it why a dial failed.
    """

    target: str
    may_wait: bool
    spreads: bool
    repeats: bool
    pings: bool
    shares: bool
    question: bytes


def core_traits(target: str, options: Options) -> CoreTraits:
    """Return what a target and options mean for the core."""
    try:
        return _read_again(target, *chain.from_iterable(options))
    except TypeError:  # the value of an option is not hashable
        return _read(target, options)._replace(shares=False)


def _read(target: str, options: Options) -> CoreTraits:
    named = first_values(options)
    configures, spreads = resolver_configures(target, named), spreads_calls(target, named)
    config = named.get(SERVICE_CONFIG, "")
    by_policy = configures or b"retryPolicy" in (config if isinstance(config, bytes) else str(config).encode())
    return CoreTraits(
        target if configures else core_target(target),
        may_wait=configures,
        spreads=spreads,
        repeats=bool(named.get(ENABLE_RETRIES, True)) and not by_policy and not spreads,
        pings=keepalive_options(options, 1) != (),
        shares=not (spreads or named.get(LOCAL_POOL)),
        question=MORE_THAN_THE_RETRY_BUFFER if SERVICE_CONFIG in named else b"",
    )


@lru_cache(maxsize=256, typed=True)  # 10000.0 equals 10000, but grpcio takes it for a pointer
def _read_again(target: str, *parts: Any) -> CoreTraits:
    """Return what `_read` does, for programs that create a channel for each request."""
    return _read(target, tuple(zip(parts[::2], parts[1::2], strict=True)))
