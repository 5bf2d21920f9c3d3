"""The history of a channel's connections, for display: one record for each attempt.

A channel's events number the attempts of one series, and start again at 1 after each success. This log numbers all
attempts consecutively and counts times from its own start. Nothing here prints.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from grpc_backoff.connection import events
from grpc_backoff.connection.events import ConnectionEvent, Failure


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """One attempt, as far as it is known. Times are in seconds.

    Attributes:
        number: its number among all attempts, from 1.
        attempt: its number in its series, from 1, as in gRPC's backoff.
        start: when it started, counted from the start of the log.
        gap: the time from the start of the previous attempt to the start of this one; None for the first.
        limit: its time limit.
        outcome: its outcome so far.
        took: how long it lasted; None while it is in flight.
        lived: how long its connection lasted; None unless the connection has ended.
        failure: why it failed, or why its connection ended.
        next_in: how long after the failure or loss the next attempt may start; None if none is planned.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A log's totals: its attempts and connections, the last error, and its duration in seconds."""

    attempts: int
    connections: int
    last_error: Failure | None
    seconds: float
    ended: str


class AttemptLog:
    """A log of one channel's attempts.

    Attributes:
        attempts: how many attempts have started.
        ended: how many attempts have failed or connected.
        connections: how many attempts have connected.
        last_error: why the last attempt failed or the last connection ended, even if there is a connection now.
        latest: the latest attempt; None before the first.
    """

    def __init__(self, origin: float) -> None:
        """Start a log that counts seconds from `origin`, a time on the channel's clock."""
        self._origin = origin
        self.attempts = 0
        self.ended = 0
        self.connections = 0
        self.last_error: Failure | None = None
        self.latest: LoggedAttempt | None = None

    def note(self, event: ConnectionEvent, next_in: float | None = None) -> LoggedAttempt | None:
        """Record an event; return the attempt that it is about, or None if it is not about an attempt.

        `next_in` is the time to the next attempt. It comes from the channel's status, because the event of a lost
        connection lacks it.
        """
        latest = self.latest
        match event:
            case events.AttemptStarted():
                self.latest = self._started(event)
            case _ if latest is None:
                return None
            case events.AttemptFailed():
                self.latest = replace(
                    latest, outcome=Outcome.FAILED, took=event.took, failure=event.failure, next_in=event.retry_in
                )
                self.ended += 1
                self.last_error = event.failure
            case events.Connected():
                self.latest = replace(latest, outcome=Outcome.CONNECTED, took=event.took)
                self.ended += 1
                self.connections += 1
            case events.Disconnected():
                self.latest = replace(
                    latest, outcome=Outcome.DISCONNECTED, lived=event.lived, failure=event.failure, next_in=next_in
                )
                self.last_error = event.failure
            case _:
                return None
        return self.latest

    def summary(self, now: float, ended: str) -> Summary:
        """Return the totals at this time on the channel's clock; `ended` says why the log ended."""
        return Summary(
            attempts=self.attempts,
            connections=self.connections,
            last_error=self.last_error,
            seconds=now - self._origin,
            ended=ended,
        )

    def _started(self, event: events.AttemptStarted) -> LoggedAttempt:
        self.attempts += 1
        start = event.at - self._origin
        return LoggedAttempt(
            number=self.attempts,
            attempt=event.attempt,
            start=start,
            gap=start - self.latest.start if self.latest else None,
            limit=event.limit,
        )
