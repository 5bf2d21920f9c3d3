"""The retry budget of a target whose calls mostly fail: gRPC's retry throttling as a value (RT-9)."""

from __future__ import annotations

from grpc_backoff.policy import checks
from grpc_backoff.record import value

__all__ = ["RetryBudget"]


@value(frozen=True, slots=True)
class RetryBudget:
    """The parameters of `retryThrottling` in gRFC A6.

    A target starts with `max_tokens`. Each retryable failure costs one token, each success returns `token_ratio`, and
    calls are retried only while more than half of `max_tokens` is left. So a target whose calls all fail receives only
    first attempts until enough calls succeed again.
    """

    max_tokens: float
    """Above 0, at most 1000."""
    token_ratio: float
    """Above 0; anything smaller than a thousandth is truncated."""

    def __post_init__(self) -> None:
        """Check the values against the limits of gRPC; OptionError names the wrong one."""
        checks.hold(self, "max_tokens", "token_ratio")
