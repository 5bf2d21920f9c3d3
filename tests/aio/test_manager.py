"""The asyncio connection manager with a fake clock and a scripted connector: which effects it executes."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from contextvars import ContextVar
from dataclasses import replace

import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, CoreRedial, Disconnected, State
from grpc_backoff.aio.listeners import tell
from grpc_backoff.aio.manager import ConnectionManager
from grpc_backoff.connection.events import Stage
from grpc_backoff.connection.machine import Machine, ResetRequested
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.sharing.registry import Registry
from grpc_backoff.testing import Fails, FakeClock, Hangs, ScriptedConnector, Succeeds


class Gate:
    """Records whether the manager releases the pending calls or fails them."""

    def __init__(self):
        self.waiting = 0
        self.log = []

    def __len__(self):
        return self.waiting

    def release(self):
        self.log.append("release")

    def fail(self):
        self.log.append("fail")


class Slot(Gate):
    """A gate that also passes on the manager's events to listeners, and keeps its states."""

    def __init__(self):
        super().__init__()
        self.events, self.states = [], []
        self.listeners = [self.events.append]

    def hear(self, event):
        tell(self.listeners, event, asyncio.get_running_loop())

    def changed(self, state):
        self.states.append(state)


class Parts:
    def __init__(self, *script, **policy):
        self.clock = FakeClock()
        self.connector = ScriptedConnector(self.clock, script)
        self.gate = Slot()
        self.events, self.states = self.gate.events, self.gate.states
        self.manager = ConnectionManager(
            Machine("target", replace(CONNECT, **policy)),
            self.connector,
            self.gate,
            clock=self.clock,
            rng=random.Random(1),
            loop=asyncio.get_running_loop(),
        )

    def starts(self):
        return [attempt.at - 1000.0 for attempt in self.connector.attempts]

    def kinds(self):
        return [type(event) for event in self.events]


async def test_dials_when_wanted_and_tells_everybody():
    """CB-1, CB-6, CH-11: when a connection is wanted, the manager dials, becomes READY and releases pending calls."""
    parts = Parts(Succeeds(0.5))
    parts.manager.want()
    assert parts.manager.state is State.CONNECTING
    await parts.clock.advance(1)

    assert parts.manager.state is State.READY
    assert parts.gate.log == ["release"]
    assert parts.kinds() == [AttemptStarted, Connected]
    assert parts.clock.armed() == []
    assert parts.manager.live_connection() is parts.connector.connections[0]
    parts.manager.close()


async def test_failures_are_spaced_and_reported():
    """CB-4, CH-3, CH-11: each failed attempt fails the pending fail-fast calls, and the next one starts on schedule."""
    parts = Parts(Fails(0.2), Fails(0.2), Succeeds())
    parts.manager.want()
    await parts.clock.advance(0.5)
    status = parts.manager.status()
    assert (status.state, status.attempt, status.in_flight) == (State.TRANSIENT_FAILURE, 1, False)
    assert status.last_error.stage is Stage.TCP
    assert status.next_attempt_in == pytest.approx(0.5)
    await parts.clock.advance(10)

    assert parts.starts()[:2] == [0.0, 1.0]
    assert 1.28 <= parts.starts()[2] - parts.starts()[1] <= 1.92
    assert parts.gate.log == ["fail", "fail", "release"]
    assert parts.manager.status().last_error is None
    parts.manager.close()


async def test_silent_attempts_are_cancelled_at_their_limit():
    """CB-3: an attempt is cancelled at its limit, and the next one follows."""
    parts = Parts(Hangs())
    parts.gate.waiting = 1
    parts.manager.want()
    await parts.clock.advance(45)

    assert parts.starts() == [0.0, 20.0, 40.0]
    assert [attempt.outcome for attempt in parts.connector.attempts] == ["cancelled", "cancelled", None]
    parts.manager.close()
    await parts.manager.closed()
    assert parts.connector.attempts[-1].outcome == "cancelled"


