"""The events of a ledger: frozen records without payload, metadata or tokens (RT-11). Times are in seconds."""

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
    """The fields that all events of an operation have.

    Attributes:
        operation_id: the operation's id.
        target: the operation's target.
        method: the path of its method.
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
    """The attempt succeeded, and the success is recorded."""


@value(frozen=True, slots=True, kw_only=True)
class OperationRetried(OperationEvent):
    """The attempt failed with `code`; the next one is due in `delay` seconds, as determined by `source`."""

    code: str
    delay: float
    source: str


@value(frozen=True, slots=True, kw_only=True)
class OperationLost(OperationRetried):
    """The attempt's deliverer was gone when the lease expired (LG-6)."""


@value(frozen=True, slots=True, kw_only=True)
class OperationExhausted(OperationEvent):
    """The attempt failed with `code`, and the policy has given up: the operation needs manual action (LG-7).

    `reason` is one of the values of `Reason`; None if the policy does not retry this code.
    """

    code: str
    reason: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class OperationConflicted(OperationEvent):
    """The server reported a conflict: the operation needs manual action (LG-8)."""

    code: str


Listener = Callable[[OperationEvent], Any]
"""A function of one event. Exceptions from it are logged and otherwise ignored."""
