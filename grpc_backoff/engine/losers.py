"""The copies of a hedged call that have lost: most end soon by themselves, and only the others are cancelled (HG-11).

On threads, everything but `ended` runs on the conductor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from grpc_backoff.decide.calls.resets import resets_of

if TYPE_CHECKING:
    from grpc_backoff.base.stepping import Cancellable
    from grpc_backoff.engine.environment import CallEnvironment

    class Copy(Cancellable, Protocol):
        """A copy of a call: grpcio's own call."""

        def done(self) -> bool:
            """Return whether it has ended."""


CopyT_co = TypeVar("CopyT_co", bound="Copy", covariant=True)
Copies = dict[int, tuple[CopyT_co, object]]
"""Copies by their numbers, each with the connection that it is on."""


def wait_for_next_copy(
    calls: CallEnvironment, connections: Sequence[object], choose: Callable[[], object | None]
) -> float:
    """Return the seconds until the connection of a call's next copy takes one beside those that run on `connections`.

    `choose` returns that connection; None if there is none.
    """
    now = calls.now()
    if not any(resets_of(connection).hold(now) for connection in connections):
        return 0.0
    connection = choose()
    return 0.0 if connection is None else resets_of(connection).hold(now)


class Losers(Generic[CopyT_co]):
    """The copies of one call that have lost."""

    __slots__ = ("_calls", "_copies", "_timer")

    def __init__(self, calls: CallEnvironment, copies: Copies[CopyT_co]) -> None:
        self._calls = calls
        self._copies = copies
        self._timer: Cancellable | None = None

    def leave(self, at: float | None) -> None:
        """Let the copies run until the time `at`, then cancel them as fast as their connections bear it.

        With None, and while the channel closes, cancel them at once.
        """
        if at is None or self._calls.closing:
            self.cancel()
        else:
            self._calls.losing.add(self)
            self._timer = self._calls.call_at(at, self._due)

    def cancel(self) -> None:
        """Cancel all copies."""
        if self._timer is not None:
            self._timer.cancel()
        self._calls.losing.discard(self)
        for number in tuple(self._copies):
            self._cancel(number)

    def _cancel(self, number: int) -> None:
        attempt = self.ended(number)
        if attempt is not None:
            attempt.cancel()

    def ended(self, number: int) -> CopyT_co | None:
        """Forget a copy that has ended, and return it; None if it has been forgotten already. Thread-safe."""
        attempt, connection = self._copies.pop(number, (None, None))
        if attempt is not None:
            resets_of(connection).waiting.discard(attempt)
        return attempt

    def _due(self) -> None:
        now, waits = self._calls.now(), []
        for number, (attempt, connection) in tuple(self._copies.items()):
            resets = resets_of(connection)
            if attempt.done():
                self.ended(number)
            elif wait := resets.take(now):
                resets.waiting.add(attempt)
                if number not in self._copies:  # it has ended meanwhile, on another thread
                    resets.waiting.discard(attempt)
                waits.append(wait)
            else:
                self._cancel(number)
        if waits:
            self._timer = self._calls.call_at(now + min(waits), self._due)
        else:
            self._calls.losing.discard(self)
