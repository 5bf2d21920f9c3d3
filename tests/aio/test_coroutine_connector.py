"""Connectors that a program writes as a coroutine. `both_apis/test_manager.py` runs every test with one, too."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff import ConnectError, Stage
from grpc_backoff.aio.coroutine_connector import CoroutineConnector, SharedConnector
from grpc_backoff.aio.loops import LoopClock
from grpc_backoff.decide.connections.events import Failure
from grpc_backoff.testing import FakeClock, ScriptedConnector, Succeeds

REFUSED = Failure(Stage.TCP, "refused")


class Late(ScriptedConnector):
    """A connector that has redialled twice when its attempt fails."""

    async def connect(self, _limit):
        raise ConnectError(REFUSED, redials=2)


def connector(shared):
    loop = asyncio.get_running_loop()
    return CoroutineConnector(shared, LoopClock(loop), loop)


@pytest.mark.parametrize("abandoned", [False, True])
async def test_redials_of_an_attempt_that_fails(abandoned):
    """CB-12, CB-16: redials while an attempt was late are reported before it fails; of an abandoned one, nothing is."""
    made, told = connector(SharedConnector(Late(FakeClock(), []))), []
    made.redialled = lambda *, late: told.append(late)
    attempt = made.connect(20.0, told.append)
    if abandoned:
        attempt.abandon()
    await asyncio.sleep(0)
    await made.close(None)
    assert told == ([] if abandoned else [True, True, REFUSED])


async def test_a_connector_that_is_closed_again():
    """CB-10: a slot whose closing was cancelled closes again; each slot counts once."""
    script = ScriptedConnector(FakeClock(), [])
    shared = SharedConnector(script)
    one, other = connector(shared), connector(shared)
    for _ in range(2):
        await one.close(None)
    assert not script.closed
    for _ in range(2):
        script.closed = False
        await other.close(None)
        assert script.closed


async def test_a_retired_connector_watches_nothing():
    """CB-10: a connector of a channel that was dropped retires its connections and leaves no task."""
    clock = FakeClock()
    script = ScriptedConnector(clock, [Succeeds()])
    made, told = connector(SharedConnector(script)), []
    made.connect(20.0, told.append)
    await clock.advance(1)
    assert told == script.connections
    made.retire()
    await clock.advance(1)
    assert script.connections[0].retired
    assert not made.open
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_last_slot_closes_the_connector():
    """PO-2: a slot that ends leaves a connector open that another slot uses."""
    script = ScriptedConnector(FakeClock(), [])
    shared = SharedConnector(script)
    one, other = connector(shared), connector(shared)
    await one.close(None)
    assert not script.closed
    await other.close(None)
    assert script.closed
