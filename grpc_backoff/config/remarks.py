"""What of a policy has no effect, or asks for trouble, said at the line of the program that asked for it (BP-2)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator

from grpc_backoff.errors import PolicyWarning
from grpc_backoff.policy.retry import RetryPolicy

__all__ = ["doubts", "warn_of"]

_MOST_WITHOUT_DELAY = 10
"""As many retries that follow at once are a way to outlast a moment; more are an attack on a server in trouble."""

_PACKAGE = __name__.partition(".")[0]


def warn_of(remarks: Iterable[str]) -> None:
    """Warn of each remark, at the nearest line that is not this package's own."""
    for remark in remarks:
        warnings.warn(remark, PolicyWarning, stacklevel=_outside())


def doubts(policy: RetryPolicy, *, bounded: bool) -> Iterator[str]:
    """Say what of a policy makes calls that go on and on: retries without delay, and without any end.

    Args:
        policy: how a call is retried.
        bounded: whether the call has a deadline, its policy's or its caller's.
    """
    attempts = "unlimited" if policy.max_attempts is None else policy.max_attempts
    many = policy.max_attempts is None or policy.max_attempts - 1 > _MOST_WITHOUT_DELAY
    if many and not policy.bounds(1)[1]:
        yield f"max_attempts={attempts}: expected a delay, or at most {_MOST_WITHOUT_DELAY} retries without one"
    if policy.max_attempts is None and not bounded:
        yield f"max_attempts={attempts}: expected a deadline, a timeout of the call, or a number of attempts"


def _outside() -> int:
    """Return the stack level of the nearest caller outside of this package, as seen from the caller of this function.

    A policy can be asked for at many depths: by a channel, for one of its methods, for one call. From Python 3.12 on
    `skip_file_prefixes` does this.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
