"""The connection managers of both APIs: how they execute their machine's effects.

`tests/decide/connections` tests what the machine decides, and `tests/engine/test_manager.py` how it is stepped.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

import pytest

from grpc_backoff import (
    AttemptFailed,
    AttemptStarted,
    BackoffReset,
    Closed,
    Connected,
    CoreRedial,
    Disconnected,
    Stage,
    State,
)
from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections.connection_machine import ResetRequested
from grpc_backoff.decide.connections.shown import explain
from grpc_backoff.engine.registry import Registry
from grpc_backoff.testing import Fails, FakeClock, Hangs, Succeeds
from grpc_backoff.testing.connector import ScriptedConnection
from tests.both_apis.managers import Asyncio, Threaded


@pytest.fixture(params=[Asyncio, Threaded], ids=["asyncio", "threads"])
def parts(request):
    """What makes a manager, with a script and with changes of the policy."""
    return request.param


async def test_it_connects(parts):
    """CB-1, CB-6, CH-11: when a connection is wanted, the manager dials, becomes READY and releases pending calls."""
    made = parts(Succeeds(0.5))
    assert made.manager.state is State.IDLE
    made.manager.want()
    assert made.manager.state is State.CONNECTING
    await made.clock.advance(1)

    assert made.manager.state is State.READY
    assert made.slot.log == ["release"]
    assert made.kinds() == [AttemptStarted, Connected]
    assert made.slot.states == [State.CONNECTING, State.READY]
    assert made.clock.armed() == []
    assert made.manager.connection is made.connector.connections[0]
    assert made.manager.status().made == 1
    made.manager.close()


async def test_failures_are_spaced_and_reported(parts):
    """CB-4, CH-3, CH-11: each failed attempt fails the pending fail-fast calls, and the next one starts on schedule."""
    made = parts(Fails(0.2), Fails(0.2), Succeeds())
    made.manager.want()
    await made.clock.advance(0.5)
    status = made.manager.status()
    assert (status.state, status.attempt, status.in_flight) == (State.TRANSIENT_FAILURE, 1, False)
    assert status.last_error.stage is Stage.TCP
    assert status.next_attempt_in == pytest.approx(0.5)
    await made.clock.advance(10)

    assert made.starts()[:2] == [0.0, 1.0]
    assert 1.28 <= made.starts()[2] - made.starts()[1] <= 1.92
    assert made.slot.log == ["fail", "fail", "release"]
    assert made.kinds() == [AttemptStarted, AttemptFailed] * 2 + [AttemptStarted, Connected]
    assert made.manager.status().last_error is None
    made.manager.close()


async def test_silent_attempts_are_abandoned_at_their_limit(parts):
    """CB-3: an attempt is abandoned at its limit, and the next one follows."""
    made = parts(Hangs())
    made.slot.waiting = 1
    made.manager.want()
    await made.clock.advance(45)

    assert made.starts() == [0.0, 20.0, 40.0]
    assert [attempt.outcome for attempt in made.connector.attempts] == ["cancelled", "cancelled", None]
    made.manager.close()
    await made.ended()
    assert made.connector.attempts[-1].outcome == "cancelled"


async def test_a_connection_behind_the_limit(parts):
    """CB-3: a connection that an abandoned attempt still makes is retired and not used."""
    made, late = parts(Hangs()), []

    async def connect(_limit):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        late.append(ScriptedConnection())
        return late[-1]

    made.connector.connect = connect
    made.manager.want()
    await made.clock.advance(21)
    assert [connection.retired for connection in late] == [True]
    assert made.manager.connection is None
    assert Connected not in made.kinds()
    made.manager.close()
    await made.ended()


async def test_an_outcome_that_came_in_time_counts(parts):
    """CB-3: an outcome that arrived before the limit counts, even if the manager hears of it afterwards."""
    made, arrived = parts(Succeeds()), asyncio.Event()
    connect = made.connector.connect

    async def late(limit):
        await arrived.wait()
        return await connect(limit)

    made.connector.connect = late
    made.connector.known = True
    made.manager.want()
    await made.clock.advance(20.1)
    assert made.kinds() == [AttemptStarted]
    arrived.set()
    await made.clock.advance(0)

    assert made.kinds() == [AttemptStarted, Connected]
    assert made.manager.state is State.READY
    made.manager.close()


async def test_a_dial_that_nobody_ordered_is_announced(parts):
    """CB-16: a redial by the core is reported as an event, and delays a pending start by another INITIAL_BACKOFF."""
    made = parts(Succeeds())
    made.manager.want()
    await made.clock.advance(0.5)
    made.connector.connections[0].end()
    await made.look()
    made.redial()
    made.manager.want()
    assert made.manager.status().next_attempt_in == pytest.approx(1.5)
    await made.clock.advance(10)
    made.redial()

    assert made.kinds() == [AttemptStarted, Connected, Disconnected, CoreRedial, AttemptStarted, Connected, CoreRedial]
    assert made.starts() == [0.0, 2.0]
    made.manager.close()


async def test_a_loss_whose_reason_is_being_found_out(parts):
    """CH-11, CB-8, TH-5: a dead connection is not READY; its loss is reported once the reason is known."""
    made = parts(Succeeds())
    made.manager.want()
    await made.clock.advance(0.1)
    (connection,) = made.connector.connections
    connection.alive, connection.loss = lambda: False, lambda: None
    await made.look()

    assert made.manager.state is State.IDLE
    status = made.manager.status()
    assert (status.state, status.last_error) == (State.IDLE, None)
    assert explain("t", status).endswith("; the connection ended before the call could use it"), "CH-4"
    assert made.slot.states == [State.CONNECTING, State.READY], "who waits for a change goes on waiting"
    del connection.loss
    connection.end()
    await made.look()
    assert made.slot.states[2:] == [State.IDLE]
    assert made.kinds() == [AttemptStarted, Connected, Disconnected]
    assert connection.retired
    assert made.manager.connection is None
    made.manager.close()


async def test_a_status_is_of_one_moment(parts):
    """CH-11: a loss that is handled while another thread reads the status does not show in half of it."""
    made = parts(Succeeds())
    made.manager.want()
    await made.clock.advance(0.1)
    (connection,) = made.connector.connections

    def alive():
        del connection.alive
        made.manager.rest(connection)
        return True

    connection.alive = alive
    status = made.manager.status()
    assert (status.state, status.last_error) == (State.READY, None)
    assert status.ready_since is not None
    status = made.manager.status()
    assert (status.state, status.last_error.stage) == (State.IDLE, Stage.ESTABLISHED)
    assert status.ready_since is None
    made.manager.close()


async def test_a_loss_is_handled_once(parts):
    """CB-14, CB-16: an idle connection that has already been reported as lost is not closed a second time."""
    made = parts(Succeeds())
    made.manager.want()
    await made.clock.advance(0.1)
    for _ in range(2):
        made.manager.rest(made.connector.connections[0])
    assert made.kinds().count(Disconnected) == 1
    made.manager.close()


async def test_over_as_it_is_made(parts):
    """CB-15: a connection that is made but ends before it is reported counts as made and lost, and is not used."""
    made = parts(Succeeds())
    connect = made.connector.connect

    async def hanging_up(limit):
        connection = await connect(limit)
        connection.end("hung up")
        return connection

    made.connector.connect = hanging_up
    made.manager.want()
    await made.clock.advance(0.1)
    assert made.kinds() == [AttemptStarted, Connected, Disconnected]
    assert made.manager.connection is None
    made.manager.close()


async def test_over_as_it_is_looked_at(parts):
    """CB-15, RO-1: so does one that was up, and whose connector finds and reports the end only when it is asked."""
    made = parts(Succeeds())
    connect = made.connector.connect

    async def ended(limit):
        connection = await connect(limit)
        over = Loss("gone")

        def loss():
            connection.loss = lambda: over
            made.manager.look()
            return over

        connection.loss = loss
        return connection

    made.connector.connect = ended
    made.manager.want()
    await made.clock.advance(0.1)
    assert made.kinds() == [AttemptStarted, Connected, Disconnected]
    assert made.manager.connection is None
    made.manager.close()


async def test_a_connector_that_raises(parts, caplog):
    """CB-4: an exception from the connector counts as a failed attempt and is logged."""
    made = parts(Succeeds())
    made.given.connect = lambda *_: 1 / 0
    made.manager.want()
    await made.clock.advance(0.1)

    assert made.manager.state is State.TRANSIENT_FAILURE
    assert "ZeroDivisionError" in made.manager.status().last_error.reason
    assert "an attempt to connect raised" in caplog.text
    made.manager.close()


async def test_a_clock_that_calls_back_within_call_at(parts):
    """CB-12: a clock may call back at once if the time has come, before the manager has the timer."""
    made = parts(Fails(0.2), Succeeds())
    made.manager._home.is_here = lambda: True

    def call_at(_when, callback):
        del made.clock.call_at  # once
        callback()
        return made.clock.call_at(math.inf, callback)

    made.manager.want()
    await made.clock.advance(0.1)
    made.clock.call_at = call_at
    await made.clock.advance(0.1)
    assert made.manager.state is State.TRANSIENT_FAILURE
    await made.clock.jump(2.0)
    assert made.manager.state is State.READY
    made.manager.close()


async def test_a_call_that_waits_keeps_a_held_back_channel_from_idleness(parts):
    """CB-14: a channel whose dial is held back does not become idle while a call is pending, even a fail-fast one."""
    made = parts(Succeeds(), idle_timeout=0.5)
    made.manager.want()
    await made.clock.advance(0.1)
    made.connector.connections[0].end()
    await made.look()
    made.slot.waiting = 1
    made.manager.want()
    await made.clock.advance(5)

    assert len(made.starts()) == 2
    assert made.manager.state is State.READY
    made.manager.close()


async def test_reset(parts):
    """CB-9: after a reset, a manager in backoff dials at once."""
    made = parts(Fails(), Succeeds())
    made.manager.want()
    await made.clock.advance(0.5)
    made.manager.feed(ResetRequested())
    await made.clock.advance(0)
    assert made.starts() == [0.0, 0.5]
    made.manager.close()


@pytest.mark.parametrize("script", [None, Fails(), Hangs(), Succeeds()], ids=["idle", "backoff", "connecting", "ready"])
async def test_close_leaves_nothing(parts, script):
    """CB-10: `close()` leaves no timers, tasks or users, emits `Closed` last, and reports the last state."""
    made = parts(*filter(None, [script]))
    if script is not None:
        made.manager.want()
    await made.clock.advance(0.1)
    for _ in range(2):
        made.manager.close()
    heard = len(made.slot.events)
    await made.ended()
    made.manager.want()
    made.manager.feed(ResetRequested())
    await made.clock.advance(1000)

    await made.ended()
    assert len(made.slot.events) == heard
    assert made.kinds().count(Closed) == 1
    assert isinstance(made.slot.events[-1], Closed)
    assert made.manager.state is made.slot.states[-1] is State.SHUTDOWN
    if script == Hangs():
        assert made.connector.attempts[0].outcome == "cancelled"


async def test_one_schedule(parts):
    """SH-3, SH-4: managers of one key share a schedule: one attempt at a time in backoff, and a success wakes all."""
    shared = {"clock": FakeClock(), "key": "key", "schedules": Registry()}
    one, other = parts(Fails(), Succeeds(0.5), **shared), parts(Succeeds(0.5), **shared)
    one.manager.want()
    await one.clock.advance(0.1)
    other.manager.want()
    await one.clock.advance(0.1)
    assert other.starts() == []
    assert other.manager.state is State.TRANSIENT_FAILURE
    assert other.manager.status().last_error == one.manager.status().last_error
    await one.clock.advance(1)
    dialler, sleeper = (one, other) if len(one.starts()) == 2 else (other, one)
    assert len(dialler.starts()) + len(sleeper.starts()) == 2
    await one.clock.advance(0.5)
    assert dialler.manager.state is State.READY
    assert [event.elsewhere for event in sleeper.slot.events if isinstance(event, Connected)] == [True]
    await one.clock.advance(1)
    assert sleeper.manager.state is State.READY
    for each in (one, other):
        each.manager.close()


async def test_a_reset_in_the_midst_of_anothers_step(parts):
    """SH-6: a reset in a signal handler is not lost if it interrupts another step of the key's schedule."""
    shared = {"clock": FakeClock(), "key": "key", "schedules": Registry()}
    one, other = parts(Fails(), **shared), parts(Fails(), **shared)
    other.manager.want()
    await other.clock.advance(0.1)
    with one.manager.membership.lock:
        one.manager.membership.group.stepping = True
        other.manager.feed(ResetRequested())
        assert BackoffReset not in other.kinds()
        one.manager.membership.group.stepping = False
    await other.clock.advance(0)
    assert BackoffReset in other.kinds()
    assert other.starts() == pytest.approx([0.0, 0.1])
    for each in (one, other):
        each.manager.close()
