"""What happened to a channel's connection, as a person counts it: one record for each attempt.

A channel's events number the attempts of one series and start again at 1 after each success. A log numbers them
through, and knows how they lie in time. Nothing here prints.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from grpc_backoff.connection import events
from grpc_backoff.connection.events import ConnectionEvent, Failure

__all__ = ["AttemptLog", "LoggedAttempt", "Outcome", "Summary"]


class Outcome(enum.Enum):
    """What has become of an attempt."""

    STARTED = "started"
    """It is in flight."""
    FAILED = "failed"
    """It ended without SETTINGS."""
    CONNECTED = "connected"
    """SETTINGS arrived and the connection stands."""
    DISCONNECTED = "disconnected"
    """SETTINGS arrived, and the connection that it made has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """One attempt as far as it is known. Times are seconds.

    Attributes:
        number: counts all attempts, from 1.
        attempt: counts the attempts of its series, from 1, as gRPC's backoff does.
        start: when it started, since the log began.
        gap: from the start of the attempt before to this one's; None for the first.
        limit: how long it may last.
        outcome: what has become of it.
        took: how long it lasted; None while in flight.
        lived: how long its connection stood; None unless that has ended.
        failure: why it failed, or why its connection ended.
        next_in: how long after the failure or loss the next attempt may start; None when none is planned.
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
    """A log as a whole, when it is over: how many attempts and connections, the last error, how many seconds."""

    attempts: int
    connections: int
    last_error: Failure | None
    seconds: float
    ended: str


class AttemptLog:
    """Counts the attempts of one channel.

    Attributes:
        attempts: how many have started.
        ended: how many have failed or connected.
        connections: how many have connected.
        last_error: why the last attempt failed or the last connection ended, also when there is one now.
        latest: the latest attempt; None before the first.
    """

    def __init__(self, origin: float) -> None:
        """Count seconds from `origin`, a moment on the channel's clock."""
        self._origin = origin
        self.attempts = 0
        self.ended = 0
        self.connections = 0
        self.last_error: Failure | None = None
        self.latest: LoggedAttempt | None = None

    def note(self, event: ConnectionEvent, next_in: float | None = None) -> LoggedAttempt | None:
        """Take in an event; return the attempt that it is about, or None if it is about none.

        `next_in` is what the channel's status says of the next attempt; a lost connection's event does not say it.
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
        """Return the whole, at a moment on the channel's clock; `ended` says why it is over."""
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
