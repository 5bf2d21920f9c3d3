"""The asyncio pool: the connections that the channels of one event loop share (PO-1, SH-2, SH-7).

Insecure channels of one event loop with the same key have one pool, and so its connections. Each channel has a share in
the pool, with its own calls, listeners and state, and can be closed without affecting the others. Every other channel
has its own pool.

A channel asks for the connection until it leaves and uses it until its calls have ended. So the pool stops dialling
when the last channel leaves, and the connection is closed when the last channel's calls have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Container, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from grpc_backoff.aio.core_connector import CoreConnector
from grpc_backoff.aio.listeners import Listeners, tell
from grpc_backoff.aio.loops import LoopClock, clock_of, is_here, start, until_done
from grpc_backoff.base.process import after_fork
from grpc_backoff.base.status import ConnectionStatus, State
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.decide.connections.shown import state_shown, status_shown
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.pending import CallQueue
from grpc_backoff.engine.pool import BasePool
from grpc_backoff.engine.setup import PoolSetup
from grpc_backoff.telemetry.log import log_event, logs_info

if TYPE_CHECKING:
    from grpc_backoff.aio.core_channel import CoreChannel
    from grpc_backoff.aio.coroutine_connector import CoroutineConnection, CoroutineConnector
    from grpc_backoff.connection.connector import Connector
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.slot import Slot


class ConnectionPool(BasePool["CoreChannel", "CoreConnector | CoroutineConnector"]):
    """The connections of one or more channels on one event loop."""

    home: LoopClock

    def __init__(
        self,
        setup: PoolSetup,
        shares: Shares,
        *,
        loop: asyncio.AbstractEventLoop,
        connector: Callable[[str], Connector[CoroutineConnection]] | None = None,
    ) -> None:
        """Make the first slots; nothing happens before a connection is wanted.

        `connector` returns the connector for an endpoint; by default, grpcio's core connects.
        """
        self._connector = connector
        self.shares = shares
        self._loop = loop
        self._watchers: list[asyncio.Future[bool]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        clock = setup.clock
        super().__init__(setup, shares, clock if isinstance(clock, LoopClock) else clock_of(loop))

    # For the channel.

    def live_connection(self, avoid: Container[object] | None = None) -> CoreChannel | None:
        """Return the connection for the next call; None if none may take it. `avoid` is as in `SlotRules.pick`."""
        only = self.rules.only
        if only is not None and not self.setup.picks:
            connection = only.live_connection()
            return None if connection is None or connection.gated is not None else connection
        return self._pick(avoid, ConnectionManager.live_connection)

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
        for slot in self.by_number.values():
            slot.manager.leave_alone()

    def at_home(self, work: Callable[[], object]) -> None:
        """Run `work` on the event loop, at once if this is its thread; any thread may call this."""
        if is_here(self._loop):
            work()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the channel with it
                self._loop.call_soon_threadsafe(work)

    def _connector_for(self, endpoint: str) -> CoreConnector | CoroutineConnector:
        if self._connector is None:
            return CoreConnector(self.setup, endpoint, self.home)
        from grpc_backoff.aio.coroutine_connector import CoroutineConnector, SharedConnector  # noqa: PLC0415 - only tests have one

        connector = self._connector(endpoint)
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

    def _discard(self, slot: Slot[CoreChannel, CoreConnector | CoroutineConnector]) -> None:
        if not self.is_closed and slot.connector is not None:  # what it is still closing
            start(self._loop, slot.connector.close(None), self._tasks)


class Shares(CallQueue):
    """All shares of a pool. To the pool, they are one queue of pending calls and one listener."""

    def __init__(self) -> None:
        self._asking: dict[Share, None] = {}
        self._using: set[Share] = set()
        self._turns = itertools.count()
        self.connected: Happened | None = None
        """The event that announced the current connection; None if there is none."""
        self.joined = False
        """Whether a channel has joined, and taken the pool's own key."""

    def __len__(self) -> int:
        """Return how many calls are pending on all channels together."""
        return sum(len(share.pending) for share in tuple(self._asking))

    def release(self, most: float = math.inf) -> None:
        """Start pending calls: all, or `most`, of the channels in turn."""
        if most == math.inf or most >= len(self):
            for share in tuple(self._asking):  # they may leave meanwhile
                share.pending.release()
            return
        waiting = [share.pending for share in tuple(self._asking) if len(share.pending)]
        for turn in itertools.islice(self._turns, int(most)):
            waiting[turn % len(waiting)].release(1)

    def fail(self) -> None:
        """Fail those pending calls of all channels that do not survive a failed attempt (CH-3)."""
        for share in tuple(self._asking):
            share.pending.fail()

    def hear(self, event: Happened) -> None:
        """Notify the listeners of every channel, each with the channel's own key in the event."""
        if event.kind == "Connected" and not event.fields.get("elsewhere"):
            self.connected = event
        elif event.kind == "Disconnected":
            self.connected = None
        for share in tuple(self._asking):
            listeners = share.listeners()
            if listeners is not None and listeners.listeners:
                own = event if event.fields["channel"] is share.key else event.changed(channel=share.key)
                listeners.hear(own)

    def join(self, share: Share) -> None:
        """Add a channel."""
        self._asking[share] = None
        self._using.add(share)
        self.joined = True

    def is_last(self, share: Share) -> bool:
        """Return whether no other channel asks for the connection, so this one closes the pool when it leaves."""
        return self._asking.keys() == {share}

    def leave(self, share: Share) -> None:
        """Stop asking for the connection; the channel's calls may continue."""
        self._asking.pop(share, None)

    def shares_with(self, share: Share) -> bool:
        """Return whether the calls of others may be running, so that only this channel's own calls may be ended."""
        return not self._using <= {share}

    def end(self, share: Share) -> bool:
        """Remove a channel whose calls have ended; return whether the connection is to be closed."""
        self._using.discard(share)
        return not self._using


