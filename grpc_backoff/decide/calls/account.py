"""The account of a call that gave up (RT-6): how many attempts it made, how long they took, and why it gave up."""

from __future__ import annotations

from grpc_backoff.base.record import NamedTuple, record
from grpc_backoff.base.status import Reason, WaitSource


@record
class Account(NamedTuple):
    """Why and when a call gave up. Times are in seconds.

    Attributes:
        attempts: how many attempts were made.
        took: how long the attempts and the waits between them took.
        reason: why no further attempt was made.
        wait: the wait that did not fit before the deadline; None if that was not the reason.
        asked_by: how the server asked for that wait; None if it came from the policy's schedule.
        left: how much time was left until the deadline; None if `wait` is None.
    """

    attempts: int
    took: float
    reason: Reason
    wait: float | None = None
    asked_by: WaitSource | None = None
    left: float | None = None

    def __str__(self) -> str:
        """Return the reason in fixed words, so that errors can be grouped by it, with the figures at the end."""
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        figures = f"{attempts} in {self.took:.3g} s"
        if self.wait is not None and self.left is not None:
            who = "the schedule calls for" if self.asked_by is None else f"the server's {self.asked_by.value} asks for"
            figures += f"; {who} a wait of {self.wait:.3g} s, but only {self.left:.3g} s are left"
        return f"gave up: {self.reason.value} ({figures})"
