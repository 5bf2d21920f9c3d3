"""The threaded shell around the connection machine: it executes the machine's effects and feeds the machine inputs.

The shell makes no decisions: the machine decides when to dial, the connector how to dial, and the pending calls what
happens to them. Everything runs on the conductor (`conductor.py`), except methods that are marked as thread-safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from grpc_backoff.connection.clock import Clock, TimerHandle
from grpc_backoff.connection.connector import LiveConnection, Loss
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.events import ConnectionEvent, Failure, Stage
from grpc_backoff.engine.manager import Receiver, SteppedManager
from grpc_backoff.engine.registry import SCHEDULES, Membership, Registry
from grpc_backoff.policy.backoff import Random
from grpc_backoff.sync.conductor import Conductor

_LOG = logging.getLogger(__name__)


ConnectionT = TypeVar("ConnectionT", bound=LiveConnection)
ConnectionT_co = TypeVar("ConnectionT_co", bound=LiveConnection, covariant=True)


class AttemptInFlight(Protocol):
    """An attempt in flight."""

    def decided(self) -> bool:
        """Return whether the attempt has an outcome that has not been reported yet; never blocks."""
        ...

    def abandon(self) -> None:
        """Abandon the attempt; nothing more is reported about it."""
        ...


class ThreadedConnector(Protocol[ConnectionT_co]):
    """Makes connections to one target."""

    def connect(self, limit: float, tell: Callable[[Any], None]) -> AttemptInFlight:
        """Start an attempt of up to `limit` seconds; call `tell`, on the conductor, with its connection or failure."""
        ...


class ConnectionManager(SteppedManager[ConnectionT]):
    """Manages one target's connection: makes it when wanted, polls it, and replaces it as the machine decides."""

    def __init__(
        self,
        machine: m.Machine,
        connector: ThreadedConnector[ConnectionT],
        receiver: Receiver,
        *,
        conductor: Conductor,
        clock: Clock,
        rng: Random,
        key: Hashable | None = None,
        beside: Membership | None = None,
        schedules: Registry = SCHEDULES,
    ) -> None:
        """Assemble the parts; nothing happens before a connection is wanted. Thread-safe.

        Managers with the same `key` share one schedule (SH-3), even with managers on event loops; if `key` is None, the
        manager has a separate schedule, or that of `beside`.
        """
        self._connector = connector
        self._conductor = conductor
        self._joined = False
        self._attempt: AttemptInFlight | None = None
        self._attempts = 0
        super().__init__(
            machine, receiver, clock=clock, rng=rng, home=conductor, key=key, schedules=schedules, beside=beside
        )

    # Thread-safe, like `state` and `status`.

    def hear(self, news: ConnectionEvent | None) -> None:
        """Handle a change that another manager made to the key's schedule, and the event that caused it."""

        def take_in() -> None:
            if self._state.phase is not m.Phase.CLOSED:
                self._take_in(news)
                self.feed(m.ScheduleChanged(busy=self._is_busy))

        self._conductor.post(take_in)

    # For the channel.

    def want(self) -> None:
        """Ask for a connection; harmless if there already is one, or if one is being made."""
        if self._state.phase is m.Phase.CLOSED:
            return
        if not self._joined:
            self._joined = True
            self._conductor.join(self)
        self.look()
        if self._state.heeds_want(self._clock.now()):
            self.feed(m.ConnectionWanted())

    def look(self) -> None:
        """Check whether the connection is still up; if it has ended, notify the machine.

        The connector calls this once it knows how a connection has ended.
        """
        connection = self.connection
        loss = None if connection is None else connection.loss()
        if connection is not None and loss is not None:
            self._lost(connection, loss)

    def retire(self) -> None:
        """Stop dialling; the connection is closed when the running calls have ended (PO-2)."""
        connection = self.draining = self.connection
        self.replaced = True
        self.close()
        if connection is not None:
            connection.retire()

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        connection = self.connection
        if connection is not None and connection.alive():
            connection.loss()  # it looks for an answer, which lets the key's next connection be used at once (CB-15)
        self.feed(m.CloseRequested())
        self._leave()
        self._conductor.leave(self)

    # Driving the machine.

    def _later(self, work: Callable[[], None]) -> None:
        self._conductor.post(work)

    def _arm(self, at: float) -> TimerHandle:
        # A clock supplied by the program may call back on any thread.
        return self._clock.call_at(at, lambda: self._conductor.post(self._timer_fired))

    def _timer_fired(self) -> None:
        if self._timer is not None:  # not cancelled after it had been posted
            super()._timer_fired()

    # One attempt, and the lifetime of its connection.

    def _start(self, limit: float) -> None:
        self._attempts += 1
        number = self._attempts
        try:
            self._attempt = self._connector.connect(limit, lambda outcome: self._ended(number, outcome))
        except Exception as error:  # noqa: BLE001
            # A bug in a connector must not leave the channel waiting for ever, so treat it as a failed attempt.
            _LOG.exception("an attempt to connect raised an unexpected exception")
            self._fail(Failure(Stage.UNKNOWN, repr(error)))

    def _ended(self, number: int, outcome: ConnectionT | Failure) -> None:
        if number != self._attempts or self._attempt is None:
            if not isinstance(outcome, Failure):
                outcome.retire()
            return
        self._attempt = None
        if isinstance(outcome, Failure):
            self._fail(outcome)
        else:
            self._live(outcome)

    def _live(self, connection: ConnectionT) -> None:
        self.connection = connection
        self._hear_answers(connection)
        if not connection.alive():  # it has already ended, so do not report success
            self._inputs.append(m.SettingsReceived())
            self._lost(connection, connection.loss() or Loss("it ended as soon as it was established"))
        else:
            self.feed(m.SettingsReceived())

    def _is_decided(self) -> bool:
        return self._attempt is not None and self._attempt.decided()

    def _abandon(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon()
