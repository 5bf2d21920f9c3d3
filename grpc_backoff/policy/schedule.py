"""A policy's schedule as a table: each wait with its bounds, and running totals.

All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.strategy import Steps

if TYPE_CHECKING:
    from grpc_backoff.policy.connect import ConnectPolicy
    from grpc_backoff.policy.retry import RetryPolicy

    Waits: TypeAlias = BackoffPolicy | RetryPolicy | ConnectPolicy
    """A policy whose waits have bounds; those of a connect policy are gaps."""

_MOST_ROWS = 24


@dataclass(frozen=True, slots=True)
class Row:
    """One wait of a schedule, in seconds.

    Attributes:
        number: the number of the failure that the wait follows, from 1.
        wait: the wait without jitter.
        low: the smallest possible wait.
        high: the largest possible wait.
        total: the expected total of this wait and all before it: the sum of their means.
        total_low: the smallest possible total.
        total_high: the largest possible total.
    """

    number: int
    wait: float
    low: float
    high: float
    total: float
    total_low: float
    total_high: float


def schedule(policy: Waits, rows: int) -> list[Row]:
    """Return the first `rows` waits of a policy, with bounds and totals."""
    table: list[Row] = []
    total = total_low = total_high = 0.0
    for number in range(1, rows + 1):
        low, high = policy.bounds(number)
        total += policy.expected(number)
        total_low += low
        total_high += high
        table.append(Row(number, policy.nominal(number), low, high, total, total_low, total_high))
    return table


def totals(policy: Waits, waits: int) -> tuple[float, float]:
    """Return the smallest and largest possible totals of so many waits, in seconds."""
    low = high = 0.0
    for number in range(1, waits + 1):
        least, most = policy.bounds(number)
        low, high = low + least, high + most
        if _is_settled(policy, number):
            return low + least * (waits - number), high + most * (waits - number)
    return low, high


def _is_settled(policy: Waits, number: int) -> bool:
    """Return whether this wait and all later ones have the same bounds; two in a list may be alike before others."""
    strategy = (policy if isinstance(policy, BackoffPolicy) else policy.backoff).strategy
    listed = len(strategy.waits) if isinstance(strategy, Steps) else 1
    return number >= listed and policy.bounds(number) == policy.bounds(number + 1)


def usual_length(policy: Waits, max_attempts: int | None) -> int:
    """Return how many rows are enough to show the whole schedule.

    If there are several attempts and a row for each fits on a screen, the last row shows the wait that one more attempt
    would need. Otherwise, the rows end with the first wait that equals all later ones, or when the screen is full.
    """
    if max_attempts is not None and 1 < max_attempts <= _MOST_ROWS:
        return max_attempts
    rows = 1
    while rows < _MOST_ROWS and not _is_settled(policy, rows):
        rows += 1
    return rows
