"""Server hints: what the metadata of a failed call says about when to retry, and which wait follows from it (RT-3).

There are three forms, of which the first that is present counts: gRPC's own trailer `grpc-retry-pushback-ms` (gRFC A6),
a `google.rpc.RetryInfo` among the details of the rich status, and HTTP's `retry-after` (RFC 9110), in seconds or as a
date. RetryInfo is a protobuf message, which is read only if googleapis-common-protos is installed (the extra `status`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import WaitSource
from grpc_backoff.policy.proportional import Proportional, Window

if TYPE_CHECKING:
    from grpc_backoff.policy.retry import RetryPolicy

Metadata = Iterable[tuple[str, str | bytes]]

_PUSHBACK = "grpc-retry-pushback-ms"
STATUS_DETAILS = "grpc-status-details-bin"
_RETRY_AFTER = "retry-after"
_MILLISECONDS = r"(?a)-?\d+"
_SECONDS = r"(?a)\d{1,10}"
_MAX_INT32 = 2**31 - 1
_NANOSECONDS = 1_000_000_000  # in a second


class ServerHint(NamedTuple):
    """A server's request to retry later, or not at all.

    Attributes:
        delay: how many seconds to wait; None means not to retry at all.
        source: the form in which the hint was given.
    """

    delay: float | None
    source: WaitSource


def hint_window(policy: RetryPolicy, hint: ServerHint, left: float | None = None) -> Window:
    """Return the window from which the wait for a server hint is drawn, in seconds (RT-3). The hint must have a delay.

    Many clients may have received the same hint, so up to `server_delay_jitter` is added to it, as far as
    `max_server_delay` and the time left allow. At or above `max_server_delay` there is no room below it: the wait is
    this limit, and the jitter comes on top. With the jitter `proportional(j, then_cap)`, whose waits never exceed a
    cap, it is spread over [limit * (1 - j), limit] instead. gRPC's own pushback is not spread at all.

    Args:
        policy: the policy of the call or operation. Its `server_delay_jitter` turns both kinds of jitter off if it
            is 0.
        hint: the server hint.
        left: the seconds until the deadline; None without one. The window ends there, unless it begins later.
    """
    assert hint.delay is not None, "a hint without a delay means no retry"
    cap = math.inf if policy.max_server_delay is None else policy.max_server_delay
    low = high = min(hint.delay, cap)
    if hint.source is not WaitSource.PUSHBACK and policy.server_delay_jitter:
        jitter = policy.backoff.jitter
        if hint.delay < cap:
            high = min(low + policy.server_delay_jitter, cap)
        elif isinstance(jitter, Proportional) and jitter.then_cap:
            low = jitter.window(cap, cap).low
        else:
            high = cap + policy.server_delay_jitter
    if left is not None:
        high = max(low, min(high, left))
    return Window(low, high - low, high)


def read_hint(trailing: Metadata, initial: Metadata, wall_clock: Callable[[], float]) -> ServerHint | None:
    """Return the server hint in a failed call's metadata; None if there is none that can be parsed.

    Args:
        trailing: the trailing metadata.
        initial: the initial metadata, where proxies put `retry-after`.
        wall_clock: returns the seconds since the epoch; called only if the server gave a date.
    """
    values = dict(iter(trailing))  # `Metadata` of grpcio 1.63 is a mapping that lists pairs
    pushback = values.get(_PUSHBACK)
    if pushback is not None:
        return ServerHint(_read_pushback(pushback), WaitSource.PUSHBACK)
    delay = _read_retry_info(values.get(STATUS_DETAILS))
    if delay is not None:
        return ServerHint(delay, WaitSource.RETRY_INFO)
    delay = _read_retry_after(values.get(_RETRY_AFTER, dict(iter(initial)).get(_RETRY_AFTER)), wall_clock)
    return None if delay is None else ServerHint(delay, WaitSource.RETRY_AFTER)


def load_hints() -> None:
    """Import what hints need, before there is one (CH-12)."""
    from datetime import UTC  # noqa: F401, PLC0415 - few programs have a retry policy
    from email.utils import parsedate_to_datetime  # noqa: F401, PLC0415

    _messages()


def _read_pushback(value: str | bytes) -> float | None:
    """Parse a pushback and return its seconds; None, for no retry, if it is negative or not a 32-bit number."""
    if not isinstance(value, str) or not re.fullmatch(_MILLISECONDS, value) or len(value) > len(str(_MAX_INT32)):
        return None
    milliseconds = int(value)
    return milliseconds / 1000 if 0 <= milliseconds <= _MAX_INT32 else None


@cache
def _messages() -> tuple[type[Any], type[Any], type[Exception]] | None:
    """Return the classes Status and RetryInfo, and the exception for malformed data; None if the extra is missing.

    They are imported with the first policy, because most programs have none and importing protobuf is slow.
    """
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from google.rpc import error_details_pb2, status_pb2  # noqa: PLC0415
    except ImportError:
        return None
    return status_pb2.Status, error_details_pb2.RetryInfo, DecodeError


def _read_retry_info(value: str | bytes | None) -> float | None:
    messages = _messages() if isinstance(value, bytes) else None
    if messages is None:
        return None
    status, retry_info, garbage = messages
    try:
        for detail in status.FromString(value).details:
            if detail.Is(retry_info.DESCRIPTOR):
                info = retry_info.FromString(detail.value)
                if info.HasField("retry_delay"):  # otherwise it only says that a retry is possible
                    return max(0.0, float(info.retry_delay.ToNanoseconds() / _NANOSECONDS))
    except (garbage, UnicodeDecodeError):  # the latter is raised by protobuf's pure-Python implementation
        pass  # not a valid hint
    return None


def _read_retry_after(value: str | bytes | None, wall_clock: Callable[[], float]) -> float | None:
    if not isinstance(value, str):
        return None
    if re.fullmatch(_SECONDS, value):
        return float(value)
    from datetime import UTC  # noqa: PLC0415 - few servers send a date
    from email.utils import parsedate_to_datetime  # noqa: PLC0415

    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    # HTTP dates are in GMT, even in the old formats that do not say so.
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - wall_clock())
