"""A policy as a table: each wait with its bounds, and what they add up to.

For people: what would happen, before anything does. All times are seconds.
"""

from __future__ import annotations

from typing import Protocol

from grpc_backoff.record import value

__all__ = ["Bounded", "Row", "schedule", "usual_length"]

_MOST_ROWS = 24


class Bounded(Protocol):
    """What has waits with bounds: a backoff, a retry policy, the gaps of a connect policy."""

    def nominal(self, n: int, /) -> float:
        """Return the n-th wait without jitter."""
        ...

    def bounds(self, n: int, /) -> tuple[float, float]:
        """Return the smallest and the largest n-th wait."""
        ...


@value(frozen=True, slots=True)
class Row:
    """One wait of a schedule.

    Attributes:
        number: after which failure it comes, from 1.
        wait: without jitter.
        low: the smallest that it can be.
        high: the largest.
        total_low: the smallest sum of it and all before.
        total_high: the largest.
    """

    number: int
    wait: float
    low: float
    high: float
    total_low: float
    total_high: float


def schedule(policy: Bounded, rows: int) -> list[Row]:
    """Return the first waits of a policy."""
    table: list[Row] = []
    total_low = total_high = 0.0
    for number in range(1, rows + 1):
        low, high = policy.bounds(number)
        total_low += low
        total_high += high
        table.append(Row(number, policy.nominal(number), low, high, total_low, total_high))
    return table


def usual_length(policy: Bounded, max_attempts: int | None) -> int:
    """Return how many rows say all there is to say.

    As many as there are attempts, if there is more than one: the last wait would follow if there were one attempt more.
    Without a limit, up to the first wait that is like the one after it, but no more than a screen holds.
    """
    if max_attempts is not None and 1 < max_attempts <= _MOST_ROWS:
        return max_attempts
    rows = 1
    while rows < _MOST_ROWS and policy.bounds(rows) != policy.bounds(rows + 1):
        rows += 1
    return rows
