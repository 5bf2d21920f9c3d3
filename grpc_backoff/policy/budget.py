"""A target's retry budget, which is gRPC's retry throttling (RT-9)."""

from __future__ import annotations

from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.setting import Setting, checks_of

_MOST, _LEAST = 1000, 0.001  # gRPC's cores count in thousandths

BUDGETING = (
    Setting("max_tokens", checks.number(f"a number above 0 and at most {_MOST}", lambda number: 0 < number <= _MOST)),
    Setting(
        "token_ratio", checks.number(f"a number from {_LEAST} to {_MOST}", lambda number: _LEAST <= number <= _MOST)
    ),
)
"""All settings for a target's retry budget (RT-9, gRFC A6)."""


@dataclass(frozen=True, slots=True)
@checks.checked(checks_of(BUDGETING))
class RetryBudget:
    """The parameters of `retryThrottling` in gRFC A6.

    A target starts with `max_tokens`. Each retryable failure costs one token, each success adds `token_ratio`, and
    calls are retried only while more than half of `max_tokens` is left. If all calls to a target fail, it soon receives
    only first attempts, until enough calls succeed again.
    """

    max_tokens: float
    """The number of tokens in a full budget: above 0, at most 1000."""
    token_ratio: float
    """The number of tokens that a success adds: from 0.001 to 1000, truncated to thousandths."""
