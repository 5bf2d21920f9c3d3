"""The parts of policies, under the names that presets, files and options share.

The parts of a backoff are `backoff` (the name of a strategy), `delay`, `multiplier`, `max_exponent`, `steps`,
`max_delay` and `jitter`. Every other part is a field of the policy with the same name. This module defines no defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.exponential import Exponential
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import STRATEGIES, Decorrelated, Fixed, Linear, Steps

PolicyT = TypeVar("PolicyT", ConnectPolicy, RetryPolicy)

PARTS_OF_STRATEGIES: Mapping[str, tuple[str, ...]] = {
    Fixed.name: ("delay",),
    Linear.name: ("delay",),
    Exponential.name: ("delay", "multiplier", "max_exponent"),
    Steps.name: ("steps", "multiplier"),
    Decorrelated.name: ("delay",),
}
"""The parts of each strategy, in the order of its fields; the first is required."""

PARTS_OF_ANY_STRATEGY = frozenset(part for parts in PARTS_OF_STRATEGIES.values() for part in parts)


def build(kind: type[PolicyT], parts: Mapping[str, Any]) -> PolicyT:
    """Build a policy of this class from its parts; every required part must be present."""
    named = {part.name: parts[part.name] for part in fields(kind) if part.name != "backoff"}
    strategy = next(strategy for strategy in STRATEGIES if strategy.name == parts["backoff"])
    made = strategy(*(parts[part] for part in PARTS_OF_STRATEGIES[strategy.name] if part in parts))
    backoff = BackoffPolicy(strategy=made, cap=parts["max_delay"], jitter=parts["jitter"])
    return kind(backoff=backoff, **named)
