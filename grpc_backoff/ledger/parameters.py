"""A policy's parameters for SQL, and a policy as text.

PostgreSQL's functions are for those who read with SQL. They contain no policy numbers; each call passes them in, as
returned by `parameters` (LG-3). An operation stores its policy as a name or as the result of `policy_text` (LG-1).
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal

from grpc_backoff.base.base_errors import shown
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.exponential import Exponential
from grpc_backoff.policy.jitter import Additive, Scaled
from grpc_backoff.policy.proportional import Proportional
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import STRATEGIES, Decorrelated, Fixed, Linear, Steps

Parameters = dict[str, "float | int | bool | str | list[float] | None"]

_LARGEST = 1e300
"""The limit that `BackoffPolicy` puts on growth, in seconds."""
_NOTHING = 1e-100
"""Numbers below this become 0. PostgreSQL raises an error if a computation with such numbers underflows, and no clock
can distinguish so short a time from 0."""


def parameters(policy: RetryPolicy) -> Parameters:
    """Return the parameters of a policy's backoff for SQL; see `schema/postgres/`."""
    return {
        **_growth(policy.backoff),
        **_jitter(policy.backoff),
        "cap": policy.backoff.cap,
        "largest": _LARGEST,
    }


def _growth(backoff: BackoffPolicy) -> Parameters:
    strategy = backoff.strategy
    if not isinstance(strategy, STRATEGIES):
        raise TypeError(f"strategy={shown(strategy)}: expected a built-in strategy; a ledger supports no other")
    found: Parameters = {"strategy": strategy.name} | dataclasses.asdict(strategy)
    match strategy:
        case Steps(waits):
            found["waits"] = [_number(wait) for wait in waits]
        case Decorrelated(base):
            found |= {"base": _number(base), "reach": strategy.reach}
        case other:
            found["base"] = _number(other.base)
    return found


def _jitter(backoff: BackoffPolicy) -> Parameters:
    match backoff.jitter:
        case Proportional(fraction, then_cap):
            return {"jitter": Proportional.name, "part": _number(fraction), "then_cap": then_cap}
        case Scaled(low, high):
            return {"jitter": Scaled.name, "low": _number(low), "high": _number(high)}
        case Additive(fraction):
            return {"jitter": Additive.name, "part": _number(fraction)}
        case other:
            return {"jitter": other.name}


def _number(number: float) -> float:
    return number if number >= _NOTHING else 0.0


def policy_text(policy: RetryPolicy) -> str:
    """Return a policy as a policy string, from which `parse_policy` produces an equal one."""
    words = {"max_attempts": "unlimited" if policy.max_attempts is None else str(policy.max_attempts)}
    backoff = policy.backoff
    if backoff.strategy != Fixed(0.0):  # a policy string without a delay means immediate retries
        words |= _growth_words(backoff) | {"max_delay": _word(backoff.cap), "jitter": str(backoff.jitter)}
    words["codes"] = " ".join(sorted(policy.codes))
    words["server_delay_jitter"] = _word(policy.server_delay_jitter)
    for name in ("max_server_delay", "timeout", "deadline"):
        limit = getattr(policy, name)
        if limit is not None:
            words[name] = _word(limit)
    if policy.never_ran_only:
        words["never_ran_only"] = "true"
    return ", ".join(f"{name}: {word}" for name, word in words.items())


def _growth_words(backoff: BackoffPolicy) -> dict[str, str]:
    strategy = backoff.strategy
    words = {"backoff": strategy.name}
    match strategy:
        case Steps(waits, multiplier):
            words |= {"steps": " ".join(f"{_word(wait)}s" for wait in waits), "multiplier": _word(multiplier)}
        case Exponential(base, multiplier, max_exponent):
            words |= {"delay": _word(base), "multiplier": _word(multiplier)}
            if max_exponent is not None:
                words["max_exponent"] = str(max_exponent)
        case Fixed(base) | Linear(base) | Decorrelated(base):
            words["delay"] = _word(base)
        case other:
            raise TypeError(
                f"strategy={shown(other)}: expected a built-in strategy; a policy string cannot describe any other"
            )
    return words


def _word(number: float) -> str:
    """Return a number in decimal notation, because a time in text cannot have an exponent."""
    return format(Decimal(repr(float(number))), "f")
