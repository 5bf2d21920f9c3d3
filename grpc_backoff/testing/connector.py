"""A connector with a script: no sockets, every outcome at its own moment of a fake clock."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.testing.clock import FakeClock

__all__ = ["Attempt", "Fails", "Hangs", "ScriptedConnection", "ScriptedConnector", "Succeeds"]

_REFUSED = Failure(Stage.TCP, "connection refused")


@dataclass(frozen=True, slots=True)
class Succeeds:
    """SETTINGS arrives after so many seconds."""

    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Fails:
    """The attempt fails after so many seconds."""

    after: float = 0.0
    failure: Failure = _REFUSED


@dataclass(frozen=True, slots=True)
class Hangs:
    """Nothing ever happens."""


@dataclass(slots=True)
class Attempt:
    """One attempt as the connector saw it; `outcome` is None while it runs, "cancelled" when it was given up."""

    at: float
    limit: float
    outcome: str | None = None


class ScriptedConnection:
    """A `Connection` that the test ends."""

    def __init__(self) -> None:
        """Begin as an established connection."""
        self.retired = False
        self.used = -math.inf
        self._end: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()
        self._tell: Callable[[], None] | None = None

    def end(self, reason: str = "closed by the script", *, graceful: bool = False, served: bool = False) -> None:
        """Lose the connection."""
        if not self._end.done():
            self._end.set_result(Loss(reason, graceful=graceful, served=served))

    def redial(self) -> None:
        """Dial unasked, once the connection has ended, as grpc's core does for a call that was entering.

        RuntimeError while the connection stands.
        """
        if self._tell is None:
            raise RuntimeError("only a connection that has ended can be dialled anew")
        self._tell()

    def alive(self) -> bool:
        """Return whether `end` was not called yet."""
        return not self._end.done()

    def last_used(self) -> float:
        """Return what the test set as `used`: a moment on the script's clock."""
        return self.used

    def loss(self) -> Loss | None:
        """Return what `end` said."""
        return self._end.result() if self._end.done() else None

    async def lost(self) -> Loss:
        """Return once `end` was called."""
        return await asyncio.shield(self._end)

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """Tell of each `redial`, for ever."""
        self._tell = tell
        await asyncio.get_running_loop().create_future()

    def retire(self) -> None:
        """Set `retired`."""
        self.retired = True


class ScriptedConnector:
    """A `Connector` whose attempts end as the script says; when it runs out, the last outcome goes on for ever.

    Attributes:
        attempts: every attempt so far.
        connections: every connection made so far.
        clock: what its outcomes are timed by.
        known: what `decided` returns.
    """

    def __init__(self, clock: FakeClock, script: Iterable[Succeeds | Fails | Hangs]) -> None:
        """Take the outcomes, one for each attempt."""
        self.attempts: list[Attempt] = []
        self.connections: list[ScriptedConnection] = []
        self.closed = False
        self.known = False
        self.clock = clock
        self._script = list(script)

    def play(self, script: Iterable[Succeeds | Fails | Hangs]) -> None:
        """Go on with another script, from the next attempt on."""
        self._script = list(script)

    async def connect(self, limit: float, *, proven: bool = False) -> ScriptedConnection:  # noqa: ARG002 - no script has it
        """Make one attempt by the script."""
        attempt = Attempt(self.clock.now(), limit)
        self.attempts.append(attempt)
        outcome = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        try:
            return await self._play(outcome, attempt)
        except asyncio.CancelledError:
            attempt.outcome = "cancelled"
            raise

    def decided(self) -> bool:
        """Return what the test set; `connect` has returned everything else."""
        return self.known

    async def close(self, grace: float | None) -> None:  # noqa: ARG002 - the protocol's
        """Set `closed`."""
        self.closed = True

    async def _play(self, outcome: Succeeds | Fails | Hangs, attempt: Attempt) -> ScriptedConnection:
        if isinstance(outcome, Hangs):
            await asyncio.get_running_loop().create_future()
        else:
            await self.clock.sleep(outcome.after)
        if isinstance(outcome, Fails):
            attempt.outcome = "failed"
            raise ConnectError(outcome.failure)
        attempt.outcome = "connected"
        connection = ScriptedConnection()
        self.connections.append(connection)
        return connection
