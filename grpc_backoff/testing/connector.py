"""A scripted connector, which uses no sockets: each outcome arrives at a set time on a fake clock."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.testing.clock import FakeClock

_REFUSED = Failure(Stage.TCP, "connection refused")


@dataclass(frozen=True, slots=True)
class Succeeds:
    """The attempt succeeds: SETTINGS arrives after `after` seconds."""

    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Fails:
    """The attempt fails with `failure` after `after` seconds."""

    after: float = 0.0
    failure: Failure = _REFUSED


@dataclass(frozen=True, slots=True)
class Hangs:
    """The attempt never completes."""


@dataclass(slots=True)
class Attempt:
    """One attempt, as the connector saw it.

    It started at `at`, in seconds on the script's clock, and had a time limit of `limit` seconds. `outcome` is None
    while the attempt runs, and then "connected", "failed" or, if it was abandoned, "cancelled".
    """

    at: float
    limit: float
    outcome: str | None = None


class ScriptedConnection:
    """A `Connection` that lasts until the test ends it.

    Attributes:
        retired: whether `retire` was called.
        used: when a call last used the connection, in seconds on the script's clock; minus infinity if none has. A
            scripted channel sets it when a call ends, and so may the test.
    """

    def __init__(self) -> None:
        """Start as an established connection."""
        self.retired = False
        self.used = -math.inf
        self._end: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()
        self._tell: Callable[[], None] | None = None

    def end(self, reason: str = "closed by the script", *, graceful: bool = False, served: bool = False) -> None:
        """End the connection; the arguments make up its `Loss`."""
        if not self._end.done():
            self._end.set_result(Loss(reason, graceful=graceful, served=served))

    def redial(self) -> None:
        """Pretend that grpc's core redialled for a call that was assigned just as the connection ended.

        Raises:
            RuntimeError: the connection has not ended.
        """
        if self._tell is None:
            raise RuntimeError("only a connection that has ended can be redialled")
        self._tell()

    def alive(self) -> bool:
        """Return True until `end` is called."""
        return not self._end.done()

    def last_used(self) -> float:
        """Return `used`."""
        return self.used

    def loss(self) -> Loss | None:
        """Return how the connection ended; None before `end` is called."""
        return self._end.result() if self._end.done() else None

    async def lost(self) -> Loss:
        """Wait until `end` is called and return the loss."""
        return await asyncio.shield(self._end)

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """Call `tell` for each `redial`; never returns."""
        self._tell = tell
        await asyncio.get_running_loop().create_future()

    def retire(self) -> None:
        """Set `retired` to True."""
        self.retired = True


class ScriptedConnector:
    """A `Connector` whose attempts end as the script says; the script's last outcome repeats forever.

    Attributes:
        attempts: every attempt so far.
        connections: every connection made so far.
        clock: the clock that times the outcomes.
        closed: whether `close` was called.
        known: the value that `decided` returns, which the test may set.
    """

    def __init__(self, clock: FakeClock, script: Iterable[Succeeds | Fails | Hangs]) -> None:
        self.attempts: list[Attempt] = []
        self.connections: list[ScriptedConnection] = []
        self.closed = False
        self.known = False
        self.clock = clock
        self.play(script)

    def play(self, script: Iterable[Succeeds | Fails | Hangs]) -> None:
        """Continue with another script from the next attempt on; OptionError if it has other items."""
        outcomes = list(script)
        if not all(isinstance(outcome, Succeeds | Fails | Hangs) for outcome in outcomes):
            raise OptionError("script", script, "a list of Succeeds(), Fails() and Hangs()")
        self._script = outcomes

    async def connect(self, limit: float) -> ScriptedConnection:
        """Make one attempt, which ends as the script says: it returns a connection or raises `ConnectError`."""
        attempt = Attempt(self.clock.now(), limit)
        self.attempts.append(attempt)
        if not self._script:
            raise ConnectError(Failure(Stage.UNKNOWN, "the script of the connector is empty"))
        outcome = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        try:
            if isinstance(outcome, Hangs):
                await asyncio.get_running_loop().create_future()
            else:
                await self.clock.sleep(outcome.after)
        except asyncio.CancelledError:
            attempt.outcome = "cancelled"
            raise
        if isinstance(outcome, Fails):
            attempt.outcome = "failed"
            raise ConnectError(outcome.failure)
        attempt.outcome = "connected"
        connection = ScriptedConnection()
        self.connections.append(connection)
        return connection

    def decided(self) -> bool:
        """Return `known`."""
        return self.known

    async def close(self, grace: float | None) -> None:  # noqa: ARG002 - required by the protocol
        """Set `closed` to True."""
        self.closed = True
