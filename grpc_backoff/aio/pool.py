"""The asyncio shell around the pool's machine: the connections that the channels of one event loop share (PO-1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from grpc_backoff.aio.connection import CallConnection
from grpc_backoff.aio.listeners import tell
from grpc_backoff.aio.loop_clock import LoopClock
from grpc_backoff.aio.loops import is_here, keeps_time, until_done
from grpc_backoff.aio.manager import ConnectionManager
from grpc_backoff.connection.clock import TimerHandle
from grpc_backoff.connection.connector import ConnectError, Connector
from grpc_backoff.decide.connections import pool_machine as p
from grpc_backoff.decide.connections.connection_machine import Machine
from grpc_backoff.decide.connections.events import ConnectionEvent, Failure, Stage, State
from grpc_backoff.engine.core_connector import BaseConnector, Informed
from grpc_backoff.engine.manager import Owner
from grpc_backoff.engine.news import Ticking
from grpc_backoff.engine.pool import PoolSlot, SlotParts, SteppedPool
from grpc_backoff.engine.registry import Membership
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.telemetry.log import listens, log_event

if TYPE_CHECKING:
    from grpc_backoff.engine.resolver import Addresses

Manager = ConnectionManager[CallConnection]


class Resolution:
    """The connector of the slot that stands for a target whose name is not resolved yet (PO-7).

    An attempt fails if the name cannot be resolved. If it can, the pool retires the slot, which abandons the attempt.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = ref(pool)

    async def connect(self, limit: float) -> CallConnection:
        """Resolve the name; see `Connector.connect`."""
        from grpc_backoff.engine.resolver import HANGS, WITHIN_LIMIT  # noqa: PLC0415 - it is loaded: there is a name

        loop, pool = asyncio.get_running_loop(), self._pool()
        outcome: asyncio.Future[Addresses | Failure] = loop.create_future()

        if pool is not None:
            pool.setup.resolve(lambda found: loop.call_soon_threadsafe(_settle, outcome, found))
        await until_done(outcome, within=limit * WITHIN_LIMIT)
        found = outcome.result() if outcome.done() else HANGS
        if isinstance(found, Failure):
            raise ConnectError(found)
        if pool is not None:
            loop.call_soon(pool.resolved, found)
        del pool
        never: asyncio.Future[CallConnection] = loop.create_future()
        return await never

    def decided(self) -> bool:
        """Return False, because an attempt ends before its limit."""
        return False

    async def end_calls(self, owner: object, grace: float | None) -> None:
        """Do nothing: there are no calls."""

    async def close(self, grace: float | None) -> None:
        """Do nothing: there are no connections."""


class Proving(Informed):
    """The connector of a slot whose server's health is watched: the health of a replacement is awaited (RO-1)."""

    def __init__(self, connector: Connector[CallConnection], pool_slot: PoolSlot) -> None:
        self._connector = connector
        self._slot = pool_slot
        self.decided = connector.decided
        self.close = connector.close

    async def connect(self, limit: float) -> CallConnection:
        """Make one attempt, which fails if the server of a replacement is not serving; see `Connector.connect`."""
        pool, number = self._slot.pool, self._slot.number
        began = 0.0 if pool is None else pool.now()
        if isinstance(self._connector, Informed):
            self._connector.last_life, self._connector.familiar = self.last_life, self.familiar
        connection = await self._connector.connect(limit)
        if pool is None or not pool.must_prove(number):
            return connection
        verdict: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        proven = False
        pool.healths.prove(pool, number, connection, limit - (pool.now() - began), partial(_settle, verdict))
        try:
            problem = await verdict
            if problem:
                raise ConnectError(Failure(Stage.HEALTH, problem))
            proven = True
        finally:
            if not proven:
                pool.healths.drop(number)
                connection.retire()
        return connection


def _settle(outcome: asyncio.Future[Any], found: Any) -> None:
    if not outcome.done():
        outcome.set_result(found)


