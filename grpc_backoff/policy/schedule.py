"""A policy's schedule as a table: each wait with its bounds, and running totals.

All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

_MOST_ROWS = 24


class Bounded(Protocol):
    """A policy whose waits have bounds: a backoff, a retry policy, or a connect policy, whose waits are gaps."""

    def nominal(self, n: int, /) -> float:
        """Return the n-th wait without jitter, in seconds."""
        ...

    def expected(self, n: int, /) -> float:
        """Return the mean of the n-th wait, jitter included, in seconds."""
        ...

    def bounds(self, n: int, /) -> tuple[float, float]:
        """Return the smallest and largest possible n-th wait, in seconds."""
        ...


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


def schedule(policy: Bounded, rows: int) -> list[Row]:
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


def usual_length(policy: Bounded, max_attempts: int | None) -> int:
    """Return how many rows are enough to show the whole schedule.

    If there are several attempts and a row for each fits on a screen, the last row shows the wait that one more attempt
    would need. Otherwise, the rows end with the first wait that equals its successor, or when the screen is full.
    """
    if max_attempts is not None and 1 < max_attempts <= _MOST_ROWS:
        return max_attempts
    rows = 1
    while rows < _MOST_ROWS and policy.bounds(rows) != policy.bounds(rows + 1):
        rows += 1
    return rows
