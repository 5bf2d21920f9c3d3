"""A target's remaining retry budget, counted as gRPC's cores count retry throttling (RT-9, gRFC A6)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from grpc_backoff.policy.budget import RetryBudget


Guard = Callable[[], AbstractContextManager[object]]
"""Returns the lock under which tokens are counted."""

_THOUSANDTHS = 1000  # whole numbers, so that ten successes at 0.1 make exactly one token
_DIGITS = 6  # rounds off floating-point error: 1.001 * 1000 is not quite 1001


class RetryTokens:
    """One target's tokens, shared by all channels to the target in this process that have the same budget."""

    def __init__(self, budget: RetryBudget, guard: Guard = nullcontext) -> None:
        self._guard = guard
        self._most = _thousandths(budget.max_tokens)
        self._refund = _thousandths(budget.token_ratio)
        self._left = self._most

    @property
    def left(self) -> float:
        """How many tokens are left."""
        return self._left / _THOUSANDTHS

    @property
    def spent(self) -> bool:
        """Whether at most half of the tokens are left, so that nothing is retried until enough calls succeed."""
        return 2 * self._left <= self._most

    def failed(self) -> None:
        """Take a token for a failure that is retryable, or that the server asks not to retry."""
        with self._guard():
            self._left = max(0, self._left - _THOUSANDTHS)

    def succeeded(self) -> None:
        """Add the tokens for a success."""
        with self._guard():
            self._left = min(self._most, self._left + self._refund)


def _thousandths(tokens: float) -> int:
    return int(round(tokens * _THOUSANDTHS, _DIGITS))


_shared: WeakValueDictionary[tuple[str, RetryBudget], RetryTokens] = WeakValueDictionary()


def tokens_of(target: str, budget: RetryBudget, guard: Guard = nullcontext) -> RetryTokens:
    """Return a target's tokens, which are discarded with the last channel that uses them."""
    with guard():
        tokens = _shared.get((target, budget))
        if tokens is None:
            tokens = _shared[target, budget] = RetryTokens(budget, guard)
        return tokens
