"""How a call is retried: a backoff and its surrounding limits, as one frozen value."""

from __future__ import annotations

import math

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.backoff import BackoffPolicy, Random, check_number
from grpc_backoff.policy.strategy import Steps
from grpc_backoff.record import value

__all__ = ["RetryPolicy"]


@value(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a call is retried: how often, when, after which status codes, and for how long. Times are in seconds.

    The named policies are `grpc_backoff.RETRY_PRESETS`; use `dataclasses.replace` to derive others, or `parse` to read
    one from text.
    """

    backoff: BackoffPolicy
    max_attempts: int | None
    """The total number of attempts, including the first (gRFC A6); None for no limit but a deadline (RT-1)."""
    codes: frozenset[str]
    """The names of the status codes after which a call is retried (RT-2)."""
    server_delay_jitter: float
    """The maximum added to a wait that the server asked for, so that its clients do not all come back at once.

    Not applied to gRPC's pushback, which is honoured to the millisecond (RT-3).
    """
    max_server_delay: float | None = None
    """The longest wait that a server can request, jitter included; None for no limit (RT-3)."""
    timeout: float | None = None
    """The time limit of each attempt; None for no limit. Unaffected by the backoff (RT-7)."""
    deadline: float | None = None
    """The time limit of the whole call, attempts and waits; None for no limit but the caller's (RT-7)."""

    def __post_init__(self) -> None:
        """Apply the same checks as to policy strings and the file; OptionError names the wrong value."""
        if not isinstance(self.backoff, BackoffPolicy):
            raise OptionError("RetryPolicy.backoff", self.backoff, "a BackoffPolicy")
        checks.hold(self, "max_attempts", "codes", "server_delay_jitter", "max_server_delay", "timeout", "deadline")

    @staticmethod
    def parse(text: str) -> RetryPolicy:
        """Return the policy described by a text: the name of a preset, or a policy string (BP-2).

        `"retry: 5, delay: 500ms, backoff: exponential, timeout: 5s"` means five retries after the first attempt; waits
        of half a second after the first failure and twice as long after each later one; and five seconds for each
        attempt. The settings are those of a table `[policies.NAME]` in the file
        (`grpc_backoff.config.settings.RETRYING`).

        Raises:
            OptionError: a setting is unknown or has a wrong value.

        Warns:
            PolicyWarning: a setting has no effect, such as `backoff` without `delay`.
        """
        from grpc_backoff.config.policy_string import parse_retry  # noqa: PLC0415 - it makes this very class

        return parse_retry(text).policy

    def nominal(self, n: int) -> float:
        """Return the wait before the n-th retry, without jitter, in seconds."""
        return self.backoff.nominal(n)

    def delay(self, n: int, rng: Random, previous: float | None = None) -> float:
        """Return the wait before the n-th retry, in seconds; see `BackoffPolicy.delay`."""
        return self.backoff.delay(n, rng, previous)

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the smallest and the largest value that `delay(n)` can return, in seconds."""
        return self.backoff.bounds(n)

    def should_retry(self, n: int) -> bool:
        """Return whether the n-th attempt, counted from 1, is followed by another if it fails with a retryable code."""
        check_number(n)
        return self.max_attempts is None or n < self.max_attempts

    def total_bounds(self, waits: int | None = None) -> tuple[float, float]:
        """Return the smallest and the largest total of the waits of one call, in seconds.

        The attempts themselves take additional time; `deadline` bounds both.

        Args:
            waits: the number of waits; by default, one less than `max_attempts`. If attempts are unlimited, so are the
                waits, and the total is the deadline or infinite.
        """
        if waits is None:
            waits = None if self.max_attempts is None else self.max_attempts - 1
        low, high = (math.inf, math.inf) if waits is None else self._sum(waits)
        deadline = math.inf if self.deadline is None else self.deadline
        return min(low, deadline), min(high, deadline)

    def _sum(self, waits: int) -> tuple[float, float]:
        low = high = 0.0
        strategy = self.backoff.strategy
        listed = len(strategy.waits) if isinstance(strategy, Steps) else 0
        for n in range(1, waits + 1):
            least, most = self.bounds(n)
            low, high = low + least, high + most
            if n > listed and (least, most) == self.bounds(n + 1):  # once the wait stops growing, it stays the same
                return low + least * (waits - n), high + most * (waits - n)
        return low, high

    def obey(self, asked: float) -> float:
        """Return the minimum wait, in seconds, if the server asked for this many seconds (RT-3)."""
        return asked if self.max_server_delay is None else min(asked, self.max_server_delay)

    def scatter(self, wait: float, rng: Random, left: float | None) -> float:
        """Add jitter to a wait that the server asked for; clients given the same wait do not all come back at once.

        The result, in seconds, is at most `max_server_delay`. It stays below `left`, the seconds until the call's
        deadline: jitter alone never makes a call give up.
        """
        jitter = self.server_delay_jitter if left is None else min(self.server_delay_jitter, left - wait)
        return self.obey(wait + rng.random() * jitter)
