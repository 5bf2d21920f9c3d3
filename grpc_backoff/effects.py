"""The effects that both machines ask for, that of a connection and that of a call, each in the same meaning.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from grpc_backoff.record import NamedTuple, record

__all__ = ["AbandonAttempt", "ArmTimer", "CancelTimer", "Emit"]

EventT_co = TypeVar("EventT_co", covariant=True)


@record
class AbandonAttempt(NamedTuple):
    """Give up the attempt in flight: its result is no longer wanted."""


@record
class ArmTimer(NamedTuple):
    """Send the machine its timer's input at this moment; replaces a timer that is armed."""

    at: float


@record
class CancelTimer(NamedTuple):
    """No timer is needed any more."""


@record
class Emit(NamedTuple, Generic[EventT_co]):
    """Tell the listeners."""

    event: EventT_co
