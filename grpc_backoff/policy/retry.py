"""A call's retry policy: a backoff and related limits, as one frozen value."""

from __future__ import annotations

import math

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.backoff import BackoffPolicy, Random, check_number
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.jitter import parse_jitter
from grpc_backoff.policy.setting import Setting, checks_of
from grpc_backoff.policy.strategy import STRATEGIES


def _strategy(key: str, value: object, _unit: Unit = Unit.SECONDS) -> str:
    return checks.choice(key, value, [strategy.name for strategy in STRATEGIES])


RETRYING = (
    Setting("preset", checks.name),
    Setting("retry", checks.retries, part="max_attempts"),
    Setting("max_attempts", checks.attempts, None),
    Setting("delay", checks.duration),
    Setting("backoff", _strategy),
    Setting("max_delay", checks.duration),
    Setting("jitter", parse_jitter),
    Setting("multiplier", checks.growth),
    Setting("max_exponent", checks.max_exponent),
    Setting("steps", checks.steps),
    Setting("timeout", checks.limit, None),
    Setting("deadline", checks.limit, None),
    Setting("codes", checks.codes, frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})),  # RT-2
    Setting("server_delay_jitter", checks.pause, 5.0),  # RT-3
    Setting("max_server_delay", checks.limit, None),
    Setting("never_ran_only", checks.flag, default=False),
)
"""All settings for a retry policy, in both files and policy strings (BP-2)."""

_CHECKS = checks_of(RETRYING, "backoff")  # the policy has the backoff itself, not the name of a strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a call is retried: how often, when, after which status codes, and for how long. Times are in seconds.

    The named policies are `grpc_backoff.RETRY_PRESETS`; use `dataclasses.replace` to derive others from them, or
    `grpc_backoff.parse_policy` to read one from text.
    """

    backoff: BackoffPolicy
    max_attempts: int | None
    """The total number of attempts, including the first (gRFC A6); None for no limit other than a deadline (RT-1)."""
    codes: frozenset[str]
    """The names of the status codes after which a call is retried (RT-2)."""
    server_delay_jitter: float
    """The maximum jitter added to a wait that the server asked for, so that the server's clients do not all come back
    at once.

    Not applied to gRPC's pushback, which is honoured to the millisecond (RT-3).
    """
    max_server_delay: float | None = None
    """The longest wait that a server can request; None for no limit. A longer one becomes this limit, plus jitter
    (RT-3)."""
    timeout: float | None = None
    """The time limit for each attempt, independent of the backoff; None for no limit (RT-7)."""
    deadline: float | None = None
    """The time limit for the whole call, including all attempts and waits; None for no limit other than the caller's
    timeout (RT-7)."""
    never_ran_only: bool = False
    """Whether only calls that no server is said to have executed are retried, whatever their code (RT-14)."""

    def __post_init__(self) -> None:
        """Check the values like those of policy strings and files; OptionError if one is invalid."""
        if not isinstance(self.backoff, BackoffPolicy):
            raise OptionError("RetryPolicy.backoff", self.backoff, "a BackoffPolicy")
        checks.hold(self, _CHECKS)

    def nominal(self, n: int) -> float:
        """Return the wait before the n-th retry, without jitter, in seconds."""
        return self.backoff.nominal(n)

    def delay(self, n: int, rng: Random, previous: float | None = None) -> float:
        """Return the wait before the n-th retry, in seconds; see `BackoffPolicy.delay`."""
        return self.backoff.window(n, previous).at(rng.random())

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the smallest and largest values that `delay(n)` can return, in seconds."""
        return self.backoff.bounds(n)

    def expected(self, n: int) -> float:
        """Return the mean of the wait before the n-th retry, jitter included, in seconds."""
        return self.backoff.expected(n)

    def should_retry(self, n: int) -> bool:
        """Return whether another attempt follows if the n-th, counted from 1, fails with a retryable code."""
        check_number(n)
        return self.max_attempts is None or n < self.max_attempts

    def total_bounds(self, waits: int | None = None) -> tuple[float, float]:
        """Return the smallest and largest possible totals of the waits in one call, in seconds.

        The attempts themselves take additional time; `deadline` bounds both.

        Args:
            waits: the number of waits; by default, one less than `max_attempts`. If attempts are unlimited, the total
                is the deadline, or infinity if there is none.
        """
        if waits is None:
            waits = None if self.max_attempts is None else self.max_attempts - 1
        from grpc_backoff.policy.schedule import totals  # noqa: PLC0415 - calls do not need it

        low, high = (math.inf, math.inf) if waits is None else totals(self, waits)
        deadline = math.inf if self.deadline is None else self.deadline
        return min(low, deadline), min(high, deadline)


Retry = RetryPolicy | str
"""A policy, the name of a preset or of a policy in the file, or a policy string, which contains a colon."""
