"""The connection managers of both APIs, on one event loop, with a fake clock and a scripted connector."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from grpc_backoff import ConnectError
from grpc_backoff.aio.manager import ConnectionManager as AsyncioManager
from grpc_backoff.decide.connections.connection_machine import Machine
from grpc_backoff.engine.registry import Registry
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.sync.manager import ConnectionManager as ThreadedManager
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
        self.events.append(event)

    def changed(self, state):
        self.states.append(state)


class Asyncio:
    """The asyncio manager of a connector that plays a script; the managers with one `clock` share its time.

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
        self.manager = self.make(Machine("target", replace(CONNECT, **policy)), how)

    def make(self, machine, how):
        return AsyncioManager(machine, self.given, self.slot, loop=asyncio.get_running_loop(), **how)

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
        await self.manager.closed()
        assert self.clock.armed() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


class Threaded(Asyncio):
    """The threaded manager; the loop stands in for its conductor, and a task for each attempt."""

    def make(self, machine, how):
        self.given, self.conductor = _Connector(self.connector), _Conductor()
        return ThreadedManager(machine, self.given, self.slot, conductor=self.conductor, **how)

    def redial(self):
        self.manager.redialled()

    async def look(self):
        self.manager.look()

    async def ended(self):
        await self.clock.advance(0)
        assert self.conductor.users == set()
        assert self.clock.armed() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


class _Conductor:
    def __init__(self):
        self.post = asyncio.get_running_loop().call_soon
        self.users = set()
        self.join, self.leave = self.users.add, self.users.discard

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
