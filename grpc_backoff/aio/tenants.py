"""The channels of one connection manager (SH-2, SH-7).

Insecure channels of one event loop with the same key have one manager, and so one connection. Each of them is a tenant
there: it has its own calls, listeners and state, and can be closed without the others' noticing. Other channels are
the only tenants of theirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from grpc_backoff.aio.connection import CallConnection
from grpc_backoff.aio.listeners import Listeners
from grpc_backoff.aio.manager import ConnectionManager
from grpc_backoff.connection.connector import Connector
from grpc_backoff.connection.events import ChannelKey, Closed, ConnectionEvent, ConnectionStatus, State

__all__ = ["House", "Tenant", "Tenants", "house_of"]


class Pending(Protocol):
    """Where the calls of one channel wait for a connection."""

    def __len__(self) -> int:
        """Return how many calls wait."""
        ...

    def release(self) -> None:
        """Let all waiting calls go."""
        ...

    def fail(self) -> None:
        """Fail the waiting calls that do not outlast a failed attempt."""
        ...


class Tenants:
    """All tenants of a manager, as the manager sees them: where calls wait, and what is told."""

    def __init__(self) -> None:
        """Begin with none."""
        self.all: dict[Tenant, None] = {}

    def __len__(self) -> int:
        """Return how many calls wait, on all channels."""
        return sum(len(tenant.pending) for tenant in self.all)

    def release(self) -> None:
        """Let all waiting calls go."""
        for tenant in tuple(self.all):
            tenant.pending.release()

    def fail(self) -> None:
        """Fail the waiting calls of channels that have asked for a connection: each has some, or has had."""
        for tenant in tuple(self.all):
            tenant.pending.fail()

    def hear(self, event: ConnectionEvent) -> None:
        """Tell every channel's listeners, each under its channel's own key."""
        for tenant in tuple(self.all):
            if tenant.listeners.given:
                own = event if event.channel is tenant.key else replace(event, channel=tenant.key)
                tenant.listeners.hear(own)


class House:
    """One manager with its connector and its tenants."""

    def __init__(
        self,
        target: str,
        manager: ConnectionManager[CallConnection],
        connector: Connector[CallConnection],
        tenants: Tenants,
        key: ChannelKey,
    ) -> None:
        """Begin without a tenant; `key` is what the manager's events have as their channel."""
        self.target = target
        self.manager = manager
        self.connector = connector
        self.tenants = tenants
        self.key: ChannelKey | None = key
        self.users: set[Tenant] = set()
        """The tenants, and those that have left and whose calls are still to end."""


class Tenant:
    """One channel's part in a connection manager."""

    def __init__(self, house: House, pending: Pending, listeners: Listeners) -> None:
        """Move in."""
        self.pending = pending
        self.listeners = listeners
        first, house.key = house.key, None
        self.key = first or ChannelKey()
        """What the channel's events have as their `channel`."""
        self._house = house
        self._manager = house.manager
        self._asked = False
        self._closed = False
        house.tenants.all[self] = None
        house.users.add(self)

    @property
    def state(self) -> State:
        """The channel's state at this moment; IDLE until it has asked for a connection once (SH-7)."""
        if self._closed:
            return State.SHUTDOWN
        return self._manager.state if self._asked else State.IDLE

    def status(self) -> ConnectionStatus:
        """Return what the channel is doing (CH-11). Safe in any thread."""
        status = self._manager.status()
        if self._asked and not self._closed:
            return status
        return ConnectionStatus(
            state=self.state,
            attempt=status.attempt if self._asked else 0,
            in_flight=False,
            last_error=status.last_error if self._asked else None,
            next_attempt_in=None,
            ready_since=None,
            connections=status.connections if self._asked else 0,
        )

    def want(self) -> None:
        """Ask for a connection; harmless when there is one or one is on its way."""
        if not self._closed:
            self._manager.want()
            self._ask()

    def connection(self) -> CallConnection | None:
        """Return the connection for a call if it stands at this moment."""
        connection = self._manager.live_connection()
        if connection is not None and not self._asked:
            self._ask()
        return connection

    def look(self) -> None:
        """Tell the manager of a connection that does not stand any more."""
        self._manager.live_connection()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._manager.wake_watchers(changed=False)

    async def wait_for_state_change(self, last: State) -> None:
        """Return once the state is, or has been, another than `last`."""
        while self.state is last:
            asked = self._asked
            if await self._manager.next_change() and asked:
                return

    def reset(self) -> None:
        """Forget the key's backoff (SH-6)."""
        self._manager.reset()

    # Leaving.

    def leave(self) -> None:
        """Want no connection any more, and hear of nothing; the last tenant closes the manager (CB-10)."""
        if self._closed:
            return
        house, self._closed = self._house, True
        if len(house.tenants.all) == 1:
            self._manager.close()
        else:
            self._say_closed()
            self._manager.wake_watchers(changed=False)
        house.tenants.all.pop(self, None)
        self.listeners.close()

    def drop(self) -> None:
        """Leave without a word: the channel is gone, or its event loop is."""
        self.leave()
        self._house.users.discard(self)

    def _say_closed(self) -> None:
        now, attempt = self._manager.now(), self.status().attempt
        self.listeners.hear_of_call(
            Closed(target=self._house.target, channel=self.key, at=now, attempt=attempt, lived=None)
        )

    async def end_calls(self, grace: float | None) -> None:
        """End the channel's calls, and no other's, after `grace` seconds; the last one out ends the connection."""
        house = self._house
        connector: Any = house.connector
        try:
            if house.users - {self}:
                await connector.end_calls(self.key, grace)
        finally:
            house.users.discard(self)
        if not house.users:
            await connector.close(grace)
            await self._manager.closed()


_houses: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Hashable, House]] = WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_houses.clear)  # SH-8


def house_of(key: Hashable | None, loop: asyncio.AbstractEventLoop, make: Callable[[], House]) -> House:
    """Return the house of a key on this loop, made if there is none; one of its own for None.

    Only the channels keep it: with the last of them it goes.
    """
    if key is None:
        return make()
    here = _houses.get(loop)
    if here is None:
        here = _houses[loop] = WeakValueDictionary()
    house = here.get(key)
    if house is None or house.manager.state is State.SHUTDOWN:
        house = here[key] = make()
    return house
