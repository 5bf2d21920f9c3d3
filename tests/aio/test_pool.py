"""The asyncio shell around the pool's machine, with a fake clock and scripted connectors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import weakref
from dataclasses import replace

import grpc
import pytest

from grpc_backoff import AttemptStarted, Closed, Connected, CoreRedial, Reconnect, State, aio
from grpc_backoff.aio.pool import ConnectionPool
from grpc_backoff.base.status import Role
from grpc_backoff.decide.connections.pool_records import SlotEnded
from grpc_backoff.decide.connections.slot_events import LivenessAsked, SlotClosed, SlotOpened, SlotRetiring, SlotServing
from grpc_backoff.engine.several_slots import SeveralSlots
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing import Fails, FakeClock, ScriptedConnector, Succeeds
from tests.both_apis.managers import Slot
from tests.echo import Echo, EchoStub, Message, serving
from tests.setups import pool_setup


class Connector(ScriptedConnector):
    """A scripted connector whose connections have as many calls as the test says."""

    async def connect(self, limit):
        connection = await super().connect(limit)
        connection.running, connection.gated, connection.served = 0, None, False
        return connection


class Parts:
    def __init__(self, *script, connect=CONNECT, **pool):
        self.clock = FakeClock()
        self.connectors, self.gate = [], Slot()
        self.events = self.gate.events
        self.script = list(script)
        self.pool = ConnectionPool(
            pool_setup("target", policy=connect, clock=self.clock, rng=random.Random(1), **pool),
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
    parts.pool.feed(SlotEnded(0))  # a scripted connection never reports its end
    assert parts.kinds()[-1] is SlotClosed
    assert [slot.role for slot in parts.pool.slots()] == [Role.SERVING]
    await parts.close()
    assert parts.kinds()[-1] is Closed
    assert parts.kinds().count(Closed) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.5, 4.0, 6.0, 15.7, 16.1, 16.4, 16.7, 17.0, 17.3, 20.0])
async def test_the_machine_takes_over_the_only_slot(moment):
    """PO-1, PO-9: a pool whose slot did without the machine at first does the same as one that had it from the start.

    The slot dials, is in backoff, dials, serves, has lost its connection, and dials again.
    """
    seen = []
    for early in (True, False):
        parts = Parts(
            [Fails(after=1.0), Succeeds(2.0), Fails(after=0.5), Succeeds(0.1)], [Fails(after=0.5), Succeeds(1.0)]
        )
        if early:
            parts.pool.refresh("there is no connection yet")
        assert isinstance(parts.pool.rules, SeveralSlots) is early
        parts.pool.want()
        await parts.clock.advance(min(moment, 15.0))
        if moment > 15.0:
            parts.pool.live_connection().end()
            await parts.clock.advance(0.5)
            parts.pool.want()
            await parts.clock.advance(moment - 15.5)
        before = parts.pool.slots()
        parts.pool.refresh("moved")
        await parts.clock.advance(10.0)
        events = [(type(event), event.slot, event.at) for event in parts.events]
        seen.append((before, parts.pool.slots(), parts.pool.state, events))
        await parts.close()
    assert seen[0] == seen[1]


async def test_the_machine_takes_over_a_connection_that_has_ended():
    """PO-4: the end of a connection is shown, also if it is to be replaced before its end is handled."""
    parts = Parts([Succeeds()], [Succeeds()])
    parts.pool.want()
    await parts.clock.advance(5)
    changed = asyncio.ensure_future(parts.pool.next_change())
    await asyncio.sleep(0)
    parts.pool.live_connection().end()
    parts.pool.refresh("moved")
    await parts.clock.advance(1)
    assert changed.done()
    assert (parts.pool.state, parts.pool.status().made) == (State.READY, 2)
    await parts.close()


async def test_the_machine_takes_over_while_a_connection_is_announced():
    """PO-9, LV-3: a listener may replace a connection as soon as its peer is asked, which is before it serves."""
    made = []

    def refresh(event):
        if isinstance(event, LivenessAsked) and not made:
            made.append(event)
            channel.refresh_connection()

    async with serving() as port:
        options = [("grpc_backoff.quiet_after", 5.0), ("grpc.initial_reconnect_backoff_ms", 100)]
        async with aio.insecure_channel(f"127.0.0.1:{port}", options, listeners=[refresh]) as channel:
            channel._pool.liveness.doubted.add("")  # as after a connection that ended before its peer answered
            async with asyncio.timeout(20):
                await channel.channel_ready()
                while channel.connection_status().made < 2 or len(channel._pool.slots()) > 1:
                    await asyncio.sleep(0.01)
            assert made
            assert [slot.role for slot in channel.connection_status().connections] == [Role.SERVING]


async def test_a_connection_that_is_lost_while_the_status_is_read():
    """CH-11: with threads, the connection may be lost once the state was read; a status of READY has its time."""
    parts = Parts([Succeeds()], max_connections=2)
    parts.pool.want()
    await parts.clock.advance(5)
    assert (parts.pool.status().state, parts.pool.status().ready_since is None) == (State.READY, False)
    live = parts.pool._live

    def lose():
        found = live()
        parts.connectors[0].connections[0].end()
        found[0].manager.look()
        return found

    parts.pool.rules.only, parts.pool._live = None, lose
    status = parts.pool.status()
    assert (status.state is State.READY) is (status.ready_since is not None)
    del parts.pool._live
    await parts.close()


async def test_a_finalizer_closes_the_pool_of_a_failed_attempt(monkeypatch):
    """CB-10, TH-6: a finalizer may close the pool at any point, such as while a failure is being handled."""
    parts = Parts([Fails(after=1.0)])
    parts.pool.want()
    monkeypatch.setattr(ConnectionPool, "is_failing", property(lambda pool: pool.close() or True))
    await parts.clock.advance(2)
    assert (parts.pool.state, len(parts.connectors[0].connections)) == (State.SHUTDOWN, 0)
    await parts.close()


async def test_a_pool_that_belongs_to_another_process_hears_of_no_name():
    """FK-1: what was resolved for the parent of a fork is not reported in the child."""
    parts = Parts(round_robin=True)
    parts.pool.leave_alone()
    parts.pool.resolved(("127.0.0.1:1",))
    assert parts.events == []


async def retire_and_close(port):
    """Close a channel whose first connection retires, because it still has a call; return a reference to its pool.

    This is a function of its own, because older grpcio looks at the variables of a running task when a channel is
    closed, which keeps what they refer to.
    """
    options = [
        ("grpc_backoff.max_connections", 2),
        ("grpc_backoff.streams_per_connection", 3),
        ("grpc.initial_reconnect_backoff_ms", 100),
    ]
    channel = aio.insecure_channel(f"127.0.0.1:{port}", options)
    await EchoStub(channel).Unary(Message())
    held = EchoStub(channel).Unary(Message(text="wait"))
    async with asyncio.timeout(20):
        channel.refresh_connection()
        while [slot.role for slot in channel.connection_status().connections] != [Role.RETIRING, Role.SERVING]:
            await asyncio.sleep(0.01)
    gc.collect()
    gc.disable()
    await channel.close()
    with contextlib.suppress(grpc.RpcError, asyncio.CancelledError):
        await held
    return weakref.ref(channel._pool)


async def test_a_retiring_connection_leaves_nothing_to_the_collector():
    """CB-10: a pool of several connections, one of which is still in use, is gone when its last call has ended."""
    go = asyncio.Event()

    class Slow(Echo):
        async def Unary(self, request, context):  # noqa: N802
            if request.text == "wait":
                await go.wait()
            return request

    async with serving(Slow()) as port:
        try:
            pool = await asyncio.create_task(retire_and_close(port))
            async with asyncio.timeout(10):
                while pool() is not None:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
            go.set()


async def test_the_numbers_of_the_machine():
    """PO-3: the machine's numbers are those of the connect policy, though its slots dial only when they are asked."""
    policy = replace(CONNECT, reconnect=Reconnect.EAGER)
    parts = Parts(connect=policy, max_connections=2)
    assert parts.pool.rules._machine.connect is policy
    assert parts.pool.setup.slot_policy.reconnect is Reconnect.LAZY
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
