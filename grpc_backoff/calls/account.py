"""The account of a call that was given up (RT-6): how often it was tried, for how long, and why no more."""

from __future__ import annotations

from grpc_backoff.calls.events import Reason, WaitSource
from grpc_backoff.record import NamedTuple, record

__all__ = ["Account"]


@record
class Account(NamedTuple):
    """How a call came to be given up. Times are seconds.

    Attributes:
        attempts: how many attempts were made.
        took: how long they and the waits between them took.
        reason: why there was no other.
        wait: the wait for which there was no time; None if that was not the reason.
        asked_by: how the server asked for that wait; None where the policy's schedule has it.
        left: how much time was left for that wait.
    """

    attempts: int
    took: float
    reason: Reason
    wait: float | None = None
    asked_by: WaitSource | None = None
    left: float | None = None

    def __str__(self) -> str:
        """Give the reason, phrased the same for all such calls, with the figures at the end."""
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        figures = f"{attempts} in {self.took:.3g} s"
        if self.wait is not None and self.left is not None:
            who = "the schedule has" if self.asked_by is None else f"the server asks by {self.asked_by.value} for"
            figures += f"; {who} a wait of {self.wait:.3g} s, {self.left:.3g} s are left"
        return f"gave up: {self.reason.value} ({figures})"
