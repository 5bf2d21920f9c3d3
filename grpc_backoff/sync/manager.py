"""The threaded shell of the machine: carries out its effects and feeds it what happens.

It decides nothing: when to dial is the machine's business, how is the connector's, and what becomes of waiting calls
is their own. All of it runs on the conductor (`conductor.py`), but for what says "from any thread".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from grpc_backoff.connection import machine as m
from grpc_backoff.connection.clock import Clock
from grpc_backoff.connection.connector import Loss
from grpc_backoff.connection.events import ConnectionEvent, Failure, Stage, State
from grpc_backoff.policy.backoff import Random
from grpc_backoff.record import replace
from grpc_backoff.sharing.manager import SteppedManager
from grpc_backoff.sharing.registry import SCHEDULES, Registry
from grpc_backoff.sync.conductor import Conductor

__all__ = ["ConnectionManager", "Dialler", "LiveConnection", "Observer", "PendingDial", "Waiting"]

_LOG = logging.getLogger(__name__)

_LOOKS_AGAIN_AFTER = 0.02
"""When to ask again how a connection ended that the connector is still finding out about, in seconds."""


class LiveConnection(Protocol):
    """A connection on which the server's SETTINGS frame arrived."""

    def alive(self) -> bool:
        """Return whether it still stands, as far as is known at this moment; never blocks. From any thread."""
        ...

    def last_used(self) -> float:
        """Return when a call last used it; minus infinity if none did."""
        ...

    def loss(self) -> Loss | None:
        """Return how it ended; None while it stands, or while that is still being found out."""
        ...

    def retire(self) -> None:
        """Take no new calls; end when the running ones have."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=LiveConnection)
ConnectionT_co = TypeVar("ConnectionT_co", bound=LiveConnection, covariant=True)


class PendingDial(Protocol):
    """An attempt in flight."""

    def decided(self) -> bool:
        """Return whether it has its outcome, though that has yet to be told; never blocks."""
        ...

    def abandon(self) -> None:
        """Give it up: nothing is told any more."""
        ...


class Dialler(Protocol[ConnectionT_co]):
    """Makes connections to one target."""

    def connect(self, limit: float, tell: Callable[[Any], None]) -> PendingDial:
        """Begin one attempt of `limit` seconds; `tell` is called on the conductor with its connection or `Failure`."""
        ...


class Waiting(Protocol):
    """Where calls wait for a connection."""

    def __len__(self) -> int:
        """Return how many calls wait."""
        ...

    def release(self) -> None:
        """Let all waiting calls go: there is a connection."""
        ...

    def fail(self) -> None:
        """Tell the waiting calls that a dial failed, which only some of them outlast (CH-3)."""
        ...


class Observer(Protocol):
    """Who is told what happens; it must not run code of the program's here (TH-5a)."""

    def hear(self, event: Any) -> None:
        """Take in an event."""
        ...

    def changed(self, state: State) -> None:
        """Take in a state that the channel has come to."""
        ...


