"""A thousand pending calls: each is released or ends at its deadline, and none is left behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from unittest.mock import Mock

import pytest

from grpc_backoff import aio
from grpc_backoff.aio.pending import PendingCalls
from grpc_backoff.decide.calls.call_machine import ConnectionReady, Missed
from tests.aio.test_waiting import QUICK, SLOW, front
from tests.echo import EchoStub, Message

__all__ = ["front"]

MANY = 1000


async def test_all_complete(front):
    """CH-7: 1,000 calls made while the server is down complete when it is up again, each with its own response."""
    async with aio.insecure_channel(front.target, options=QUICK) as channel:
        stub = EchoStub(channel)
        calls = [stub.Unary(Message(count=number), wait_for_ready=True) for number in range(MANY)]
        await asyncio.sleep(0.2)
        assert len(channel._pending) == MANY
        await front.listen()
        async with asyncio.timeout(60):
            assert [(await call).count for call in calls] == list(range(MANY))
        assert len(channel._pending) == 0
        assert len(front.visits) == 1


async def test_cancelled_ones_are_gone(front):
    """CH-3: a cancelled call is removed at once, and nothing keeps the call in memory."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        stub = EchoStub(channel)
        calls = [stub.Unary(Message(), wait_for_ready=True, timeout=600) for _ in range(100)]
        assert len(channel._pending) == 100
        left = [weakref.ref(call) for call in calls]
        assert all(call.cancel() for call in calls)
        assert len(channel._pending) == 0
        calls.clear()
        await asyncio.sleep(0)
        gc.collect()
        assert [ref() for ref in left if ref() is not None] == []


@pytest.mark.parametrize("raised", [ZeroDivisionError, asyncio.CancelledError])
async def test_callback_that_raises(front, raised):
    """CH-3: an exception from a done callback is reported to the loop and does not affect other pending calls."""
    reported = []

    def raises(_call):
        raise raised

    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        calls = [EchoStub(channel).Unary(Message(), wait_for_ready=True) for _ in range(2)]
        calls[0].add_done_callback(raises)
    assert [type(context["exception"]) for context in reported] == [raised]
    assert all(call.cancelled() for call in calls)
    assert len(channel._pending) == 0


async def test_a_connection_that_is_lost_while_calls_are_told():
    """CH-3: if a call could not use the connection, those behind it have missed it, and are not told to begin."""
    pending = PendingCalls("target", asyncio.get_running_loop())
    pending.pool = Mock(pool=Mock(made=1, is_paid=False))
    told = [[], [], []]
    for given in told:
        pending.add(Mock(feed=given.append, is_early=False, is_answered=False))
    pending.release()
    assert told == [[ConnectionReady()], [Missed(1)], [Missed(1)]]


async def test_a_call_that_causes_another_release():
    """PO-14, CH-3: if a call that is told of a connection causes another `release`, each call is told once."""
    pending = PendingCalls("target", asyncio.get_running_loop())
    pending.pool = Mock(pool=Mock(made=1, is_paid=False))
    told = [[], [], []]

    def call(number):
        def feed(input_):
            told[number].append(input_)
            if number == 0:
                pending.release(1)
            pending.discard(made)

        made = Mock(feed=feed)
        return made

    for number in range(3):
        pending.add(call(number))
    pending.release()
    assert told == [[ConnectionReady()]] * 3
    assert len(pending) == 0
