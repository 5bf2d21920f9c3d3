"""The asyncio shell around the pool's machine, with a fake clock and scripted connectors."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, CoreRedial, Disconnected, State
from grpc_backoff.aio.pool import ConnectionPool
from grpc_backoff.policy.pool import PoolPolicy
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.pool.events import SlotClosed, SlotOpened, SlotRetiring, SlotServing
from grpc_backoff.pool.machine import Role
from grpc_backoff.sharing.setup import PoolSetup
from grpc_backoff.testing import Fails, FakeClock, ScriptedConnector, Succeeds
from tests.aio.test_manager import Slot


class Connector(ScriptedConnector):
    """A scripted connector whose connections have as many calls as the test says."""

    async def connect(self, limit):
        connection = await super().connect(limit)
        connection.core = SimpleNamespace(running=0, held=None)
        return connection


class Parts:
    def __init__(self, *script, **pool):
        self.clock = FakeClock()
        self.connectors, self.gate = [], Slot()
        self.events = self.gate.events
        self.script = list(script)
        self.pool = ConnectionPool(
            PoolSetup("target", CONNECT, PoolPolicy(**pool), self.clock, random.Random(1)),
            self.gate,
            connector=self.connect,
            loop=asyncio.get_running_loop(),
        )

    def connect(self, _endpoint):
        script = self.script.pop(0) if self.script else ()
        self.connectors.append(Connector(self.clock, script))
        return self.connectors[-1]

    def kinds(self, *of):
        return [type(event) for event in self.events if not of or isinstance(event, of)]

    async def close(self):
        self.pool.close()
        await self.pool.close_connections(None)


async def test_state_waiters():
    """CH-1: who waits for a change of the state is woken by the next one, and by the end of the pool."""
    parts = Parts([Succeeds(1.0)])
    waiting = [asyncio.ensure_future(parts.pool.next_change()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    parts.pool.want()
    await parts.clock.advance(0)

    assert waiting[0].cancelled()
    assert await waiting[1] is await waiting[2] is True
    last = asyncio.ensure_future(parts.pool.next_change())
    await asyncio.sleep(0)
    await parts.close()
    assert await last is True


async def test_a_replacement():
    """PO-3, PO-9: the old connection serves until the new one is READY, and the state is READY all the time."""
    parts = Parts([Succeeds(0.5)], [Succeeds(0.5)])
    parts.pool.want()
    await parts.clock.advance(5)
    first = parts.pool.live_connection()
    parts.pool.refresh("moved")
    await parts.clock.advance(0.1)
    assert (parts.pool.live_connection(), parts.pool.state) == (first, State.READY)
    assert [slot.role for slot in parts.pool.slots()] == [Role.SERVING, Role.COMING]
    await parts.clock.advance(1)

    assert parts.pool.live_connection() is parts.connectors[1].connections[0]
    assert parts.kinds() == [
        *(AttemptStarted, Connected),
        *(SlotOpened, AttemptStarted, Connected, SlotServing, SlotRetiring),
    ]
    assert [event.slot for event in parts.events] == [0, 0, 1, 1, 1, 1, 0]
    assert parts.pool.status().made == 2
    first.end()
    await parts.clock.advance(0)
    first.redial()
    assert parts.kinds()[-1] is CoreRedial, "a call from before may still make the core redial (CB-16)"
    parts.pool._held[0].seat.ended()  # a scripted connection never reports its end
    assert parts.kinds()[-1] is SlotClosed
    assert [slot.role for slot in parts.pool.slots()] == [Role.SERVING]
    await parts.close()
    assert parts.kinds()[-1] is Closed
    assert parts.kinds().count(Closed) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_replacement_backs_off():
    """PO-3, CB-2: a replacement follows the schedule, and none of its events is reported twice."""
    parts = Parts([Succeeds()], [Fails(), Fails(), Succeeds()])
    parts.pool.want()
    await parts.clock.advance(5)
    parts.pool.refresh("moved")
    await parts.clock.advance(10)

    assert [event.at - 1005.0 for event in parts.events if type(event) is AttemptStarted][1:3] == [0.0, 1.0]
    assert len(parts.kinds(AttemptFailed)) == 2
    assert parts.gate.log == ["release", "release"], "no pending call has failed"
    assert parts.pool.state is State.READY
    await parts.close()


@pytest.mark.parametrize("busy", [0, 1])
async def test_a_loss_during_a_replacement(busy):
    """PO-3: if the old connection is lost, the replacement is the attempt, also for calls that wait."""
    parts = Parts([Succeeds()], [Succeeds(2.0)])
    parts.pool.want()
    await parts.clock.advance(5)
    parts.pool.refresh("moved")
    await parts.clock.advance(1)
    parts.gate.waiting = busy
    parts.connectors[0].connections[0].end()
    await parts.clock.advance(0)
    assert parts.pool.state is State.CONNECTING
    assert parts.kinds(Disconnected) == [Disconnected]
    await parts.clock.advance(5)
    assert parts.pool.state is State.READY
    assert [len(connector.attempts) for connector in parts.connectors] == [1, 1]
    await parts.close()


async def test_close_during_a_replacement():
    """PO-12: `close` ends the attempt of a replacement too; no timer and no task is left, and `Closed` comes last."""
    parts = Parts([Succeeds()], [Fails(), Succeeds(5.0)])
    parts.pool.want()
    await parts.clock.advance(5)
    parts.pool.refresh("moved")
    await parts.clock.advance(1.5)
    parts.pool.refresh("moved again")
    await parts.close()
    heard = len(parts.events)
    parts.pool.want()
    parts.pool.refresh("moved")
    await parts.clock.advance(100)

    assert parts.clock.armed() == []
    assert len(parts.events) == heard
    assert parts.kinds()[-1] is Closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_more_connections_for_more_calls():
    """PO-8: a pool whose calls have to pick opens one more connection when all are full and uses the least used."""
    parts = Parts([Succeeds()], [Succeeds()], max_connections=2, streams_per_connection=3)
    connections = []
    parts.pool.want()
    await parts.clock.advance(5)
    for _ in range(4):
        connection = parts.pool.live_connection()
        connection.core.running += 1
        connections.append(connection)
    await parts.clock.advance(1)
    for _ in range(4):
        connection = parts.pool.live_connection()
        connection.core.running += 1
        connections.append(connection)
    assert sorted(each.core.running for each in set(connections)) == [4, 4]
    await parts.close()
