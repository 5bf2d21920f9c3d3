"""Records what this project's channels report about their dials; see `--hold-ms` in `README.md`."""

from __future__ import annotations

import time

from grpc_backoff import AttemptStarted, ConnectionEvent, CoreRedial
from grpc_judge.clients.peer_program import Announcements

__all__ = ["Announcer"]


class Announcer:
    """A listener that records the attempts and redials that the channel reports."""

    def __init__(self, began: float) -> None:
        """Record times as seconds since `began`, on `time.monotonic`."""
        self.announced = Announcements()
        self._began = began

    def __call__(self, event: ConnectionEvent) -> None:
        """Record the time of an attempt or a redial and ignore other events."""
        if isinstance(event, AttemptStarted):
            self.announced.attempts.append(event.at - self._began)
        elif isinstance(event, CoreRedial):
            self.announced.redials.append(event.at - self._began)

    def closed(self) -> None:
        """Record that the channel has been closed."""
        self.announced.closed = time.monotonic() - self._began
