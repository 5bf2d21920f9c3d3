"""The shell around the machine that watches the health of one connection, and attempts that await it (RO-1).

The machine (`decide/connections/health_machine.py`) decides when a stream is begun. Its messages are read here; how
they come is up to the connection's gate (`gate.py`) in each API.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpc_backoff.base import stepping
from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.connections import health_machine as m
from grpc_backoff.engine.core_connector import SlotConnector, Tell
from grpc_backoff.policy.backoff import Random

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.slot import SlotReceiver

_SAYS = "the server reports {}"
_GARBAGE = "its health service sent no HealthCheckResponse"


class HealthWatch(Stepper[m.HealthInput]):
    """Steps the machine that watches the health of one connection.

    Attributes:
        connection: the connection.
        tell: called with each change: why the server is not serving; empty if it is.
        state: the machine's state.
    """

    def __init__(
        self,
        clock: Clock,
        connection: GatedConnection,
        machine: m.HealthMachine,
        service: str,
        rng: Random,
        tell: Callable[[str], None],
        rest: Callable[[GatedConnection], None],
        prove_within: float = math.inf,
    ) -> None:
        """Prepare to watch a connection, which `rest` closes; `prove_within` is as in `HealthMachine.begin`."""
        super().__init__()
        self.connection = connection
        self.tell = tell
        self.state = machine.begin(clock.now(), prove_within)
        self._clock = clock
        self._rest = rest
        self._machine = machine
        self._request = request_for(service)
        self._rng = rng
        self._cancel: Callable[[], object] | None = None

    def look(self) -> None:
        """Begin to watch, or do what is due."""
        self._timer = None
        self.feed(m.HealthTimerFired(self.connection.last_used(), self.connection.alive()))

    def end(self) -> None:
        """Watch no longer."""
        self.feed(m.Unwatched())

    def _hear(self, said: bytes | m.Ended) -> None:
        if isinstance(said, bytes):
            self.feed(m.Answered(problem_of(said)))
        else:
            self.feed(said._replace(alive=self.connection.alive()))

    def _step(self, input_: m.HealthInput) -> None:
        self.state, effects = self._machine.step(self.state, input_, self._clock.now(), self._rng)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: m.HealthEffect) -> None:
        match effect:
            case m.BeginStream():
                self._cancel = self.connection.listen(self._request, self._hear)
            case m.EndStream():
                if self._cancel is not None:
                    self._cancel()
                    self._cancel = None
            case m.Tell(problem):
                self.tell(problem)
            case m.GoIdle():
                self._rest(self.connection)
            case stepping.ArmTimer(at):
                self._cancel_timer()
                self._timer = self._clock.call_at(at, self.look)
            case stepping.CancelTimer():
                self._cancel_timer()


def request_for(service: str) -> bytes:
    """Return a HealthCheckRequest for a service; empty for the server as a whole."""
    from grpc_health.v1.health_pb2 import HealthCheckRequest  # noqa: PLC0415 - of the extra `health`

    return HealthCheckRequest(service=service).SerializeToString()


def problem_of(message: bytes) -> str:
    """Return why a HealthCheckResponse says that the server is not serving; empty if it is serving."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - as above
    from grpc_health.v1.health_pb2 import HealthCheckResponse  # noqa: PLC0415

    try:
        status = HealthCheckResponse.FromString(message).status
    except DecodeError:
        return _GARBAGE
    names = HealthCheckResponse.ServingStatus
    if status == names.Value("SERVING"):
        return ""
    return _SAYS.format(names.Name(status) if status in names.values() else f"the status {status}")


class ProvingAttempt:
    """An attempt of a slot whose server's health is watched: the health of a replacement is awaited (RO-1)."""

    def __init__(
        self,
        connector: SlotConnector[GatedConnection],
        receiver: SlotReceiver,
        home: Home,
        limit: float,
        tell: Tell[GatedConnection],
    ) -> None:
        """Start to dial; `limit` is the time limit of the whole attempt, in seconds."""
        self._receiver = receiver
        self._tell = tell
        self._home = home
        self._ends = home.now() + limit
        self._made: GatedConnection | None = None
        self._attempt = connector.connect(limit, self._ended)

    def _ended(self, outcome: GatedConnection | Failure) -> None:
        pool, left = self._receiver.pool, self._ends - self._home.now()
        if isinstance(outcome, Failure):
            self._tell(outcome)
            return
        self._made = outcome
        if pool is None or not pool.rules.prove(self._receiver.number, outcome, left, self._told):
            self._told("")

    def _told(self, problem: str) -> None:
        made = self._made
        if made is None:
            return  # it was told before, or abandoned
        if problem:
            self.abandon()
            self._tell(Failure(Stage.HEALTH, problem))
        else:
            self._made = None
            self._tell(made)

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been reported yet."""
        return self._attempt.decided()

    def abandon(self) -> None:
        """Abandon the attempt."""
        made, self._made = self._made, None
        if made is None:
            self._attempt.abandon()
            return
        if (pool := self._receiver.pool) is not None:
            pool.rules.unwatch(self._receiver.number)
        made.retire()


class ProvingConnector:
    """The connector of a slot whose server's health is watched."""

    last_life: float | None = math.inf
    familiar = False

    def __init__(self, connector: SlotConnector[GatedConnection], receiver: SlotReceiver, home: Home) -> None:
        self._connector = connector
        self._receiver = receiver
        self._home = home

    def connect(self, limit: float, tell: Tell[Any]) -> ProvingAttempt:
        """Start one attempt; see `BaseConnector.connect`."""
        self._connector.last_life, self._connector.familiar = self.last_life, self.familiar
        return ProvingAttempt(self._connector, self._receiver, self._home, limit, tell)
