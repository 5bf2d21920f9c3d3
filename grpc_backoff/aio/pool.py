"""The asyncio pool: the connections that the channels of one event loop share (PO-1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container
from contextvars import Context
from typing import TYPE_CHECKING

from grpc_backoff.aio.core_connector import CoreConnector
from grpc_backoff.aio.listeners import tell
from grpc_backoff.aio.loop_clock import LoopClock
from grpc_backoff.aio.loops import is_here, keeps_time, until_done
from grpc_backoff.base.status import State
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.engine.pool import BasePool, Slot
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.telemetry.log import log_event, logs_info

if TYPE_CHECKING:
    from grpc_backoff.aio.core_channel import CoreChannel
    from grpc_backoff.aio.coroutine_connector import CoroutineConnection, CoroutineConnector
    from grpc_backoff.aio.shares import Shares
    from grpc_backoff.connection.connector import Connector
    from grpc_backoff.engine.news import Ticking


class ConnectionPool(BasePool["CoreChannel", "CoreConnector | CoroutineConnector"]):
    """The connections of one or more channels on one event loop."""

    def __init__(
        self,
        setup: PoolSetup,
        shares: Shares,
        *,
        connector: Callable[[str], CoreConnector | Connector[CoroutineConnection]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Make the first slots; nothing happens before a connection is wanted.

        `connector` returns the connector for an endpoint.
        """
        self._connector = connector
        self.shares = shares
        self._loop = loop
        self._watchers: list[asyncio.Future[bool]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        clock = setup.clock
        super().__init__(setup, shares, clock if isinstance(clock, LoopClock) else LoopClock(loop))

    # For the channel.

    def live_connection(self, avoid: Container[object] | None = None) -> CoreChannel | None:
        """Return the connection for the next call; None if none may take it. `avoid` is as in `SlotRules.pick`."""
        only = self.only
        if only is not None and not self.picks:
            connection = only.live_connection()
            return None if connection is None or connection.held is not None else connection
        for _ in range(1 + len(self.by_number)):
            manager = self.rules.pick(avoid)
            connection = None if manager is None else manager.live_connection()
            if manager is None or (connection is not None and connection.held is None):
                return connection
            if connection is not None:
                self.liveness.call_waits(connection)
        return None

    def look(self) -> None:
        """Check every connection and notify the machines of those that are no longer up."""
        for slot in self._live():
            slot.manager.look()

    async def next_change(self) -> bool:
        """Wait until the watchers are woken; return whether the pool's own state has changed."""
        changed: asyncio.Future[bool] = self._loop.create_future()
        self._watchers.append(changed)
        try:
            return await changed
        finally:
            if changed in self._watchers:
                self._watchers.remove(changed)

    def wake_watchers(self, *, changed: bool) -> None:
        """Wake everything that watches the state; `changed` says whether the pool's own state changed."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(changed)

    async def end_calls(self, owner: object, grace: float | None) -> None:
        """Give one channel's calls up to `grace` seconds to finish, then cancel them; connections stay open (SH-7)."""
        await asyncio.gather(*(connector.end_calls(owner, grace) for connector in self._connectors()))

    async def close_connections(self, grace: float | None) -> None:
        """Give all calls up to `grace` seconds to finish and close every connection of a closed pool."""
        connectors = self._connectors()
        if len(connectors) == 1:  # the usual case; a task would take turns of the loop
            await connectors[0].close(grace)
        else:
            await asyncio.gather(*(connector.close(grace) for connector in connectors))
        await until_done(*self._tasks)  # which, unlike `gather`, does not cancel them

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connections belong to another process (FK-1)."""
        self.rules.leave_alone()
        self.is_closed = True
        self.serving = ()
        for slot in self.by_number.values():
            slot.manager.leave_alone()

    def at_home(self, work: Callable[[], None]) -> None:
        """Run `work` on the event loop, at once if this is its thread; any thread may call this."""
        if is_here(self._loop):
            work()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the channel with it
                self._loop.call_soon_threadsafe(work)

    def _connector_for(self, endpoint: str) -> CoreConnector | CoroutineConnector:
        connector = self._connector(endpoint)
        if isinstance(connector, CoreConnector):
            return connector
        from grpc_backoff.aio.coroutine_connector import CoroutineConnector, SharedConnector  # noqa: PLC0415 - only tests have one

        known = [other.shared for other in self._connectors() if isinstance(other, CoroutineConnector)]
        shared = next((shared for shared in known if shared.connector is connector), None)
        return CoroutineConnector(shared or SharedConnector(connector), self.home, self._loop)

    def emit(self, event: Happened) -> None:
        """Log an event and notify the listeners."""
        if logs_info():
            tell((log_event,), event, self._loop)
        self.shares.hear(event)

    def show(self, _state: State) -> None:
        """Report the channel's new state."""
        if self._watchers:
            self.wake_watchers(changed=True)

    def _ticking(self) -> Ticking | None:
        return self._loop if keeps_time(self._loop) and isinstance(self._clock, LoopClock) else None

    def _discard(self, slot: Slot[CoreChannel, CoreConnector | CoroutineConnector]) -> None:
        if not self.is_closed and slot.connector is not None:  # what it is still closing
            task = self._loop.create_task(slot.connector.close(None), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
