"""The copies of a hedged call that have lost: most end soon by themselves, and only the others are cancelled (HG-11).

On threads, everything but `ended` runs on the conductor.
"""

from __future__ import annotations

from typing import Any

from grpc_backoff.calls.resets import resets_of

Copies = dict[int, tuple[Any, object]]
"""Copies by their numbers, each with the connection that it is on."""


class Losers:
    """The copies of one call that have lost."""

    __slots__ = ("_calls", "_copies", "_timer", "_times")

    def __init__(self, calls: Any, copies: Copies) -> None:
        self._calls = calls
        self._copies = copies
        self._times: dict[int, float] = {}
        self._timer: Any = None

    def leave(self, at: float | None) -> None:
        """Let the copies run until the time `at`, then cancel them as fast as their connections bear it.

        With None, and while the channel closes, cancel them at once.
        """
        if at is None or self._calls.closing:
            self.cancel()
        else:
            self._calls.losing.add(self)
            self._timer = self._calls.wake_at(at, self._due)

    def ended(self, number: int) -> None:
        """Forget a copy that has ended. Thread-safe."""
        self._copies.pop(number, None)

    def cancel(self) -> None:
        """Cancel all copies."""
        if self._timer is not None:
            self._timer.cancel()
        self._calls.losing.discard(self)
        for number in tuple(self._copies):
            self._cancel(number)

    def _cancel(self, number: int) -> None:
        copy = self._copies.pop(number, None)
        if copy is not None:
            copy[0].cancel()

    def _due(self) -> None:
        now, times = self._calls.now(), self._times
        for number, (attempt, connection) in tuple(self._copies.items()):
            if attempt.done():
                self.ended(number)
                continue
            if number not in times:
                times[number] = resets_of(connection).reserve(now)
            if times[number] <= now:
                self._cancel(number)
        later = [times[number] for number in tuple(self._copies) if number in times]
        if later:
            self._timer = self._calls.wake_at(min(later), self._due)
        else:
            self._calls.losing.discard(self)
