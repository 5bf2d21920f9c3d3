"""What a program can do when a call fails: renew credentials, settle a conflict, note its end (RT-4 to RT-6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpc_backoff.calls.events import Reason
from grpc_backoff.errors import OptionError
from grpc_backoff.record import field, names_of, value

if TYPE_CHECKING:
    import grpc

__all__ = ["FailedCall", "Hook", "RetryHooks", "renewed_metadata"]

_KEY = r"(?a)[0-9a-z_.-]+"


@value(frozen=True, slots=True, kw_only=True)
class FailedCall:
    """An attempt that failed, as a hook sees it.

    Attributes:
        target: the channel's target as it was given.
        method: the method's path, `/package.Service/Method`.
        attempt: which one it was; 1 is the first.
        code: the status code.
        details: what the server says, or grpc.
        trailing_metadata: the pairs of the server's trailing metadata; not shown by `repr`.
        took: the seconds since the call began.
        reason: why there is no further attempt; None where that is not the matter.
        call_id: the call's identifier, as in its events and log lines.
        request: the request as the bytes that were sent, so that a hook can keep it; None for a stream of requests. Not
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


Hook = Callable[[FailedCall], Any]
"""A function or a coroutine function. What it raises is logged, and the call's own error stays what it is."""


@value(frozen=True, slots=True, kw_only=True)
class RetryHooks:
    """What a channel calls when its calls fail, in the context of the call.

    On the asyncio face they run on the event loop. An asynchronous hook is waited for, as long as the call's deadline
    allows; it goes on after that. On the threaded face they are functions, and run in the thread of a blocking call.
    """

    refresh_credentials: Hook | None = None
    """Called when a call is UNAUTHENTICATED for the first time; then the call is made again at once (RT-4).

    It may return metadata, as pairs: they take the place of the pairs with the same keys that the call was made with.
    While it runs, other calls of the channel that are UNAUTHENTICATED wait for it and share what it returns.
    """

    on_conflict: Hook | None = None
    """Called when a call is ABORTED or ALREADY_EXISTS and its policy does not retry that (RT-5)."""

    on_exhausted: Hook | None = None
    """Called when a call is given up although its policy retries such a failure (RT-6)."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called; OptionError says which."""
        for name in names_of(self):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise OptionError(f"RetryHooks.{name}", value, "a function, or None for no hook")


def renewed_metadata(given: Any) -> tuple[tuple[str, str | bytes], ...]:
    """Return the pairs that a hook gave; TypeError, without the values, if grpc would not take them for metadata."""
    try:
        pairs = tuple((key, value) for key, value in given or ())
    except (TypeError, ValueError):
        kind = type(given).__qualname__
        raise TypeError(f"refresh_credentials returned {kind}: expected pairs of metadata, or None") from None
    for key, given_value in pairs:
        if not isinstance(key, str) or not re.fullmatch(_KEY, key):
            raise TypeError(f"refresh_credentials returned key={key!r}: expected lower-case letters, digits and -_.")
        if not isinstance(given_value, bytes if key.endswith("-bin") else str):
            kind = type(given_value).__qualname__
            raise TypeError(
                f"refresh_credentials returned {kind} for {key}: expected bytes for keys in -bin, str for others"
            )
    return pairs
