"""What a hook is told about a failed call (RT-4 to RT-6). Imported when a method or a call has a policy (CH-12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpc_backoff.base.status import Reason

if TYPE_CHECKING:
    import grpc


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
