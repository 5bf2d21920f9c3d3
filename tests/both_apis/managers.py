"""A connection manager as each API uses it, on one event loop, with a fake clock and a scripted connector."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from grpc_backoff import ConnectError
from grpc_backoff.aio.coroutine_connector import CoroutineConnector, SharedConnector
from grpc_backoff.aio.loops import LoopClock
from grpc_backoff.decide.connections.connection_machine import ConnectionMachine
from grpc_backoff.decide.connections.happened import ChannelKey
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.registry import Registry
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing import FakeClock, ScriptedConnector


class Slot:
    """Stands in for a slot of a pool, with `waiting` pending calls, and records what it is told."""

    def __init__(self):
        self.waiting = 0
        self.log, self.events, self.states = [], [], []

    def __len__(self):
        return self.waiting

    def release(self):
        self.log.append("release")

    def fail(self):
        self.log.append("fail")

    def hear(self, event):
        self.events.append(event.event())

    def changed(self, state):
        self.states.append(state)


class Asyncio:
    """The manager of a connector whose attempts are coroutines; the managers with one `clock` share its time.

    Attributes:
        connector: the scripted connector; a test may replace its `connect`.
        given: what the manager was given as its connector.
    """

    def __init__(self, *script, clock=None, key=None, schedules=None, **policy):
        self.clock = clock or FakeClock()
        self.connector = self.given = ScriptedConnector(self.clock, script)
        self.slot = Slot()
        how = {"clock": self.clock, "rng": random.Random(1), "key": key}
        how["schedules"] = Registry() if schedules is None else schedules
        self.manager = self.make(ConnectionMachine("target", replace(CONNECT, **policy), ChannelKey()), how)

    def make(self, machine, how):
        loop = asyncio.get_running_loop()
        home = LoopClock(loop)
        self.adapter = CoroutineConnector(SharedConnector(self.given), home, loop)
        manager = ConnectionManager(machine, self.adapter, self.slot, home=home, **how)
        self.adapter.lost, self.adapter.redialled = manager.look, manager.redialled
        return manager

    def starts(self):
        return [attempt.at - 1000.0 for attempt in self.connector.attempts]

    def kinds(self):
        return [type(event) for event in self.slot.events]

    def redial(self):
        """Let the core redial for a call that was on the first connection, which has ended."""
        self.connector.connections[0].redial()

    async def look(self):
        """Let the manager notice how its connection has ended."""
        await self.clock.advance(0)

    async def ended(self):
        """Check that a closed manager has left nothing behind."""
        await self.adapter.close(None)
        assert self.clock.armed() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


class Threaded(Asyncio):
    """The manager of a connector that calls back; the loop stands in for the conductor, and a task for each attempt."""

    def make(self, machine, how):
        self.given = _Connector(self.connector)
        return ConnectionManager(machine, self.given, self.slot, home=_Conductor(), **how)

    def redial(self):
        self.manager.redialled()

    async def look(self):
        self.manager.look()

    async def ended(self):
        await self.clock.advance(0)
        assert self.clock.armed() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


class _Conductor:
    def __init__(self):
        self.post = asyncio.get_running_loop().call_soon

    def is_here(self):
        return False

    def is_closed(self):
        return False


class _Connector:
    def __init__(self, scripted):
        self._scripted = scripted

    def connect(self, limit, tell):
        return _Attempt(self._scripted, limit, tell)


class _Attempt:
    def __init__(self, scripted, limit, tell):
        task = asyncio.ensure_future(_dial(scripted, limit, tell))
        self.decided, self.abandon = scripted.decided, task.cancel


async def _dial(scripted, limit, tell):
    try:
        outcome = await scripted.connect(limit)
    except ConnectError as error:
        outcome = error.failure
    tell(outcome)
