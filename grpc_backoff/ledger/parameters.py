"""A policy's parameters for SQL, and a policy as text.

PostgreSQL's functions are for those who read with SQL. They contain no policy numbers; each call passes them in, as
returned by `parameters` (LG-3). An operation stores its policy as a name or as the result of `policy_text` (LG-1).
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

from grpc_backoff.base.base_errors import shown
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import STRATEGIES, Decorrelated, Fixed

__all__ = ["parameters"]

Parameters = dict[str, "float | int | bool | str | list[float] | None"]

_WORDS = {"waits": "steps", "base": "delay"}
"""What policy strings call fields of strategies that have another name there."""
_LARGEST = 1e300  # the limit that `BackoffPolicy` puts on growth, in seconds
_NOTHING = 1e-100
"""Numbers below this become 0. PostgreSQL raises an error if a computation with such numbers underflows, and no clock
can distinguish so short a time from 0."""


def parameters(policy: RetryPolicy) -> Parameters:
    """Return the parameters of a policy's backoff for PostgreSQL's functions, as values for JSON; times are in seconds.

    Raises:
        TypeError: the policy has a strategy of the program's own.
    """
    strategy, jitter = policy.backoff.strategy, policy.backoff.jitter
    if not isinstance(strategy, STRATEGIES):
        raise TypeError(f"strategy={shown(strategy)}: expected a built-in strategy; a ledger supports no other")
    found: Parameters = {"strategy": strategy.name, "jitter": jitter.name}
    if isinstance(strategy, Decorrelated):
        found["reach"] = strategy.reach
    for name, value in (_fields(strategy) | _fields(jitter)).items():
        found["part" if name == "fraction" else name] = _number(value)
    return found | {"cap": policy.backoff.cap, "largest": _LARGEST}


def _fields(part: object) -> dict[str, Any]:
    return dataclasses.asdict(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else {}


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(_number, value)]
    return 0.0 if isinstance(value, float) and value < _NOTHING else value


def policy_text(policy: RetryPolicy) -> str:
    """Return a policy as a policy string, from which `parse_policy` produces an equal one."""
    words = {"max_attempts": "unlimited" if policy.max_attempts is None else str(policy.max_attempts)}
    backoff, strategy = policy.backoff, policy.backoff.strategy
    if strategy != Fixed(0.0):  # a policy string without a delay means immediate retries
        if not isinstance(strategy, STRATEGIES):
            allowed = "a built-in strategy; a policy string cannot describe any other"
            raise TypeError(f"strategy={shown(strategy)}: expected {allowed}")
        words["backoff"] = strategy.name
        parts = {_WORDS.get(name, name): value for name, value in _fields(strategy).items() if value is not None}
        words |= {name: _word(value) for name, value in (parts | {"max_delay": backoff.cap}).items()}
        words["jitter"] = str(backoff.jitter)
    words["codes"] = " ".join(sorted(policy.codes))
    words["server_delay_jitter"] = _word(policy.server_delay_jitter)
    for name in ("max_server_delay", "timeout", "deadline"):
        limit = getattr(policy, name)
        if limit is not None:
            words[name] = _word(limit)
    if policy.never_ran_only:
        words["never_ran_only"] = "true"
    return ", ".join(f"{name}: {word}" for name, word in words.items())


def _word(value: object) -> str:
    """Return a number in decimal notation, because a time in text cannot have an exponent; waits as a list."""
    if isinstance(value, tuple):
        return " ".join(f"{_word(wait)}s" for wait in value)
    return format(Decimal(repr(value)), "f")
