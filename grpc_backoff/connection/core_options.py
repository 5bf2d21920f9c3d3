"""The options that limit a channel of grpcio's core to one attempt, for both APIs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grpc_backoff.policy.connect import ConnectPolicy

__all__ = ["CORE_LIMIT_SLACK", "attempt_options", "spreads_calls"]

Options = Sequence[tuple[str, Any]]

CORE_LIMIT_SLACK = 0.15
"""How much later than the machine the core abandons an attempt, so that a loop delayed by less keeps the order."""

_MAX_INT32 = 2**31 - 1
_SPREADING = {"round_robin", "weighted_round_robin", "ring_hash_experimental", "weighted_target_experimental"}


def attempt_options(policy: ConnectPolicy, limit: float, *, spreads: bool) -> Options:
    """Return the options that limit a core channel to one attempt of `limit` seconds; see `spreads_calls`."""
    limit_ms = _milliseconds(limit + CORE_LIMIT_SLACK)
    if not spreads:
        # Of the core's settings, only this has no jitter: it is exactly the attempt's limit and the next start.
        return (("grpc.testing.fixed_reconnect_backoff_ms", limit_ms),)
    # After READY, round_robin redials single addresses in the core by itself: match the policy as closely as possible.
    backoff = policy.backoff
    return (
        ("grpc.initial_reconnect_backoff_ms", _milliseconds(min(policy.initial_backoff, limit / 1.25))),
        ("grpc.max_reconnect_backoff_ms", _milliseconds(backoff.cap)),
        ("grpc.min_reconnect_backoff_ms", limit_ms),
    )


def _milliseconds(seconds: float) -> int:
    return max(1, min(round(seconds * 1000), _MAX_INT32)) if math.isfinite(seconds) else _MAX_INT32


def spreads_calls(target: str, options: Mapping[str, Any]) -> bool:
    """Return whether the options make the core use several connections at once (anything but pick_first)."""
    return (
        target.startswith(("xds:", "google-c2p:"))
        or options.get("grpc.lb_policy_name", "pick_first") != "pick_first"
        or _service_config_spreads(options.get("grpc.service_config"))
    )


def _service_config_spreads(text: object) -> bool:
    if not isinstance(text, str | bytes):
        return False
    import json  # noqa: PLC0415 - most channels have no service config

    try:
        config = json.loads(text)
        named = [name for entry in config.get("loadBalancingConfig", ()) for name in entry]
        known = [name for name in named if name in _SPREADING or name == "pick_first"]
        first = known[0] if known else config.get("loadBalancingPolicy", "").lower()
    except (ValueError, AttributeError, TypeError):
        return False  # the core reports the error
    return first in _SPREADING
