"""What a ledger tells its listeners: frozen records without payload, metadata or token (RT-11). Times are seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpc_backoff.record import value

__all__ = [
    "Listener",
    "OperationConflicted",
    "OperationDelivered",
    "OperationEvent",
    "OperationExhausted",
    "OperationLost",
    "OperationRetried",
]


@value(frozen=True, slots=True, kw_only=True)
class OperationEvent:
    """What every event of an operation has.

    Attributes:
        operation_id: the operation's id.
        target: its target.
        method: its method's path.
        attempt: how many attempts there have been in this series.
        trace_id: the trace in which it was submitted; None if there was none.
    """

    operation_id: str
    target: str
    method: str
    attempt: int
    trace_id: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class OperationDelivered(OperationEvent):
    """The attempt succeeded, and that is recorded."""


@value(frozen=True, slots=True, kw_only=True)
class OperationRetried(OperationEvent):
    """The attempt failed with `code`; the next one is due in `delay` seconds, as `source` set it."""

    code: str
    delay: float
    source: str


@value(frozen=True, slots=True, kw_only=True)
class OperationLost(OperationRetried):
    """The attempt's deliverer was gone when its lease ended (LG-6)."""


@value(frozen=True, slots=True, kw_only=True)
class OperationExhausted(OperationEvent):
    """The attempt failed with `code`, and the policy has given up: the operation waits for somebody (LG-7).

    `reason` is why, in the words of `Reason`; None where the code is one that is not retried.
    """

    code: str
    reason: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class OperationConflicted(OperationEvent):
    """The server answered with a conflict: the operation waits for somebody (LG-8)."""

    code: str


Listener = Callable[[OperationEvent], Any]
"""A function of one event. What it raises is logged and harms nothing."""
