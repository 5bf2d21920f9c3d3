"""The shell around the connection machine: it executes the machine's effects and feeds the machine inputs.

The shell makes no decisions: the machine decides when to dial, the connector how to dial, and the pending calls what
happens to them. Everything runs at the manager's home, except methods that are marked as thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from grpc_backoff.base import stepping
from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import IDLED, ConnectionStatus, Failure, Loss, Stage, State
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.engine.gate import Reporting
from grpc_backoff.engine.registry import SCHEDULES, Membership, Registry, ScheduleGroup
from grpc_backoff.policy.backoff import Random

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.connection.connector import AttemptInFlight, CallbackConnector, LiveConnection
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.slot import SlotReceiver

_LOG = Log(__name__)
_CLOSED = m.ConnectionPhase.CLOSED  # up to Python 3.11, access to a member is slow

_MOST_NOTICES = 64
"""How many notices are kept for a home that does not run at the moment; only the latest ones matter."""

ConnectionT = TypeVar("ConnectionT", bound="LiveConnection")


class ConnectionManager(Stepper[m.Input], Generic[ConnectionT]):
    """Manages one target's connection: makes it when wanted, watches it, and replaces it as the machine decides.

    Attributes:
        connection: the connection that calls may use; None unless READY. It may just have ended, so check `alive`.
        draining: the connection of a retired manager, which may still have calls.
        replaced: whether another slot of the pool has taken, or is about to take, the place of this one (PO-3).
    """

    replaced = False
    _used = -math.inf
    """When a call last used a connection that has ended."""
    _state = m.ConnectionState(phase=m.ConnectionPhase.CLOSED)
    """The machine's state; closed until the manager is complete, because other threads may deliver notices before."""

    def __init__(
        self,
        machine: m.ConnectionMachine,
        connector: CallbackConnector[ConnectionT],
        receiver: SlotReceiver,
        *,
        home: Home,
        clock: Clock,
        rng: Random,
        key: Hashable | None = None,
        beside: Membership | None = None,
        schedules: Registry = SCHEDULES,
    ) -> None:
        """Assemble the parts; nothing happens before a connection is wanted. Thread-safe.

        Managers with the same `key` share one schedule (SH-3), wherever they live; if `key` is None, the manager has
        its own schedule, or that of `beside`.
        """
        super().__init__()
        self._connector = connector
        self._home = home
        self._attempt: AttemptInFlight | None = None
        self._attempts = 0
        self._notices: list[Happened | None] = []
        self._notices_posted = False
        self.connection: ConnectionT | None = None
        self.draining: ConnectionT | None = None
        self._machine = machine
        self._receiver = receiver
        self._clock = clock
        self._rng = rng
        self._to_tell: list[Happened | None] = []
        # Last, in this order, because other threads may deliver notices from then on.
        self.membership = schedules.join(key, self.hear, home, clock.now(), beside)
        self._state = m.ConnectionState(schedule=self.membership.group.schedule, member=self.membership.number)

    # For the channel.

    @property
    def state(self) -> State:
        """The channel's current state; IDLE if the connection has ended, even if that has not been handled yet."""
        return self._shown(self._state)

    def _shown(self, state: m.ConnectionState) -> State:
        connection = self.connection
        gone = connection is not None and not connection.alive()
        return State.IDLE if gone else state.phase.state

    @property
    def is_paid(self) -> bool:
        """Whether an answer, or credit, has paid for the latest connection, or for the next (CB-7)."""
        return self._state.is_paid

    @property
    def started(self) -> float:
        """When the latest attempt started, in seconds on the channel's clock."""
        return self._state.started

    @property
    def made(self) -> int:
        """How many connections were made."""
        return self._state.connections

    def last_used(self) -> float:
        """Return when a call last used a connection, as far as is known; any thread may call this."""
        connection = self.connection
        return self._used if connection is None else max(self._used, connection.last_used())

    def want(self) -> None:
        """Ask for a connection; harmless if there already is one, or if one is being made."""
        if self._state.phase is _CLOSED:
            return
        if self.connection is not None:
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

    def live_connection(self) -> ConnectionT | None:
        """Return the connection if it is up right now; if it has ended, notify the machine and return None."""
        connection = self.connection
        if connection is None or connection.alive():
            return connection
        # Calls may notice the loss first. They must not be assigned to a dead connection, because grpc's core would
        # redial for them by itself.
        self.look()
        return None

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
        self.membership.leave(self._clock.now(), self._machine.policy.initial_backoff)

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connection belongs to another process (FK-1)."""
        self._cancel_timer()
        self._state = self._state._replace(phase=m.ConnectionPhase.CLOSED)
        self.connection = self.draining = None

    def status(self) -> ConnectionStatus:
        """Return the channel's status (CH-11). Any thread may call this, because it changes nothing."""
        state = self._state  # read once, because another thread may step the machine meanwhile
        start = state.next_start
        return ConnectionStatus(
            state=self._shown(state),
            attempt=state.attempt,
            in_flight=state.in_flight or state.awaits_turn,
            last_error=state.failure,
            next_attempt_in=None if start is None else max(0.0, start - self._clock.now()),
            ready_since=state.ready_since,
            made=state.connections,
        )

    # Driving the machine.

    def _step(self, input_: m.Input) -> bool | None:
        group = self.membership.group
        with self.membership.lock:
            if group.stepping:  # a signal handler or a finalizer has interrupted another manager's step in this thread
                self._inputs.insert(0, input_)
                self._home.post(self._drain)
                return True
            group.stepping = True
            try:
                before, effects = self._state, self._decide(input_, group)
            finally:
                group.stepping = False
        now = self._state
        if now.phase is not m.ConnectionPhase.READY:
            self.connection = None
        if now.phase.state is not before.phase.state:
            self._receiver.changed(now.phase.state)
        for effect in effects:
            self._carry_out(effect)
        return None

    def _carry_out(self, effect: m.Effect) -> None:
        match effect:  # the effects of a failed attempt first: each case takes time
            case stepping.Emit():
                self._receiver.hear(effect.event)
            case stepping.ArmTimer():
                self._cancel_timer()
                self._timer = self._clock.call_at(effect.at, self._due)
            case m.TellOthers():
                self._to_tell.append(effect.event)  # sent last: a new connection may end at once
            case m.FailCalls():
                self._receiver.fail()
            case m.StartAttempt():
                self._connector.last_life, self._connector.familiar = effect.last_life, effect.familiar
                self._start(effect.limit)
            case stepping.AbandonAttempt():
                attempt, self._attempt = self._attempt, None
                if attempt is not None:
                    attempt.abandon()
            case stepping.CancelTimer():
                self._cancel_timer()
            case m.ReleaseCalls():
                self._receiver.release()

    def _drained(self) -> None:
        notices, self._to_tell = self._to_tell, []
        for event in notices:
            self.membership.tell_others(event)

    def _decide(self, input_: m.Input, group: ScheduleGroup) -> Sequence[m.Effect]:
        if self._state.phase is _CLOSED:
            return ()  # closed is final; later inputs are ignored
        now = self._clock.now()
        state = self._state
        if state.schedule is not group.schedule:
            state = state._replace(schedule=group.schedule)
        self._state, effects = self._machine.step(state, input_, now, self._rng)
        group.schedule = self._state.schedule
        return effects

    # Inputs.

    @property
    def _is_busy(self) -> bool:
        return len(self._receiver) > 0

    def _due(self) -> None:
        if self._timer is not None and self._home.is_here():
            self._timer_fired()
        else:  # a clock supplied by the program may call back on any thread, and before `call_at` has returned
            self._home.post(self._timer_fired)

    def _timer_fired(self) -> None:
        if self._timer is None:
            return  # cancelled after it had been posted
        self._timer = None
        decided = self._state.in_flight and self._attempt is not None and self._attempt.decided()
        self.feed(m.TimerFired(busy=self._is_busy, decided=decided))

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
        if isinstance(connection, Reporting):
            connection.answered = self._answered  # it pays for the next attempt (CB-7)
        loss = connection.loss()  # which may make the connector call `look`, before the machine knows of the connection
        self.connection = connection
        if loss is not None:  # it has already ended, so do not report success
            self._inputs.append(m.SettingsReceived())
            self._lost(connection, loss)
        else:
            self.feed(m.SettingsReceived())

    def _fail(self, failure: Failure) -> None:
        self.feed(m.ConnectFailed(failure, busy=self._is_busy))

    def _lost(self, connection: ConnectionT, loss: Loss) -> None:
        if connection is not self.connection:
            return  # already handled
        self.connection = None
        connection.retire()  # no more calls: grpc's core would redial for them
        used = connection.last_used()
        self._used = max(self._used, used)
        self.feed(m.ConnectionLost(loss, used=used, busy=self._is_busy, replaced=self.replaced))

    def rest(self, connection: ConnectionT | None = None) -> None:
        """Close the connection, if it still is the one given, because no call uses it (CB-14)."""
        if (current := connection or self.connection) is not None:
            self._lost(current, Loss(IDLED, graceful=True))

    def _answered(self) -> None:
        self.feed(m.AnswerReceived())

    def redialled(self, *, late: bool = False) -> None:
        """Handle a redial by the core; `late` if it follows the attempt in flight, which was to end before (CB-16)."""
        state = self._state
        if self.replaced and state.phase is _CLOSED:
            # A retired connection still has calls, so this is reported.
            self._receiver.hear(self._machine.redial(state, self._clock.now()))
        else:
            self.feed(m.CoreRedialled(late))

    # Notices from other managers of the key (SH-3).

    def hear(self, notice: Happened | None) -> None:
        """Handle a change that another manager made to the schedule; a notice is the event that caused it. Thread-safe.

        Raises:
            RuntimeError: the event loop is closed.
        """
        if self._home.is_closed():
            raise RuntimeError("the event loop is closed")
        self._notices.append(notice)
        del self._notices[:-_MOST_NOTICES]
        if not self._notices_posted:
            self._notices_posted = True
            self._home.post(self._take_in_notices)

    def _take_in_notices(self) -> None:
        self._notices_posted = False
        if self._state.phase is _CLOSED:
            self._notices.clear()
            return
        channel = self._machine.channel
        while self._notices:
            event = self._notices.pop(0)
            own = event is not None and event.fields["channel"] is channel  # its listeners know it
            if event is not None and not own and self._state.phase is not _CLOSED:
                self._receiver.hear(event.changed(channel=channel, elsewhere=True))
        self.feed(m.ScheduleChanged(busy=self._is_busy))