class Share:
    """One channel's part in a pool."""

    def __init__(
        self, pool: ConnectionPool, pending: CallQueue, listeners: Listeners, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Join the pool's other shares, on their event loop."""
        self.pending = pending
        self.listeners: Callable[[], Listeners | None] = ref(listeners)
        """Returns the listeners. They often belong to what owns the channel, so the pool may not keep them alive."""
        self.pool = pool
        """The pool, whose own state is that of all its channels."""
        self._asked = False
        self._closed = False
        self._shares = shares = pool.shares
        self.key = ChannelKey() if shares.joined else pool.key
        """Identifies this channel in its events."""
        shares.join(self)
        if shares.connected is not None and not loop.is_closed():
            loop.call_soon(self._join, shares.connected)

    def _join(self, connected: Happened) -> None:
        """Notify the channel's listeners of a connection that existed when the channel was created (SH-7)."""
        listeners = self.listeners()
        if connected is self._shares.connected and listeners is not None:
            listeners.hear(connected.changed(channel=self.key, joined=True))

    @property
    def state(self) -> State:
        """The channel's current state; IDLE until it has first asked for a connection (SH-7)."""
        return state_shown(self.pool.state, asked=self._asked, closed=self._closed)

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room (PO-14)."""
        return self.pool.waits_for_room

    @property
    def waits_for_answer(self) -> bool:
        """Whether a call that gets no connection waits until a peer shows that it is alive (LV-1, LV-3)."""
        return self.pool.waits_for_answer

    def status(self) -> ConnectionStatus:
        """Return the channel's status, without its slots (CH-11). May be called from any thread."""
        return status_shown(self.pool.status(), asked=self._asked, closed=self._closed)

    def full_status(self) -> ConnectionStatus:
        """Return the channel's status with its slots (PO-11). May be called from any thread."""
        status = self.status()
        return replace(status, connections=self.pool.slots()) if self._asked and not self._closed else status

    def want(self) -> State:
        """Ask for a connection, unless there is one or one is being made; return the channel's state then."""
        if self._closed:
            return State.SHUTDOWN
        if not self._asked:
            self._ask()  # first: a listener that hears of the attempt may read the status
        return self.pool.want()

    def connection(self, avoid: Container[object] | None = None) -> CoreChannel | None:
        """Return the connection for a call; None if none may be used right now. `avoid` is as in the pool."""
        connection = self.pool.live_connection(avoid)
        if connection is not None and not self._asked:
            self._ask()
        return connection

    def _ask(self) -> None:
        self._asked = True
        self.pool.wake_watchers(changed=False)

    async def wait_for_state_change(self, last: State) -> None:
        """Wait until the state differs from `last`, or has differed in the meantime."""
        while self.state is last:
            asked = self._asked
            if await self.pool.next_change() and asked:
                return

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9)."""
        if not self._closed:
            self.pool.refresh(why)

    def seek_another(self, connection: GatedConnection | None, status: int) -> None:
        """Seek another connection for a retry (RT-15); see `BasePool.seek_another`."""
        if not self._closed:
            self.pool.seek_another(connection, status)

    def reset(self) -> None:
        """Reset the backoff of every slot (CB-9, PO-4)."""
        if not self._closed:
            self.pool.reset()

    # Leaving.

    def leave(self) -> None:
        """Stop asking for a connection and receiving events; the last share to leave closes the pool (CB-10)."""
        if self._closed:
            return
        self._closed = True
        listeners = self.listeners()
        if self._shares.is_last(self):
            self.pool.close()
        else:
            about = {"target": self.pool.setup.target, "channel": self.key, "at": self.pool.now()}
            closed = Happened("Closed", {**about, "attempt": self.status().attempt, "lived": None})
            if listeners is not None:
                listeners.hear_of_call(closed)
            self.pool.wake_watchers(changed=False)
        self._shares.leave(self)
        if listeners is not None:
            listeners.close()

    def drop(self, listeners: Listeners) -> None:
        """Leave without closing: the channel was garbage-collected, or its event loop is gone."""
        self.listeners = lambda: listeners  # the collector clears weak references first
        self.leave()
        if self._shares.end(self):
            self.pool.retire_connections()

    async def end_calls(self, grace: float | None) -> None:
        """Cancel this channel's calls after up to `grace` seconds; the last share also closes the connection."""
        pool = self.pool
        end = pool.now() + (grace or 0.0)
        try:
            if self._shares.shares_with(self):
                await pool.end_calls(self.key, grace)
        finally:
            unused = self._shares.end(self)
        if unused:
            await pool.close_connections(max(0.0, end - pool.now()) or None)


_shared_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Hashable, ConnectionPool]] = (
    WeakKeyDictionary()
)

after_fork(_shared_pools.clear)  # SH-8: a child starts anew


def pool_for(
    setup: PoolSetup, loop: asyncio.AbstractEventLoop, connector: Connector[CoroutineConnection] | None
) -> ConnectionPool:
    """Return the pool of a new channel: its key's on this loop, or a new one; without a key, a separate one.

    Only the pool's channels refer to it, so it is released with the last of them.
    """
    if setup.key is None or setup.credentials is not None:  # SH-2: channels with TLS have separate pools, as in grpcio
        connect = None if connector is None else lambda _endpoint: connector
        return ConnectionPool(setup, Shares(), loop=loop, connector=connect)
    here = _shared_pools.get(loop)
    if here is None:
        here = _shared_pools[loop] = WeakValueDictionary()
    pool = here.get(setup.key)
    if pool is None or pool.is_closed:
        pool = here[setup.key] = ConnectionPool(setup, Shares(), loop=loop)
    return pool
