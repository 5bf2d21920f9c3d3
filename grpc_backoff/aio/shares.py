"""The channels that share one pool (SH-2, SH-7).

Insecure channels of one event loop with the same key have one pool, and so its connections. Each channel has a share in
the pool, with its own calls, listeners and state, and can be closed without affecting the others. Every other channel
has its own pool.

A channel asks for the connection until it leaves and uses it until its calls have ended. So the pool stops dialling
when the last channel leaves, and the connection is closed when the last channel's calls have ended.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Container, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from grpc_backoff.aio.listeners import Listeners
from grpc_backoff.aio.pool import ConnectionPool
from grpc_backoff.base.process import after_fork
from grpc_backoff.base.status import ConnectionStatus, State
from grpc_backoff.decide.connections.happened import ChannelKey, Happened
from grpc_backoff.decide.connections.shown import state_shown, status_shown

if TYPE_CHECKING:
    from grpc_backoff.aio.core_channel import CoreChannel
    from grpc_backoff.engine.pool import CallQueue


class Shares:
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
        self._pool = pool
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
        return state_shown(self._pool.state, asked=self._asked, closed=self._closed)

    @property
    def made(self) -> int:
        """How many connections the live slots have made."""
        return self._pool.made

    @property
    def is_paid(self) -> bool:
        """Whether an answer has paid for the latest connection, or for the next (CB-7)."""
        return self._pool.is_paid

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room (PO-14)."""
        return self._pool.waits_for_room

    def fill(self) -> None:
        """Start as many of the pending calls as there is room for."""
        self._pool.fill()

    def status(self) -> ConnectionStatus:
        """Return the channel's status, without its slots (CH-11). May be called from any thread."""
        return status_shown(self._pool.status(), asked=self._asked, closed=self._closed)

    def full_status(self) -> ConnectionStatus:
        """Return the channel's status with its slots (PO-11). May be called from any thread."""
        status = self.status()
        return replace(status, connections=self._pool.slots()) if self._asked and not self._closed else status

    def want(self) -> bool:
        """Ask for a connection; return whether the channel is now in TRANSIENT_FAILURE.

        This is harmless if there already is a connection, or if one is being made.
        """
        if self._closed:
            return False
        if not self._asked:
            self._ask()  # first: a listener that hears of the attempt may read the status
        self._pool.want()
        return self._pool.is_failing

    def connection(self, avoid: Container[object] | None = None) -> CoreChannel | None:
        """Return the connection for a call; None if none may be used right now. `avoid` is as in the pool."""
        connection = self._pool.live_connection(avoid)
        if connection is not None and not self._asked:
            self._ask()
        return connection

    def _ask(self) -> None:
        self._asked = True
        self._pool.wake_watchers(changed=False)

    async def wait_for_state_change(self, last: State) -> None:
        """Wait until the state differs from `last`, or has differed in the meantime."""
        while self.state is last:
            asked = self._asked
            if await self._pool.next_change() and asked:
                return

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9)."""
        if not self._closed:
            self._pool.refresh(why)

    def seek_another(self, connection: CoreChannel | None, status: int) -> None:
        """Seek another connection for a retry (RT-15); see `BasePool.seek_another`."""
        if not self._closed:
            self._pool.seek_another(connection, status)

    def reset(self) -> None:
        """Reset the backoff of every slot (CB-9, PO-4)."""
        if not self._closed:
            self._pool.reset()

    # Leaving.

    def leave(self) -> None:
        """Stop asking for a connection and receiving events; the last share to leave closes the pool (CB-10)."""
        if self._closed:
            return
        self._closed = True
        listeners = self.listeners()
        if self._shares.is_last(self):
            self._pool.close()
        else:
            about = {"target": self._pool.setup.target, "channel": self.key, "at": self._pool.now()}
            closed = Happened("Closed", {**about, "attempt": self.status().attempt, "lived": None})
            if listeners is not None:
                listeners.hear_of_call(closed)
            self._pool.wake_watchers(changed=False)
        self._shares.leave(self)
        if listeners is not None:
            listeners.close()

    def drop(self, listeners: Listeners) -> None:
        """Leave without closing: the channel was garbage-collected, or its event loop is gone."""
        self.listeners = lambda: listeners  # the collector clears weak references first
        self.leave()
        if self._shares.end(self):
            self._pool.retire_connections()

    async def end_calls(self, grace: float | None) -> None:
        """Cancel this channel's calls after up to `grace` seconds; the last share also closes the connection."""
        pool = self._pool
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


def shared_pool(
    key: Hashable | None, loop: asyncio.AbstractEventLoop, make: Callable[[], ConnectionPool]
) -> ConnectionPool:
    """Return the key's pool on this loop, creating one if there is none; without a key, create a separate one.

    Only the pool's channels refer to it, so it is released with the last of them.
    """
    if key is None:
        return make()
    here = _shared_pools.get(loop)
    if here is None:
        here = _shared_pools[loop] = WeakValueDictionary()
    pool = here.get(key)
    if pool is None or pool.is_closed:
        pool = here[key] = make()
    return pool
