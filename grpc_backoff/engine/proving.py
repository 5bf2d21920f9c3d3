"""Attempts of a slot whose server's health is watched: the health of a replacement is awaited (RO-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.engine.core_connector import Informed, SlotConnector, Tell

if TYPE_CHECKING:
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.pool import SlotReceiver


class ProvingAttempt:
    """An attempt of a slot whose server's health is watched: the health of a replacement is awaited (RO-1)."""

    def __init__(self, connector: SlotConnector, receiver: SlotReceiver, home: Home, limit: float, tell: Tell) -> None:
        """Start to dial; `limit` is the time limit of the whole attempt, in seconds."""
        self._receiver = receiver
        self._tell = tell
        self._home = home
        self._ends = home.now() + limit
        self._made: GatedConnection | None = None
        self._attempt = connector.connect(limit, self._ended)

    def _ended(self, outcome: GatedConnection | Failure) -> None:
        pool = self._receiver.pool
        if isinstance(outcome, Failure) or pool is None or not pool.must_prove(self._receiver.number):
            self._tell(outcome)
            return
        self._made = outcome
        pool.healths.prove(pool, self._receiver.number, outcome, self._ends - self._home.now(), self._told)

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
        if self._receiver.pool is not None:
            self._receiver.pool.healths.drop(self._receiver.number)
        made.retire()


class Proving(Informed):
    """The connector of a slot whose server's health is watched."""

    def __init__(self, connector: SlotConnector, receiver: SlotReceiver, home: Home) -> None:
        self._connector = connector
        self._receiver = receiver
        self._home = home

    def connect(self, limit: float, tell: Tell) -> ProvingAttempt:
        """Start one attempt; see `BaseConnector.connect`."""
        self._connector.last_life, self._connector.familiar = self.last_life, self.familiar
        return ProvingAttempt(self._connector, self._receiver, self._home, limit, tell)