async def test_a_dial_that_nobody_ordered_is_announced():
    """CB-16: a redial by the core is reported as an event, and delays a pending start by another INITIAL_BACKOFF."""
    parts = Parts(Succeeds())
    parts.manager.want()
    await parts.clock.advance(0.5)
    parts.connector.connections[0].end()
    await parts.clock.advance(0)
    parts.connector.connections[0].redial()
    parts.manager.want()
    assert parts.manager.status().next_attempt_in == pytest.approx(1.5)
    await parts.clock.advance(10)
    parts.connector.connections[0].redial()

    assert parts.kinds() == [AttemptStarted, Connected, Disconnected, CoreRedial, AttemptStarted, Connected, CoreRedial]
    assert parts.starts() == [0.0, 2.0]
    parts.manager.close()


async def test_an_outcome_that_came_in_time_on_a_late_loop_counts():
    """CB-3: an outcome that arrived before the limit counts, even if a late loop notices it afterwards."""
    parts = Parts(Hangs())
    arrived = asyncio.Event()
    connect = parts.connector.connect

    async def late(limit, **how):
        await arrived.wait()
        parts.connector._script = [Succeeds()]
        return await connect(limit, **how)

    parts.connector.connect = late
    parts.connector.known = True
    parts.manager.want()
    await parts.clock.advance(20.1)
    assert parts.kinds() == [AttemptStarted]
    arrived.set()
    await parts.clock.advance(0)

    assert parts.kinds() == [AttemptStarted, Connected]
    assert parts.manager.state is State.READY
    parts.manager.close()


async def test_a_call_that_finds_the_connection_dead_is_the_first_to_know():
    """CB-16, CH-7: no call is assigned to a dead connection, even if the manager has not yet noticed that it ended."""
    parts = Parts(Succeeds())
    parts.manager.want()
    await parts.clock.advance(5)
    parts.connector.connections[0].end()

    assert parts.manager.live_connection() is None
    assert parts.manager.state is State.IDLE
    await parts.clock.advance(1)
    assert parts.kinds().count(Disconnected) == 1
    assert parts.connector.connections[0].retired
    parts.manager.close()


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_listeners_may_raise_and_call_back(error):
    """CH-11, CB-9: a listener that raises is harmless; a reset by a listener takes effect after the current step."""
    parts = Parts(Fails(), Succeeds())

    def bad(event):
        raise error

    def eager(event):
        if isinstance(event, AttemptFailed):
            parts.manager.feed(ResetRequested())

    parts.gate.listeners[:0] = [bad, eager]
    parts.manager.want()
    await parts.clock.advance(0.1)

    assert parts.starts() == [0.0, 0.0]
    assert parts.manager.state is State.READY
    parts.manager.close()


@pytest.mark.parametrize("script", [Fails(), Hangs(), Succeeds()])
async def test_close_leaves_nothing(script):
    """CB-10: `close()` leaves no timers or tasks, emits `Closed` last, and reports the last state."""
    parts = Parts(script)
    parts.manager.want()
    await parts.clock.advance(0.1)
    parts.manager.close()
    heard = len(parts.events)
    await parts.manager.closed()
    parts.manager.want()
    parts.manager.feed(ResetRequested())
    await parts.clock.advance(1000)

    assert parts.clock.armed() == []
    assert len(parts.events) == heard
    assert parts.kinds().count(Closed) == 1
    assert isinstance(parts.events[-1], Closed)
    assert parts.manager.state is parts.states[-1] is State.SHUTDOWN
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_listener_that_is_cancelled_does_not_wedge_the_channel():
    """CH-11: a listener that raises CancelledError, which is not an `Exception`, does not stop the channel."""
    parts = Parts(Fails(), Succeeds())

    def cancelled(event):
        raise asyncio.CancelledError

    parts.gate.listeners.insert(0, cancelled)
    parts.manager.want()
    await parts.clock.advance(2)

    assert parts.manager.state is State.READY
    parts.manager.close()


