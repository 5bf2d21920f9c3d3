"""The watches over a pool's connections and over the health of its servers, for both APIs (LV-1 to LV-3, RO-1).

They stand apart from the watch over one connection (`liveness.py`, `health.py`), because few channels need that and its
machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.engine.gate import Reporting, unheard
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.pooling import PoolPolicy

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.health import HealthWatch
    from grpc_backoff.engine.liveness import ConnectionWatch, WatchedPool
    from grpc_backoff.engine.slot import Slot

_LOG = Log(__name__)
_PROXY = (
    "%s: the answer to a liveness call came through a proxy (header %s). If the proxy spreads calls over several "
    "servers, or answers for them, quiet_after says nothing about the server of a running call."
)


def load_liveness() -> None:
    """Import what the watches over connections need, and what they lead to, before there are any (CH-12)."""
    from grpc_backoff.engine import liveness, several_slots  # noqa: F401, PLC0415 - few channels watch their connections


class LivenessWatches(dict[int, "ConnectionWatch"]):
    """The watches over a pool's connections, at most one for each slot, by its number.

    Attributes:
        doubted: the endpoints whose peer was asked whether it is alive and has not answered since (LV-3).
    """

    def __init__(self, policy: PoolPolicy, target: str) -> None:
        super().__init__()
        self.doubted: set[str] = set()
        self._policy = policy
        self._target = target
        self._warned = False

    def watch(self, pool: WatchedPool, slot: Slot[Any, Any]) -> ConnectionWatch | None:
        """Return the watch over a slot's connection, which may be new; None if the slot has no connection."""
        number, connection = slot.number, slot.manager.connection or slot.manager.draining
        watch = self.get(number)
        if connection is None or (watch is not None and watch.connection is connection):
            return watch
        self.drop(number)
        from grpc_backoff.decide.connections.liveness_machine import LivenessMachine  # noqa: PLC0415 - few are watched
        from grpc_backoff.engine.liveness import ConnectionWatch  # noqa: PLC0415

        machine = LivenessMachine(self._policy.quiet_after, self._policy.answer_within)
        made = ConnectionWatch(pool, number, slot.endpoint, connection, machine, self.doubted, self._warn_of_proxy)
        self[number] = made
        if self._policy.quiet_after and isinstance(connection, Reporting):
            connection.unanswered = made.unanswered
        return made

    def _warn_of_proxy(self, header: str) -> None:
        if self._policy.quiet_after and not self._warned:
            self._warned = True
            _LOG.warning(_PROXY, self._target, header)

    def drop(self, number: int) -> None:
        """Watch a slot's connection no longer; harmless if it is not watched."""
        watch = self.pop(number, None)
        if watch is not None:
            watch.left()
            if isinstance(watch.connection, Reporting):  # otherwise, the two would keep each other alive (CB-10)
                watch.connection.unanswered = unheard

    def call_waits(self, connection: object = None) -> None:
        """Ask the peer of a connection that a call has picked, but may not use yet; by default, ask all such peers."""
        for watch in tuple(self.values()):
            if connection is None or watch.connection is connection:
                watch.call_waits()

    def shuts(self, number: int, connection: object) -> bool:
        """Return whether calls keep out of the connection of a slot until its peer has answered."""
        watch = self.get(number)
        return watch is not None and watch.connection is connection and watch.state.shut

    def suspicion(self, number: int) -> tuple[str, bool | None]:
        """Return why the peer of a slot's connection was last asked, and what came of it. Any thread may call this."""
        watch = self.get(number)
        return ("", None) if watch is None else (watch.state.why, watch.state.answered)


class HealthWatches(dict[int, "HealthWatch"]):
    """The watches over the health of a pool's servers, at most one for each slot, by its number (RO-1)."""

    def __init__(self, clock: Clock, policy: ConnectPolicy, service: str | None, rng: Random) -> None:
        """Begin without watches; `service` is whose health the servers tell."""
        super().__init__()
        self._clock = clock
        self._policy = policy
        self._service = service or ""
        self._rng = rng

    def prove(
        self, slot: Slot[Any, Any], connection: GatedConnection, limit: float, tell: Callable[[str], None]
    ) -> None:
        """Tell why the server of a new connection is not serving; empty if it is, or if it is not known in time.

        `limit` is how many seconds are left for the attempt. What is told later means nothing.
        """
        from grpc_backoff.decide.connections.health_machine import PROOF_WITHIN  # noqa: PLC0415 - most channels watch no health

        self._begin(slot, connection, tell, min(PROOF_WITHIN, limit / 2))

    def watch(self, slot: Slot[Any, Any], connection: GatedConnection, tell: Callable[[str], None]) -> None:
        """Watch the health of a connection that is about to serve; the Watch that has proven it goes on."""
        watch = self.get(slot.number)
        if watch is not None and watch.connection is connection:
            watch.tell = tell
        else:
            self._begin(slot, connection, tell)

    def _begin(
        self,
        slot: Slot[Any, Any],
        connection: GatedConnection,
        tell: Callable[[str], None],
        prove_within: float = math.inf,
    ) -> None:
        from grpc_backoff.decide.connections.health_machine import HealthMachine  # noqa: PLC0415 - as above
        from grpc_backoff.engine.health import HealthWatch  # noqa: PLC0415

        self.drop(slot.number)
        machine, rest = HealthMachine(self._policy), slot.manager.rest
        made = HealthWatch(self._clock, connection, machine, self._service, self._rng, tell, rest, prove_within)
        self[slot.number] = made
        made.look()

    def problem(self, number: int) -> str | None:
        """Return why the server of a slot is not serving; empty if it is; None if that is not known."""
        watch = self.get(number)
        return None if watch is None else watch.state.problem

    def drop(self, number: int) -> None:
        """Watch the health of a slot's connection no longer; harmless if it is not watched."""
        watch = self.pop(number, None)
        if watch is not None:
            watch.end()

    def failure(self, number: int | None = None) -> Failure | None:
        """Return why a slot, or the first of all, is unhealthy; None if it is not. Any thread may call this."""
        problems = map(self.problem, tuple(self) if number is None else (number,))
        problem = next(filter(None, problems), None)
        return None if problem is None else Failure(Stage.HEALTH, problem)
