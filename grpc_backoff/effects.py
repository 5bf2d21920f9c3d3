"""Effects that the connection machine and the call machine share; they mean the same in both.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from grpc_backoff.record import record

EventT_co = TypeVar("EventT_co", covariant=True)


@record
class AbandonAttempt(NamedTuple):
    """Abandon the attempt in flight, because its result is no longer needed."""


@record
class ArmTimer(NamedTuple):
    """Arm a timer that sends the machine its timer input at the time `at`; replaces a timer that is already armed."""

    at: float


@record
class CancelTimer(NamedTuple):
    """Cancel the timer, if one is armed."""


@record
class Emit(NamedTuple, Generic[EventT_co]):
    """Send an event to the listeners."""

    event: EventT_co
