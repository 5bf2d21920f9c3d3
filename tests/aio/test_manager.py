"""The asyncio connection manager and its event loop.

`tests/both_apis/test_manager.py` covers what the managers of both APIs do.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar

from grpc_backoff import Disconnected, State
from grpc_backoff.engine.registry import Registry
from grpc_backoff.testing import Fails, Succeeds
from tests.both_apis.managers import Asyncio


async def test_a_call_that_finds_the_connection_dead_is_the_first_to_know():
    """CB-16, CH-7: no call is assigned to a dead connection, even if the manager has not yet noticed that it ended."""
    parts = Asyncio(Succeeds())
    parts.manager.want()
    await parts.clock.advance(5)
    (connection,) = parts.connector.connections
    assert parts.manager.live_connection() is connection
    connection.end()

    assert parts.manager.live_connection() is None
    assert parts.manager.state is State.IDLE
    await parts.clock.advance(1)
    assert parts.kinds().count(Disconnected) == 1
    assert connection.retired
    parts.manager.close()


async def test_attempts_do_not_live_in_a_callers_context():
    """CB-10: attempts run in a context of their own, which does not keep a caller's context alive."""
    carried, dialled = ContextVar("carried", default=None), []
    parts = Asyncio(Fails(), Succeeds())
    connect = parts.connector.connect

    async def look_around(limit):
        dialled.append(carried.get())
        return await connect(limit)

    parts.connector.connect = look_around
    carried.set("a request")
    parts.manager.want()
    await parts.clock.advance(2)

    assert dialled == [None, None]
    parts.manager.close()


async def test_a_sleeping_manager_is_held_by_its_timer_only():
    """CB-10: a closed manager has no timer, and nothing else keeps it alive."""
    parts = Asyncio(Fails())
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
    parts = Asyncio(Succeeds(), key="key", schedules=Talkative())
    await asyncio.sleep(0)
    assert parts.manager.state is State.IDLE
    parts.manager.close()
