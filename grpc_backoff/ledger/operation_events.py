"""A ledger's events: frozen records without payloads, metadata or tokens (RT-11). Times are in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEvent:
    """The fields that all operation events have.

    Attributes:
        operation_id: the operation's id.
        target: the operation's target.
        method: the path of its method.
        attempt: the number of attempts in this series so far.
        trace_id: the id of the trace in which the operation was submitted; None if there was none.
    """

    operation_id: str
    target: str
    method: str
    attempt: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDelivered(OperationEvent):
    """The attempt succeeded, and the success has been recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRetried(OperationEvent):
    """The attempt failed with `code`; the next one is due in `delay` seconds, as determined by `source`."""

    code: str
    delay: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLost(OperationRetried):
    """The attempt's deliverer was gone when the lease expired (LG-6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationExhausted(OperationEvent):
    """The attempt failed with `code`, and the policy has given up: the operation needs manual action (LG-7).

    `reason` is one of the values of `Reason`; None if the policy does not retry this code.
    """

    code: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationConflicted(OperationEvent):
    """The server reported a conflict: the operation needs manual action (LG-8)."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationExpired(OperationEvent):
    """The operation was not executed before its `not_after` (LG-17)."""


Listener = Callable[[OperationEvent], object]
"""A function that takes one event. Its exceptions are logged and otherwise ignored."""
