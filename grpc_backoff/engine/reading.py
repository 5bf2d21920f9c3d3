"""Attempts whose credentials are read first (PO-10)."""

from __future__ import annotations

from typing import Any

from grpc_backoff.base.status import Failure
from grpc_backoff.config.credentials import CredentialsSource, Outcome
from grpc_backoff.connection.connector import AttemptInFlight
from grpc_backoff.engine.core_connector import BaseConnector, Tell, unheard
from grpc_backoff.engine.credentials import time_to_read, too_slow


class ReadingAttempt:
    """An attempt whose credentials are read first. Everything runs at the connector's home."""

    def __init__(self, owner: BaseConnector[Any], source: CredentialsSource, limit: float, tell: Tell) -> None:
        """Start to read; `limit` is the time limit of the whole attempt, in seconds."""
        home, most = owner.home, time_to_read(limit)
        self._owner = owner
        self._ends = home.now() + limit
        self._tell = tell
        self._dial: AttemptInFlight | None = None
        self._timer = home.call_at(home.now() + most, lambda: self._read(too_slow(most)))
        source.read(lambda outcome: home.post(lambda: self._read(outcome)))

    def _read(self, outcome: Outcome) -> None:
        tell, self._tell = self._tell, unheard
        self._timer.cancel()
        if tell is unheard:
            return  # it has timed out, or was abandoned
        if isinstance(outcome, Failure):
            tell(outcome)
        else:
            self._owner.credentials = outcome
            self._dial = self._owner.dial_late(self._ends - self._owner.home.now(), tell)

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been reported yet."""
        return self._dial is not None and self._dial.decided()

    def abandon(self) -> None:
        """Abandon the attempt; a function of the program that reads credentials may go on."""
        self._tell = unheard
        self._timer.cancel()
        if self._dial is not None:
            self._dial.abandon()
