"""The watches over the health of a pool's servers, for both APIs (RO-1).

They stand apart from the watch over one connection (`health.py`), because few channels need that and its machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.decide.connections.pool_machine import HealthChanged
from grpc_backoff.engine.liveness import Keeper
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy

if TYPE_CHECKING:
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.health import HealthWatch


class HealthWatches:
    """The watches over the health of a pool's servers, at most one for each slot (RO-1).

    It does not keep its pool, the keeper, alive (CB-10).
    """

    def __init__(self, policy: ConnectPolicy, service: str | None, rng: Random) -> None:
        """Begin without watches; `service` is whose health the servers tell."""
        self.watched: dict[int, HealthWatch] = {}
        """The watches, by the number of the slot."""
        self._policy = policy
        self._service = service or ""
        self._rng = rng

    def prove(
        self, keeper: Keeper, number: int, connection: GatedConnection, limit: float, tell: Callable[[str], None]
    ) -> None:
        """Tell why the server of a new connection is not serving; empty if it is, or if it is not known in time.

        `limit` is how many seconds are left for the attempt. What is told later means nothing.
        """
        from grpc_backoff.decide.connections.health_machine import PROOF_WITHIN  # noqa: PLC0415 - most channels watch no health

        self._begin(keeper, number, connection, tell, min(PROOF_WITHIN, limit / 2))

    def watch(self, keeper: Keeper, number: int, connection: GatedConnection) -> None:
        """Watch the health of a connection that is about to serve; the Watch that has proven it goes on."""

        def tell(problem: str) -> None:
            keeper.feed(HealthChanged(number, problem))

        watch = self.watched.get(number)
        if watch is not None and watch.connection is connection:
            watch.tell = tell
        else:
            self._begin(keeper, number, connection, tell)

    def _begin(
        self,
        keeper: Keeper,
        number: int,
        connection: GatedConnection,
        tell: Callable[[str], None],
        prove_within: float = math.inf,
    ) -> None:
        from grpc_backoff.decide.connections.health_machine import WatchMachine  # noqa: PLC0415 - as above
        from grpc_backoff.engine.health import HealthWatch  # noqa: PLC0415

        self.drop(number)
        machine = WatchMachine(self._policy)
        made = HealthWatch(keeper, number, connection, machine, self._service, self._rng, tell, prove_within)
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
            watch.end()

    def failure(self, number: int | None = None) -> Failure | None:
        """Return why a slot, or the first of all, is unhealthy; None if it is not. Any thread may call this."""
        problems = map(self.problem, tuple(self.watched) if number is None else (number,))
        problem = next(filter(None, problems), None)
        return None if problem is None else Failure(Stage.HEALTH, problem)
