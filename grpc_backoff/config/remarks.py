"""Warns about settings that have no effect or are risky; each warning points to a line of user code (BP-2)."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from grpc_backoff.base.base_errors import PolicyWarning

if TYPE_CHECKING:
    from grpc_backoff.policy.retry import RetryPolicy

_MOST_WITHOUT_DELAY = 10
"""The most retries without delay that cause no warning. They can bridge a momentary failure; more would overload a
struggling server."""

_PACKAGE = __name__.partition(".")[0]


def warn_of(remarks: Iterable[str]) -> None:
    """Issue each warning at the line of the nearest caller outside this package."""
    for remark in remarks:
        with contextlib.suppress(ValueError):  # stderr is closed; of its errors, `warnings` ignores only OSError
            warnings.warn(remark, PolicyWarning, stacklevel=_outside())


def doubts(policy: RetryPolicy, *, bounded: bool) -> Iterator[str]:
    """Yield warnings about policies with many retries without delay, or without any limit on retries.

    `bounded` says whether the call has a deadline, from its policy or its caller.
    """
    attempts = "unlimited" if policy.max_attempts is None else policy.max_attempts
    many = policy.max_attempts is None or policy.max_attempts - 1 > _MOST_WITHOUT_DELAY
    if many and not policy.bounds(1)[1]:
        yield f"max_attempts={attempts}: expected a delay, or at most {_MOST_WITHOUT_DELAY} retries without one"
    if policy.max_attempts is None and not bounded:
        yield f"max_attempts={attempts}: expected a deadline, a timeout for the call, or a limited number of attempts"


def missing_jitter(parts: Collection[str], policy: RetryPolicy, table: str = "") -> Iterator[str]:
    """Yield a warning about a policy that sets neither a jitter nor a preset, and whose waits have no jitter.

    The warning concerns only waits after UNAVAILABLE, with which many clients fail at the same moment. `parts` are
    those that the policy sets. `table` is the table of the file that describes it; empty for a policy string.
    """
    low, high = policy.bounds(1)
    retried = policy.max_attempts != 1 and "UNAVAILABLE" in policy.codes
    if retried and {"jitter", "preset"}.isdisjoint(parts) and 0 < low == high:
        form = 'jitter = "{}"' if table else "'jitter: {}'"
        meant = f"add {form.format('full')}, or {form.format('none')} if that is meant"
        yield f"{table or 'a policy string'} without jitter: clients that fail together retry together; {meant}"


def _outside() -> int:
    """Return the stack level of the nearest caller outside this package, as seen from the caller of this function.

    The level varies, because a policy can be requested for a channel, for one of its methods or for one call. From
    Python 3.12 on, `skip_file_prefixes` does the same.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
