"""How many retries a target is spared when most of its calls fail: gRPC's retry throttling as a value (RT-9)."""

from __future__ import annotations

from grpc_backoff.policy import checks
from grpc_backoff.record import value

__all__ = ["RetryBudget"]


@value(frozen=True, slots=True)
class RetryBudget:
    """The numbers of gRFC A6's `retryThrottling`.

    A target begins with `max_tokens`. Each failure that could be retried costs one, each success brings `token_ratio`
    back, and there are retries only while more than half of `max_tokens` is left. So a target whose calls all fail
    gets its calls' first attempts and no more, until enough of them succeed again.
    """

    max_tokens: float
    """Above 0, at most 1000."""
    token_ratio: float
    """Above 0; what is below a thousandth does not count."""

    def __post_init__(self) -> None:
        """Hold the values to what gRPC allows; OptionError says which."""
        checks.hold(self, "max_tokens", "token_ratio")