async def test_listeners_and_tasks_do_not_live_in_a_callers_context():
    """CB-10: listeners and attempts run in a context of their own, which does not keep a caller's context alive."""
    carried = ContextVar("carried", default=None)
    parts = Parts(Fails(), Succeeds())
    seen, dialled = [], []
    parts.gate.listeners.append(lambda event: seen.append(carried.get()))
    connect = parts.connector.connect

    async def look_around(limit, **how):
        dialled.append(carried.get())
        return await connect(limit, **how)

    parts.connector.connect = look_around
    carried.set("a request")
    parts.manager.want()
    await parts.clock.advance(2)

    assert dialled == [None, None]
    assert len(seen) == 4
    assert set(seen) == {None}
    parts.manager.close()


async def test_a_call_that_waits_keeps_a_held_back_channel_from_idleness():
    """CB-14: a channel whose dial is held back does not become idle while a call is pending, even a fail-fast one."""
    parts = Parts(Succeeds(), idle_timeout=0.5)
    parts.manager.want()
    await parts.clock.advance(0.1)
    parts.connector.connections[0].end()
    await parts.clock.advance(0)
    parts.gate.waiting = 1
    parts.manager.want()
    await parts.clock.advance(5)

    assert len(parts.starts()) == 2
    assert parts.manager.state is State.READY
    parts.manager.close()


async def test_a_dead_connection_is_not_ready_whoever_has_heard_of_it():
    """CH-11, CB-8: a channel with a dead connection is not READY, even while the reason for its end is unknown."""
    parts = Parts(Succeeds())
    parts.manager.want()
    await parts.clock.advance(0.1)
    connection = parts.connector.connections[0]
    connection.alive = lambda: False
    connection.loss = lambda: None

    assert parts.manager.live_connection() is None
    assert parts.manager.state is State.IDLE
    assert parts.manager.status().state is State.IDLE
    assert parts.states == [State.CONNECTING, State.READY], "who waits for a change goes on waiting"
    connection.end()
    await parts.clock.advance(0)
    assert parts.states[2:] == [State.IDLE]
    parts.manager.close()


async def test_a_connector_with_a_bug_counts_as_failing(caplog):
    """CB-4: an unexpected exception from a connector counts as a failed attempt, and the schedule continues."""
    parts = Parts(Succeeds())

    async def connect(limit, **how):
        raise ZeroDivisionError

    parts.connector.connect = connect
    parts.manager.want()
    await parts.clock.advance(0.1)

    assert parts.manager.state is State.TRANSIENT_FAILURE
    assert "ZeroDivisionError" in parts.manager.status().last_error.reason
    assert "an attempt to connect raised" in caplog.text
    parts.manager.close()


async def test_a_sleeping_manager_is_held_by_its_timer_only():
    """CB-10: a closed manager has no timer, and nothing else keeps it alive."""
    parts = Parts(Fails())
    parts.manager.want()
    await parts.clock.advance(0.5)
    parts.manager.close()
    ref = weakref.ref(parts.manager)
    del parts
    gc.collect()
    assert ref() is None


class Talkative(Registry):
    """A registry in which another manager sends a notification as soon as a manager joins."""

    def join(self, key, hear, *how):
        place = super().join(key, hear, *how)
        hear(None)
        return place


async def test_news_at_once():
    """SH-3: a manager may be notified by another thread before its constructor has finished."""
    clock = FakeClock()
    manager = ConnectionManager(
        Machine("target", CONNECT),
        ScriptedConnector(clock, [Succeeds()]),
        Slot(),
        clock=clock,
        rng=random.Random(1),
        loop=asyncio.get_running_loop(),
        key="key",
        schedules=Talkative(),
    )
    await asyncio.sleep(0)
    assert manager.state is State.IDLE
    manager.close()
