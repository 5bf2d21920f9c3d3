"""Warnings about settings that have no effect or are risky, attributed to the program's own line (BP-2)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator

from grpc_backoff.errors import PolicyWarning
from grpc_backoff.policy.retry import RetryPolicy

__all__ = ["doubts", "warn_of"]

_MOST_WITHOUT_DELAY = 10
"""This many immediate retries can bridge a momentary failure; more would be an attack on a struggling server."""

_PACKAGE = __name__.partition(".")[0]


def warn_of(remarks: Iterable[str]) -> None:
    """Issue each warning at the nearest line outside this package."""
    for remark in remarks:
        warnings.warn(remark, PolicyWarning, stacklevel=_outside())


def doubts(policy: RetryPolicy, *, bounded: bool) -> Iterator[str]:
    """Yield warnings about calls that could go on and on: retries without delay, and retries without end.

    Args:
        policy: how a call is retried.
        bounded: whether the call has a deadline, from its policy or its caller.
    """
    attempts = "unlimited" if policy.max_attempts is None else policy.max_attempts
    many = policy.max_attempts is None or policy.max_attempts - 1 > _MOST_WITHOUT_DELAY
    if many and not policy.bounds(1)[1]:
        yield f"max_attempts={attempts}: expected a delay, or at most {_MOST_WITHOUT_DELAY} retries without one"
    if policy.max_attempts is None and not bounded:
        yield f"max_attempts={attempts}: expected a deadline, a timeout of the call, or a number of attempts"


def _outside() -> int:
    """Return the stack level of the nearest caller outside this package, as seen from the caller of this function.

    A policy can be requested at many depths: by a channel, for one of its methods, for one call. From Python 3.12 on,
    `skip_file_prefixes` does the same.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
