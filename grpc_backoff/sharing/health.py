"""The shells around the machines that watch the health of a pool's connections, for both APIs (RO-1).

The machine (`pool/health.py`) decides when a stream is begun. How one is read is up to the connection's gate
(`gate.py`) in each API.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from grpc_backoff import stepping
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.pool import health as m
from grpc_backoff.pool.machine import HealthChanged
from grpc_backoff.sharing.liveness import Keeper
from grpc_backoff.stepping import Stepper


class HealthWatch(Stepper[m.WatchInput, m.WatchEffect]):
    """Steps the machine that watches the health of one connection.

    Attributes:
        connection: the connection.
        tell: called with each change: why the server is not serving; empty if it is.
        state: the machine's state.
    """

    def __init__(
        self,
        keeper: Keeper,
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
                self._cancel = self.connection.core.listen(self._request, self._hear)
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


class HealthWatches:
    """The watches over the health of a pool's servers, at most one for each slot (RO-1).

    It does not keep its pool, the keeper, alive (CB-10).
    """

    def __init__(self, policy: ConnectPolicy, service: str | None, rng: Random) -> None:
        """Begin without watches; `service` is whose health the servers tell."""
        self.watched: dict[int, HealthWatch] = {}
        """The watches, by the number of the slot."""
        self._machine = m.WatchMachine(policy)
        self._service = service or ""
        self._rng = rng

    def prove(self, keeper: Keeper, number: int, connection: Any, limit: float, tell: Callable[[str], None]) -> None:
        """Tell why the server of a new connection is not serving; empty if it is, or if it is not known in time.

        `limit` is how many seconds are left for the attempt. What is told later means nothing.
        """
        self._begin(keeper, number, connection, tell, min(m.PROOF_WITHIN, limit / 2))

    def watch(self, keeper: Keeper, number: int, connection: Any) -> None:
        """Watch the health of a connection that is about to serve; the Watch that has proven it goes on."""

        def tell(problem: str) -> None:
            keeper.feed(HealthChanged(number, problem))

        watch = self.watched.get(number)
        if watch is not None and watch.connection is connection:
            watch.tell = tell
        else:
            self._begin(keeper, number, connection, tell)

    def _begin(
        self, keeper: Keeper, number: int, connection: Any, tell: Callable[[str], None], prove_within: float = math.inf
    ) -> None:
        self.drop(number)
        made = HealthWatch(keeper, number, connection, self._machine, self._service, self._rng, tell, prove_within)
        self.watched[number] = made
        made.look()

    def problem(self, number: int) -> str | None:
        """Return why the server of a slot is not serving; empty if it is; None if that is not known."""
        watch = self.watched.get(number)
        return None if watch is None else watch.state.problem

    def drop(self, number: int) -> None:
        """Watch the health of a slot's connection no longer; harmless if it is not watched."""
        watch = self.watched.pop(number, None)
        if watch is not None:
            watch.feed(m.Unwatched())

    def failure(self, number: int | None = None) -> Failure | None:
        """Return why a slot, or the first of all, is unhealthy; None if it is not. Any thread may call this."""
        problems = map(self.problem, tuple(self.watched) if number is None else (number,))
        problem = next(filter(None, problems), None)
        return None if problem is None else Failure(Stage.HEALTH, problem)
