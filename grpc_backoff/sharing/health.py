"""The shell around the machine that watches the health of one connection, for both APIs (RO-1).

The machine (`pool/health.py`) decides when a stream is begun. How one is read is up to the pool of each API.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from grpc_backoff import stepping
from grpc_backoff.connection.clock import TimerHandle
from grpc_backoff.policy.backoff import Random
from grpc_backoff.pool import health as m
from grpc_backoff.stepping import Stepper


class HealthKeeper(Protocol):
    """What a Watch needs from the pool of its connection; everything runs where the pool's machine is stepped."""

    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` when the channel's clock reaches `when`, in seconds."""
        ...

    def now(self) -> float:
        """Return the time on the channel's clock, in seconds."""
        ...

    def listen(self, connection: Any, request: bytes, hear: Callable[[m.Answered | m.Ended], None]) -> Any:
        """Begin a stream on a connection that is up; return a function that cancels it."""
        ...

    def rest(self, number: int, connection: Any) -> None:
        """Close the connection of a slot, because no call has used it within the idle timeout."""
        ...


class HealthWatch(Stepper[m.WatchInput, m.WatchEffect]):
    """Steps the machine that watches the health of one connection.

    Attributes:
        connection: the connection.
        tell: called with each change: why the server is not serving; empty if it is.
        state: the machine's state.
    """

    def __init__(
        self,
        keeper: HealthKeeper,
        number: int,
        connection: Any,
        machine: m.WatchMachine,
        service: str,
        rng: Random,
        tell: Callable[[str], None],
        prove_within: float = math.inf,
    ) -> None:
        """Prepare to watch the connection of the slot `number`; `prove_within` is as in `WatchMachine.begin`."""
        super().__init__()
        self.connection = connection
        self.tell = tell
        self.state = machine.begin(keeper.now(), prove_within)
        self._keeper = keeper
        self._number = number
        self._machine = machine
        self._request = m.request_for(service)
        self._rng = rng
        self._timer: TimerHandle | None = None
        self._cancel: Callable[[], object] | None = None

    def look(self) -> None:
        """Begin to watch, or do what is due."""
        self._timer = None
        self.feed(m.WatchTimerFired(self.connection.last_used(), self.connection.alive()))

    def _hear(self, given: m.Answered | m.Ended) -> None:
        self.feed(given._replace(alive=self.connection.alive()) if isinstance(given, m.Ended) else given)

    def _step(self, given: m.WatchInput) -> Sequence[m.WatchEffect]:
        self.state, effects = self._machine.step(self.state, given, self._keeper.now(), self._rng)
        return effects

    def _carry_out(self, effect: m.WatchEffect) -> None:
        match effect:
            case m.BeginStream():
                self._cancel = self._keeper.listen(self.connection, self._request, self._hear)
            case m.EndStream():
                if self._cancel is not None:
                    self._cancel()
                    self._cancel = None
            case m.Tell(problem):
                self.tell(problem)
            case m.GoIdle():
                self._keeper.rest(self._number, self.connection)
            case stepping.ArmTimer(at):
                self._cancel_timer()
                self._timer = self._keeper.at(at, self.look)
            case stepping.CancelTimer():
                self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
