"""Hooks: the functions with which a program renews credentials and handles failed calls (RT-4 to RT-6).

Imported when a method, a call or a channel has a policy or a hook (CH-12).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any

import grpc

from grpc_backoff.base.base_errors import OptionError, kind_of
from grpc_backoff.base.record import dataclass
from grpc_backoff.base.status import Reason
from grpc_backoff.policy.checks import METADATA_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCall:
    """A failed attempt, as passed to a hook.

    Attributes:
        target: the channel's target as given.
        method: the method's path, `/package.Service/Method`.
        attempt: the number of the attempt, from 1.
        code: the status code.
        details: the status details, from the server or from grpc.
        trailing_metadata: the server's trailing metadata, as pairs; not shown by `repr`.
        took: the seconds since the call began.
        reason: why there is no further attempt; None except for `on_exhausted`.
        call_id: the call's identifier, as in its events and log lines.
        request: the request in its serialized form, so that a hook can store it; None for a stream of requests. Not
            shown by `repr`.
    """

    target: str
    method: str
    attempt: int
    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...] = field(repr=False)
    took: float
    reason: Reason | None = None
    call_id: str = ""
    request: bytes | None = field(default=None, repr=False)


Hook = Callable[[FailedCall], object]
"""A function or a coroutine function. Its exceptions are logged and do not change the call's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryHooks:
    """The functions that a channel calls when its calls with a retry policy fail, and its subscriptions.

    Calls without a policy, and hedged ones, have no hooks. Each hook runs in the call's `contextvars` context.

    In the asyncio API, hooks run on the event loop. If a hook is a coroutine function, the call waits for the coroutine
    until the call's deadline; the coroutine continues to run after that. In the synchronous API, hooks are plain
    functions, and the hooks of a blocking call run in the thread that made the call.
    """

    refresh_credentials: Hook | None = None
    """Called when a call fails with UNAUTHENTICATED; the first time this happens in a call, the call is retried at once
    (RT-4).

    The hook may return metadata pairs; each replaces any pair of the call that has the same key. While the hook runs,
    other calls on the channel that fail with UNAUTHENTICATED wait for it and share the result.
    """

    on_conflict: Hook | None = None
    """Called when a call fails with ABORTED or ALREADY_EXISTS and its policy does not retry that code (RT-5); not for
    subscriptions."""

    on_exhausted: Hook | None = None
    """Called when a call gives up after a retryable failure (RT-6)."""

    def __post_init__(self) -> None:
        """Check that each hook is callable; OptionError if one is not."""
        for name in (part.name for part in fields(self)):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise OptionError(f"RetryHooks.{name}", value, "a function, or None for no hook")


def renewed_metadata(renewed: Any) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata from a hook; TypeError, which shows no values, if grpc would not accept it."""
    try:
        pairs = tuple((key, value) for key, value in renewed or ())
    except (TypeError, ValueError):
        problem = f"refresh_credentials returned {kind_of(renewed)}: expected (key, value) pairs, or None"
        raise TypeError(problem) from None
    for key, value in pairs:
        if not isinstance(key, str) or not re.fullmatch(METADATA_KEY, key):
            allowed = "only lower-case letters, digits, '-', '_' and '.'"
            raise TypeError(f"refresh_credentials returned key={key!r}: expected {allowed}")
        if not isinstance(value, bytes if key.endswith("-bin") else str):
            said = f"refresh_credentials returned {kind_of(value)} for {key}"
            raise TypeError(f"{said}: expected bytes for keys that end in -bin, and str otherwise")
        if isinstance(value, str) and not (value.isascii() and value.isprintable()):
            raise TypeError(f"refresh_credentials returned a str for {key}: expected printable ASCII characters only")
    return pairs
