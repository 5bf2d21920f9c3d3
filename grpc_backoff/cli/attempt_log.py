"""The history of a channel's connections, one record for each attempt.

A channel's events number the attempts of one series and start again at 1 after each success. The log numbers all
attempts consecutively, whichever of the channel's slots makes them, and counts times from its own start.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.events import ConnectionEvent, Failure
from grpc_backoff.decide.connections.slot_events import SlotClosed


class Outcome(enum.Enum):
    """An attempt's outcome."""

    STARTED = "started"
    """The attempt is in flight."""
    FAILED = "failed"
    """The attempt ended without SETTINGS."""
    CONNECTED = "connected"
    """SETTINGS arrived, and the connection is up."""
    DISCONNECTED = "disconnected"
    """SETTINGS arrived, and the connection has ended since."""
    CLOSED = "closed"
    """The channel has closed the slot: its connection, or else the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """One attempt, as far as it is known. Times are in seconds.

    Attributes:
        number: its number among all attempts, from 1.
        attempt: its number in its series, from 1, as in gRPC's backoff.
        start: when it started, counted from the start of the log.
        gap: the time from the start of the endpoint's previous attempt to the start of this one; None for the first.
        limit: its time limit.
        outcome: its outcome so far.
        took: how long it lasted; None while it is in flight.
        lived: how long its connection lasted; None unless the connection has ended.
        failure: why it failed, or why its connection ended.
        next_in: how long after the failure or loss the next attempt may start; None if none is planned.
        endpoint: the address that is dialled; empty for the whole target.
    """

    number: int
    attempt: int
    start: float
    gap: float | None
    limit: float
    outcome: Outcome = Outcome.STARTED
    took: float | None = None
    lived: float | None = None
    failure: Failure | None = None
    next_in: float | None = None
    endpoint: str = ""


class AttemptLog:
    """A log of one channel's attempts.

    Attributes:
        attempts: how many attempts have started.
        ended: how many attempts have failed or connected.
        connections: how many attempts have connected.
        last_error: why the last attempt failed or the last connection ended, even if there is a connection now.
        origin: when the log started, on the channel's clock.
    """

    def __init__(self, origin: float) -> None:
        self.origin = origin
        self.attempts = 0
        self.ended = 0
        self.connections = 0
        self.last_error: Failure | None = None
        self._latest: dict[int, LoggedAttempt] = {}  # of each slot
        self._starts: dict[str, float] = {}  # of each endpoint's latest attempt

    def note(self, event: ConnectionEvent) -> LoggedAttempt | None:
        """Record an event; return the attempt whose outcome it changes, or None if it changes none."""
        slot, latest = event.slot, self._latest.get(event.slot)
        match event:
            case events.AttemptStarted():
                self.attempts += 1
                start = event.at - self.origin
                before = self._starts.get(event.endpoint)
                self._starts[event.endpoint] = start
                self._latest[slot] = LoggedAttempt(
                    number=self.attempts,
                    attempt=event.attempt,
                    start=start,
                    gap=None if before is None else start - before,
                    limit=event.limit,
                    endpoint=event.endpoint,
                )
            case _ if latest is None:
                return None
            case events.AttemptFailed():
                self._latest[slot] = replace(
                    latest, outcome=Outcome.FAILED, took=event.took, failure=event.failure, next_in=event.retry_in
                )
                self.ended += 1
                self.last_error = event.failure
            case events.Connected():
                self._latest[slot] = replace(latest, outcome=Outcome.CONNECTED, took=event.took)
                self.ended += 1
                self.connections += 1
            case events.Disconnected():
                self._latest[slot] = replace(
                    latest,
                    outcome=Outcome.DISCONNECTED,
                    lived=event.lived,
                    failure=event.failure,
                    next_in=event.retry_in,
                )
                self.last_error = event.failure
            case SlotClosed():
                del self._latest[slot]
                over = latest.outcome in (Outcome.FAILED, Outcome.DISCONNECTED)
                return None if over else replace(latest, outcome=Outcome.CLOSED, lived=event.lived)
            case _:
                return None
        return self._latest[slot]