class ConnectionManager(SteppedManager[ConnectionT]):
    """One target's connection: made when wanted, looked at, and made anew when the machine says so."""

    def __init__(
        self,
        machine: m.Machine,
        connector: Dialler[ConnectionT],
        waiting: Waiting,
        observer: Observer,
        *,
        conductor: Conductor,
        clock: Clock,
        rng: Random,
        key: Hashable | None = None,
        schedules: Registry = SCHEDULES,
    ) -> None:
        """Put the parts together; nothing happens before a connection is wanted. In any thread.

        Managers with the same `key` dial by one schedule (SH-3), those of event loops too; with None, a manager has one
        to itself.
        """
        self._connector = connector
        self._waiting = waiting
        self._observer = observer
        self._conductor = conductor
        self._joined = False
        self._attempt: PendingDial | None = None
        self._attempts = 0
        super().__init__(machine, clock=clock, rng=rng, home=conductor, key=key, schedules=schedules)

    # From any thread, as `state` and `status` are.

    def hear(self, news: ConnectionEvent | None) -> None:
        """Take in that another manager has changed the key's schedule, and by which event."""
        self._conductor.post(lambda: self._take_in(news))

    # What the channel asks.

    def want(self) -> None:
        """Ask for a connection; harmless when there is one or one is on its way."""
        if self._state.phase is m.Phase.CLOSED:
            return
        if not self._joined:
            self._joined = True
            self._conductor.join(self)
        self.look()
        self._feed(m.ConnectionWanted())

    def look(self) -> None:
        """Look whether the connection still stands, and tell the machine if it does not."""
        connection = self.connection
        if connection is None or connection.alive():
            return
        loss = connection.loss()
        if loss is None:
            self._conductor.call_at(self._conductor.now() + _LOOKS_AGAIN_AFTER, self.look)
        else:
            self._lost(connection, loss)

    def reset(self) -> None:
        """Forget the backoff and, where asleep, dial at once (CB-9)."""
        self._feed(m.ResetRequested())

    def redialled(self) -> None:
        """Take in that the core has dialled by itself (CB-7)."""
        self._feed(m.CoreRedialled())

    def close(self) -> None:
        """Stop for good (CB-10): no timer, no attempt, no event afterwards. Running calls are not touched."""
        self._feed(m.CloseRequested())
        self._leave()
        self._conductor.unwatch(self)
        self._conductor.leave(self)

    # Driving the machine.

    def _changed(self, state: State) -> None:
        self._observer.changed(state)

    def _later(self, work: Callable[[], None]) -> None:
        self._conductor.post(work)

    def _carry_out(self, effect: m.Effect) -> None:
        match effect:
            case m.StartAttempt():
                self._start(effect.limit)
            case m.AbandonAttempt():
                self._abandon()
            case m.ArmTimer():
                self._cancel_timer()
                # A clock of the program's may call back on any thread.
                self._timer = self._clock.call_at(effect.at, lambda: self._conductor.post(self._timer_fired))
            case m.CancelTimer():
                self._cancel_timer()
            case m.ReleaseCalls():
                self._waiting.release()
            case m.FailCalls():
                self._waiting.fail()
            case m.Emit():
                self._observer.hear(effect.event)

    def _take_in(self, news: ConnectionEvent | None) -> None:
        if self._state.phase is m.Phase.CLOSED:
            return
        if news is not None:
            self._observer.hear(replace(news, channel=self._machine.channel, elsewhere=True))
        self._feed(m.ScheduleChanged(busy=len(self._waiting) > 0))

    def _timer_fired(self) -> None:
        timer = self._timer
        if timer is None:
            return  # it was taken back while it was on its way
        self._timer = None
        decided = self._state.in_flight and self._attempt is not None and self._attempt.decided()
        self._feed(m.TimerFired(busy=len(self._waiting) > 0, decided=decided))

    # One attempt, and the life of its connection.

    def _start(self, limit: float) -> None:
        self._attempts += 1
        number = self._attempts
        try:
            self._attempt = self._connector.connect(limit, lambda outcome: self._ended(number, outcome))
        except Exception as error:  # noqa: BLE001
            # A bug in a connector must not leave the channel waiting for ever: it counts as a failed attempt.
            _LOG.exception("connecting raised")
            self._fail(Failure(Stage.UNKNOWN, repr(error)))
        else:
            self._inputs.append(m.AttemptBegan())

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

    def _fail(self, failure: Failure) -> None:
        self._feed(m.ConnectFailed(failure, busy=len(self._waiting) > 0))

    def _live(self, connection: ConnectionT) -> None:
        self.connection = connection
        self._conductor.watch(self)
        if not connection.alive():  # it is over already, and nobody is to be told that all is well
            self._inputs.append(m.SettingsReceived())
            self._lost(connection, connection.loss() or Loss("it ended as soon as it was there"))
        else:
            self._feed(m.SettingsReceived())

    def _lost(self, connection: ConnectionT, loss: Loss) -> None:
        if connection is not self.connection:
            return  # heard of it already
        self.connection = None
        self._conductor.unwatch(self)
        connection.retire()  # nothing may enter it any more, where grpc's core would dial by itself
        self._feed(
            m.ConnectionLost(
                loss.reason,
                graceful=loss.graceful,
                served=loss.served,
                used=connection.last_used(),
                busy=len(self._waiting) > 0,
            )
        )

    def _abandon(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon()
