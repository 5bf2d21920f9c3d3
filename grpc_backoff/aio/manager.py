"""The asyncio shell of the machine: carries out its effects and feeds it what happens.

It decides nothing: when to dial is the machine's business, how is the connector's, and what becomes of waiting calls
is the queue's. Everything here runs on one event loop; only `reset` may be called from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Hashable, Sequence
from contextvars import Context
from dataclasses import replace
from typing import Any, Generic, Protocol

from grpc_backoff.aio.listeners import Event, Listener, tell
from grpc_backoff.connection import machine as m
from grpc_backoff.connection.clock import Clock, TimerHandle
from grpc_backoff.connection.connector import ConnectError, ConnectionT, Connector, Loss
from grpc_backoff.connection.events import ConnectionEvent, ConnectionStatus, Failure, Stage, State
from grpc_backoff.policy.backoff import Random
from grpc_backoff.sharing.registry import SCHEDULES, Registry

__all__ = ["ConnectionManager", "Pending"]

_LOG = logging.getLogger(__name__)

_MOST_NEWS = 64
"""How much news is kept for a loop that does not run at the moment: the latest, which is what counts."""


class Pending(Protocol):
    """Where calls wait for a connection."""

    def __len__(self) -> int:
        """Return how many calls wait."""
        ...

    def release(self) -> None:
        """Let all waiting calls go: there is a connection."""
        ...

    def fail(self) -> None:
        """Fail the waiting calls that do not outlast a failed attempt (CH-3)."""
        ...


class ConnectionManager(Generic[ConnectionT]):
    """One target's connection: made when wanted, watched, and made anew when the machine says so."""

    def __init__(
        self,
        machine: m.Machine,
        connector: Connector[ConnectionT],
        pending: Pending,
        *,
        clock: Clock,
        rng: Random,
        listeners: Sequence[Listener] = (),
        loop: asyncio.AbstractEventLoop,
        key: Hashable | None = None,
        schedules: Registry = SCHEDULES,
    ) -> None:
        """Put the parts together; nothing happens before a connection is wanted.

        Managers with the same `key` dial by one schedule (SH-3); with None, a manager has one to itself.
        """
        self.listeners: list[Listener] = list(listeners)
        self.connection: ConnectionT | None = None
        """The connection that calls may use; None unless READY. It may have died a moment ago: ask `alive`."""
        self._machine = machine
        self._connector = connector
        self._pending = pending
        self._clock = clock
        self._rng = rng
        self._loop = loop
        self._inputs: deque[m.Input] = deque()
        self._stepping = False
        self._timer: TimerHandle | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._attempts = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchers: list[asyncio.Future[bool]] = []
        self._news: deque[ConnectionEvent | None] = deque(maxlen=_MOST_NEWS)
        self._news_due = False
        self._to_tell: list[ConnectionEvent | None] = []
        # Last: from here on other threads may tell it news.
        self._membership = schedules.join(key, self.hear, loop, clock.now())
        self._state = m.MachineState(key=self._membership.schedule, member=self._membership.number)

    # What the channel asks.

    @property
    def state(self) -> State:
        """The channel's state at this moment; a connection that is gone is not READY, whoever has heard of it yet."""
        connection = self.connection
        gone = connection is not None and not connection.alive()
        return State.IDLE if gone else self._state.state

    def status(self) -> ConnectionStatus:
        """Return what the channel is doing (CH-11). Safe in any thread: it changes nothing."""
        state = self._state
        start = state.next_start
        return ConnectionStatus(
            state=self.state,
            attempt=state.attempt,
            in_flight=state.in_flight or state.awaits_turn,
            last_error=state.failure,
            next_attempt_in=None if start is None else max(0.0, start - self._clock.now()),
            ready_since=state.ready_since,
            connections=state.connections,
        )

    def now(self) -> float:
        """Return the time on the manager's clock."""
        return self._clock.now()

    def want(self) -> None:
        """Ask for a connection; harmless when there is one or one is on its way."""
        if self._state.phase is not m.Phase.CLOSED:
            self._feed(m.ConnectionWanted())

    def live_connection(self) -> ConnectionT | None:
        """Return the connection if it stands at this moment, after telling the machine of one that does not."""
        connection = self.connection
        if connection is None or connection.alive():
            return connection
        # The call path sees a loss before the watcher does: nothing may enter a dead connection, where grpc's core
        # would dial again by itself.
        loss = connection.loss()
        if loss is not None:
            self._lost(connection, loss)
        return None

    async def wait_for_state_change(self, last: State) -> None:
        """Return once the state is, or has been, another than `last`."""
        if self.state is not last:
            return
        while not await self.next_change():
            pass

    async def next_change(self) -> bool:
        """Return once somebody wakes the watchers: True if the state has changed."""
        changed: asyncio.Future[bool] = self._loop.create_future()
        self._watchers.append(changed)
        try:
            return await changed
        finally:
            if changed in self._watchers:
                self._watchers.remove(changed)

    def reset(self) -> None:
        """Forget the backoff and, where asleep, dial at once (CB-9). From any thread, in any state."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._feed(m.ResetRequested())
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the channel with it
                self._loop.call_soon_threadsafe(self._feed, m.ResetRequested())

    def close(self) -> None:
        """Stop for good (CB-10): no timer, no attempt, no event afterwards. Running calls are not touched."""
        connection = self.connection
        self._feed(m.CloseRequested(well=connection is not None and connection.alive()))
        self._membership.leave(self._clock.now(), self._machine.policy.initial_backoff)
        self.listeners.clear()
        for task in self._tasks:
            task.cancel()

    async def closed(self) -> None:
        """Return once the tasks that `close` cancelled have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Driving the machine.

    def _feed(self, given: m.Input) -> None:
        """Step the machine. An effect may lead to further inputs: they wait until the effects before are done."""
        self._inputs.append(given)
        self._drain()

    def _drain(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inputs and self._step(self._inputs[0]):
                pass
        finally:
            self._stepping = False
            told, self._to_tell = self._to_tell, []
            for event in told:
                self._membership.tell_others(event)

    def _step(self, given: m.Input) -> bool:
        """Take the first input in; return False where that has to wait for another manager's step in this thread."""
        membership = self._membership
        with membership.lock:
            if membership.stepping:
                self._loop.call_soon_threadsafe(self._drain)
                return False
            membership.stepping = True
            try:
                self._inputs.popleft()
                before, effects = self._state.state, self._decide(given)
            finally:
                membership.stepping = False
        if self._state.phase is not m.Phase.READY:
            self.connection = None
        for effect in effects:
            self._carry_out(effect)
        if self._state.state is not before:
            self.wake_watchers(changed=True)
        return True

    def _decide(self, given: m.Input) -> Sequence[m.Effect]:
        if self._state.phase is m.Phase.CLOSED:
            return ()  # closed is final; what was on its way comes too late
        now, membership = self._clock.now(), self._membership
        state = self._state._replace(key=membership.schedule)
        try:
            self._state, effects = self._machine.step(state, given, now, self._rng)
        except Exception:
            if self._timer is not None or not (state.in_flight or state.next_start is not None):
                raise
            # Of a generator of the program's own. Nothing else would ever wake this manager.
            _LOG.exception("a step of the connection to %s raised", self._machine.target)
            return (m.ArmTimer(now + self._machine.policy.initial_backoff),)
        membership.schedule = self._state.key
        return effects

    def wake_watchers(self, *, changed: bool) -> None:
        """Have everybody look anew who watches the state; `changed` says whether it is the manager's that changed."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(changed)

    def _carry_out(self, effect: m.Effect) -> None:
        match effect:
            case m.StartAttempt():
                self._attempts += 1
                self._attempt = self._spawn(self._run(effect, self._attempts))
            case m.AbandonAttempt():
                self._abandon()
            case m.ArmTimer():
                self._cancel_timer()
                self._timer = self._clock.call_at(effect.at, self._timer_fired)
            case m.CancelTimer():
                self._cancel_timer()
            case m.ReleaseCalls():
                self._pending.release()
            case m.FailCalls():
                self._pending.fail()
            case m.Emit():
                self.emit(effect.event)
            case m.TellOthers():
                self._to_tell.append(effect.event)  # told when all is done: a connection may be over as it is made

    # What other managers of the key tell (SH-3).

    def hear(self, news: ConnectionEvent | None) -> None:
        """Take in that the schedule has changed, and by which event; from any thread.

        Raises:
            RuntimeError: the event loop is closed.
        """
        if self._loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self._news.append(news)
        if not self._news_due:
            self._news_due = True
            self._loop.call_soon_threadsafe(self._take_in_news, context=Context())

    def _take_in_news(self) -> None:
        self._news_due = False
        while self._news:
            event = self._news.popleft()
            if event is not None:
                self.emit(replace(event, channel=self._machine.channel, elsewhere=True))
        self._feed(m.ScheduleChanged(busy=len(self._pending) > 0))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In a context of its own: it outlives the call that happened to start it, and must keep nothing of it alive.
        task = self._loop.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def emit(self, event: Event) -> None:
        """Tell the listeners."""
        tell(self.listeners, event, self._loop)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timer_fired(self) -> None:
        self._timer = None
        decided = self._state.in_flight and self._connector.decided()
        self._feed(m.TimerFired(busy=len(self._pending) > 0, decided=decided))

    # One attempt, and the life of its connection.

    async def _run(self, attempt: m.StartAttempt, number: int) -> None:
        # It knows itself by a number: a task that one of its own frames holds is garbage for the collector (CB-10).
        if self._is_running(number):
            self._feed(m.AttemptBegan())
        try:
            connection = await self._connector.connect(attempt.limit, proven=attempt.proven)
        except ConnectError as error:
            self._fail_attempt(number, error.failure)
            return
        except Exception as error:  # noqa: BLE001
            # A bug in a connector must not leave the channel waiting for ever: it counts as a failed attempt.
            _LOG.exception("connecting raised")
            self._fail_attempt(number, Failure(Stage.UNKNOWN, repr(error)))
            return
        try:
            if self._is_running(number):
                await self._live(connection)
        finally:
            connection.retire()

    async def _live(self, connection: ConnectionT) -> None:
        self._attempt = None
        self.connection = connection
        loss = connection.loss()
        if loss is not None:  # it is over already, and nobody is to be told that all is well
            self._inputs.append(m.SettingsReceived())
            self._lost(connection, loss)
        else:
            self._feed(m.SettingsReceived())
        self._lost(connection, await connection.lost())
        await connection.watch_redials(self._redialled)

    def _is_running(self, number: int) -> bool:
        return self._attempt is not None and number == self._attempts

    def _fail_attempt(self, number: int, failure: Failure) -> None:
        if self._is_running(number):
            self._attempt = None
            self._feed(m.ConnectFailed(failure, busy=len(self._pending) > 0))

    def _abandon(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None

    def _redialled(self) -> None:
        self._feed(m.CoreRedialled())

    def _lost(self, connection: ConnectionT, loss: Loss) -> None:
        if connection is not self.connection:
            return  # heard of it already
        self.connection = None
        connection.retire()  # nothing may enter it any more, where grpc's core would dial by itself
        self._feed(
            m.ConnectionLost(
                loss.reason,
                graceful=loss.graceful,
                served=loss.served,
                used=connection.last_used(),
                busy=len(self._pending) > 0,
            )
        )
