"""The asyncio shell around the connection machine: it executes the machine's effects and feeds the machine inputs.

The shell makes no decisions: the machine decides when to dial, the connector how to dial, and the queue of pending
calls what happens to them. Everything here runs on one event loop, except that `hear` and `status` may be called from
any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from contextvars import Context

from grpc_backoff.connection.clock import Clock, TimerHandle
from grpc_backoff.connection.connector import ConnectError, ConnectionT, Connector
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.events import ConnectionEvent, Failure, Stage
from grpc_backoff.engine.manager import Receiver, SteppedManager
from grpc_backoff.engine.registry import SCHEDULES, Membership, Registry
from grpc_backoff.policy.backoff import Random

_LOG = logging.getLogger(__name__)


_MOST_NEWS = 64
"""How many events are kept for a loop that is not running at the moment; only the latest ones matter."""


class ConnectionManager(SteppedManager[ConnectionT]):
    """Manages one target's connection: makes it when wanted, watches it, and replaces it as the machine decides."""

    def __init__(
        self,
        machine: m.Machine,
        connector: Connector[ConnectionT],
        receiver: Receiver,
        *,
        clock: Clock,
        rng: Random,
        loop: asyncio.AbstractEventLoop,
        key: Hashable | None = None,
        beside: Membership | None = None,
        schedules: Registry = SCHEDULES,
    ) -> None:
        """Assemble the parts; nothing happens before a connection is wanted.

        Managers with the same `key` share one schedule (SH-3); if `key` is None, the manager has its own schedule, or
        that of `beside`.
        """
        self._connector = connector
        self._loop = loop
        self._attempt: asyncio.Task[None] | None = None
        self._attempts = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: Callable[[], None] | None = None
        self._news: list[ConnectionEvent | None] = []
        self._news_due = False
        super().__init__(
            machine, receiver, clock=clock, rng=rng, home=loop, key=key, schedules=schedules, beside=beside
        )

    # For the channel.

    def want(self) -> None:
        """Ask for a connection; harmless if there already is one, or if one is being made."""
        state = self._state
        if state.phase is not m.Phase.CLOSED and state.heeds_want(self._clock.now()):
            self.feed(m.ConnectionWanted())

    def live_connection(self) -> ConnectionT | None:
        """Return the connection if it is up right now; if it has ended, notify the machine and return None."""
        connection = self.connection
        if connection is None or connection.alive():
            return connection
        # Calls may notice the loss before the watcher does. They must not be assigned to a dead connection, because
        # grpc's core would redial for them by itself.
        loss = connection.loss()
        if loss is not None:
            self._lost(connection, loss)
        return None

    def retire(self, ended: Callable[[], None]) -> None:
        """Stop dialling, let running calls continue, and call `ended` when no connection is left (PO-2)."""
        connection = self.draining = self.connection
        self.replaced, self._ended = True, ended
        self.feed(m.CloseRequested())
        self._leave()
        if connection is not None:
            connection.retire()
        if not self._tasks:
            self._loop.call_soon(self._tell_end)

    def _tell_end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def close(self) -> None:
        """Stop for good (CB-10): no timers, attempts or events remain. Running calls continue."""
        self._ended = None
        self.feed(m.CloseRequested())
        self._leave()
        for task in self._tasks:
            task.cancel()

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connection belongs to another process (FK-1)."""
        self._cancel_timer()
        self._state = self._state._replace(phase=m.Phase.CLOSED)
        self.connection = self.draining = None

    async def closed(self) -> None:
        """Wait until the tasks cancelled by `close` have ended."""
        running = [task for task in self._tasks if not task.done()]
        if running:
            await asyncio.gather(*running, return_exceptions=True)

    # Driving the machine.

    def _later(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(work)

    # Notifications from other managers of the key (SH-3).

    def hear(self, news: ConnectionEvent | None) -> None:
        """Handle a change that another manager made to the schedule, and the event that caused it. Thread-safe.

        Raises:
            RuntimeError: the event loop is closed.
        """
        if self._loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self._news.append(news)
        del self._news[:-_MOST_NEWS]
        if not self._news_due:
            self._news_due = True
            self._loop.call_soon_threadsafe(self._take_in_news, context=Context())

    def _take_in_news(self) -> None:
        self._news_due = False
        while self._news:
            self._take_in(self._news.pop(0))
        self.feed(m.ScheduleChanged(busy=self._is_busy))

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends and let `close` cancel it.

        An attempt that fails is kept as `_attempt` only, because the callback would take a turn of the event loop.
        """
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks and self._ended is not None:
            self._tell_end()

    def _arm(self, at: float) -> TimerHandle:
        return self._clock.call_at(at, self._timer_fired)

    # One attempt, and the lifetime of its connection.

    def _start(self, limit: float) -> None:
        self._attempts += 1
        # Use a new context, because the task outlives the call that happened to start it, and must not keep the call's
        # context alive.
        self._attempt = self._loop.create_task(self._run(limit, self._attempts), context=Context())

    def _is_decided(self) -> bool:
        decided: bool = self._connector.decided()
        return decided

    async def _run(self, limit: float, number: int) -> None:
        # The task is identified by a number, because a task that its own frame refers to would be a reference cycle
        # (CB-10).
        try:
            connection = await self._connector.connect(limit)
        except ConnectError as error:
            for _ in range(error.redials if self._is_running(number) else 0):
                self.redialled(late=True)
            self._fail_attempt(number, error.failure)
            return
        except Exception as error:  # noqa: BLE001
            # A bug in a connector must not leave the channel waiting for ever, so treat it as a failed attempt.
            _LOG.exception("an attempt to connect raised an unexpected exception")
            self._fail_attempt(number, Failure(Stage.UNKNOWN, repr(error)))
            return
        try:
            if self._is_running(number):
                self._live(connection)
                self._lost(connection, await connection.lost())
                await connection.watch_redials(self.redialled)
        finally:
            connection.retire()

    def _live(self, connection: ConnectionT) -> None:
        if self._attempt is not None:
            self._keep(self._attempt)  # it goes on to watch the connection
            self._attempt = None
        self.connection = connection
        self._hear_answers(connection)
        loss = connection.loss()
        if loss is not None:  # it has already ended, so do not report success
            self._inputs.append(m.SettingsReceived())
            self._lost(connection, loss)
        else:
            self.feed(m.SettingsReceived())

    def _is_running(self, number: int) -> bool:
        return self._attempt is not None and number == self._attempts

    def _fail_attempt(self, number: int, failure: Failure) -> None:
        if self._is_running(number):
            self._attempt = None
            self._fail(failure)

    def _abandon(self) -> None:
        if self._attempt is not None:
            self._keep(self._attempt)
            self._attempt.cancel()
            self._attempt = None