class ConnectionPool(SteppedPool[Manager]):
    """The connections of one or more channels on one event loop."""

    def __init__(
        self,
        setup: PoolSetup,
        shares: Owner,
        *,
        connector: Callable[[str], Connector[CallConnection]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Make the first slot; nothing happens before a connection is wanted.

        `connector` returns the connector for an endpoint.
        """
        self._connector = connector
        self._shares = shares
        self._loop = loop
        self._watchers: list[asyncio.Future[bool]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        super().__init__(setup, shares)

    # For the channel.

    def live_connection(self, avoid: Container[object] | None = None) -> CallConnection | None:
        """Return the connection for the next call; None if none is up, or all are full. `avoid` is as in `_pick`."""
        only = self._only
        if only is not None and not self.picks:
            connection = only.live_connection()
            return (
                None
                if self.liveness.watched and connection is not None and connection.core_channel.held
                else connection
            )
        for _ in range(1 + len(self._slots)):
            manager = self._pick(avoid)
            connection = None if manager is None else manager.live_connection()
            if manager is None or (
                connection is not None and not (self.liveness.watched and connection.core_channel.held)
            ):
                return connection
            if connection is not None:
                self.liveness.call_waits(connection)
        return None

    def look(self) -> None:
        """Check every connection and notify the machines of those that are no longer up."""
        for slot in self._live():
            slot.manager.live_connection()

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
        connectors, managers = self._connectors(), [slot.manager for slot in self._slots.values()]
        if len(connectors) == 1:  # the usual case; a task would take turns of the loop
            await connectors[0].close(grace)
        else:
            await asyncio.gather(*(connector.close(grace) for connector in connectors))
        await until_done(*self._tasks)  # which, unlike `gather`, does not cancel them
        for manager in managers:
            await manager.closed()

    def leave_alone(self) -> None:
        """Do nothing any more, without a word, because the connections belong to another process (FK-1)."""
        self._cancel_timer()
        self._free_timer = None
        self._state = self._state._replace(phase=p.PoolPhase.CLOSED)
        self._serving = ()
        for slot in self._slots.values():
            slot.manager.leave_alone()

    def _connectors(self) -> list[Any]:
        return list({id(slot.connector): slot.connector for slot in self._slots.values()}.values())

    def _at_home(self, work: Callable[[], None]) -> None:
        if is_here(self._loop):
            work()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the channel with it
                self._loop.call_soon_threadsafe(work)

    # Driving the machine.

    def _make(self, pool_slot: PoolSlot, beside: Membership | None) -> tuple[Manager, Any]:
        connector: Any = Resolution(self) if self.resolves(pool_slot.endpoint) else self._connector(pool_slot.endpoint)
        if isinstance(connector, BaseConnector):  # neither a script nor a resolution
            connector.keepalive = self.keepalive
        watched = self._machine.policy.health_service is not None and not self.resolves(pool_slot.endpoint)
        manager: Manager = ConnectionManager(
            Machine(self._machine.target, self._policy, self._machine.channel),
            Proving(connector, pool_slot) if watched else connector,
            pool_slot,
            clock=self._clock,
            rng=self.setup.rng,
            loop=self._loop,
            key=self.setup.key_of(pool_slot.endpoint),
            beside=beside,
        )
        return manager, connector

    def emit(self, event: ConnectionEvent) -> None:
        """Log an event and notify the listeners."""
        if listens(event):
            tell((log_event,), event, self._loop)
        self._shares.hear(event)

    def _show(self, _state: State) -> None:
        if self._watchers:
            self.wake_watchers(changed=True)

    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` when the clock reaches `when`, in seconds."""
        return self._clock.call_at(when, callback)

    def _home(self) -> Ticking | None:
        return self._loop if keeps_time(self._loop) and isinstance(self._clock, LoopClock) else None

    def _retire(self, slot: SlotParts[Manager]) -> None:
        slot.manager.retire(slot.pool_slot.ended)

    def _discard(self, slot: SlotParts[Manager]) -> None:
        slot.manager.close()
        others = [other.connector for other in self._slots.values() if other is not slot]
        if not self.is_closed and slot.connector not in others:  # what it is still closing
            task = self._loop.create_task(slot.connector.close(None), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
