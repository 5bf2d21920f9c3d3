"""CH-3, CH-4: how calls without a connection differ from those of plain grpc, and which clock times them."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import socket
import time

import grpc
import grpc.aio
import pytest

from grpc_backoff import Reason, RetryHooks, aio, parse_policy
from grpc_backoff.aio.call import CALL_CLASSES
from grpc_backoff.aio.environment import CallEnvironment
from grpc_backoff.aio.hooks import Hooks
from grpc_backoff.aio.listeners import Listeners
from grpc_backoff.aio.pending import PendingCalls
from grpc_backoff.config.channel_settings import read_channel
from grpc_backoff.decide.calls.call_machine import CallMachine
from grpc_backoff.decide.calls.retry_machine import RetryMachine
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.engine.method import Arguments
from grpc_backoff.grpcio.aio_private import READY_NUMBER
from grpc_backoff.testing import FakeClock
from grpc_backoff.testing.front import FlakyFront
from tests.echo import Echo, EchoStub, Message, serving
from tests.engine.test_pending import Manager

QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
SLOW = [("grpc.initial_reconnect_backoff_ms", 600_000), ("grpc.max_reconnect_backoff_ms", 600_000)]


@pytest.fixture
async def front():
    """A front that refuses connections, with a healthy server behind it."""
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        await front.refuse()
        yield front


async def failing(call):
    with pytest.raises(aio.NoConnectionError) as caught:
        async with asyncio.timeout(30):
            await call
    return caught.value


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_done_writing_says_why(front, method):
    """CH-4: a pending `done_writing()` raises the call's error; on a plain channel, it raises an internal error."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        call = getattr(EchoStub(channel), method)(timeout=0.2, wait_for_ready=True)
        assert (await failing(call.done_writing())).code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_failing_fast_yields(front):
    """CH-3: a loop of calls that fail at once still lets other tasks run."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        stub, turns = EchoStub(channel), 0
        await failing(stub.Unary(Message()))

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(100):
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Unary(Message())
        task.cancel()
        assert turns >= 50


async def test_a_failed_call_can_be_looked_at(front):
    """CH-3: a call that fails at once is not yet done when the caller receives it."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        stub, seen = EchoStub(channel), []
        await failing(stub.Unary(Message()))
        call = stub.Unary(Message())
        assert not call.done()
        call.add_done_callback(seen.append)
        await failing(call)
        assert seen == [call]


def enter_as_it_breaks(front, channel, monkeypatch, method, *request, **how):
    """Break the connection and make a call on it before anything but the core has noticed the break."""
    for visit in front.visits:
        # Shut down a duplicate, because uvloop's own socket object cannot be shut down.
        with socket.socket(fileno=os.dup(visit.writer.get_extra_info("socket").fileno())) as sock:
            sock.shutdown(socket.SHUT_RDWR)
    core, until = channel._pool.rules.only.connection, time.monotonic() + 10
    while core.shown() == READY_NUMBER:  # the core notices in its own thread
        assert time.monotonic() < until
        time.sleep(0.001)
    with monkeypatch.context() as patch:
        patch.setattr(core, "check", lambda _try_to_connect: READY_NUMBER)
        return method(*request, **how)


@pytest.mark.parametrize("configured", [False, True], ids=["argument", "service config"])
@pytest.mark.parametrize("method", ["Unary", "Down", "Up", "Both"])
async def test_a_patient_call_that_enters_a_connection_as_it_breaks(monkeypatch, method, configured):
    """CH-3: a wait-for-ready call assigned to a breaking connection waits for the next connection. Takes 0.5 s."""
    config = '{"methodConfig": [{"name": [{}], "waitForReady": true}]}'
    options = [*QUICK, *([("grpc.service_config", config)] if configured else [])]
    async with (
        serving() as port,
        FlakyFront(upstream=("127.0.0.1", port)) as front,
        aio.insecure_channel(front.target, options=options) as channel,
    ):
        await channel.channel_ready()
        await front.refuse()
        request = Message(text="a", count=1) if method in ("Unary", "Down") else iter([Message(text="a")])
        how = {"timeout": 30} if configured else {"timeout": 30, "wait_for_ready": True}
        call = enter_as_it_breaks(front, channel, monkeypatch, getattr(EchoStub(channel), method), request, **how)
        await asyncio.sleep(0.3)
        assert not call.done()
        await front.listen()
        answers = [answer async for answer in call] if method in ("Down", "Both") else [await call]
        assert answers
        assert await call.code() is grpc.StatusCode.OK


async def test_an_impatient_call_that_enters_a_connection_as_it_breaks(monkeypatch):
    """CH-3: a fail-fast call assigned to a breaking connection fails with UNAVAILABLE."""
    async with (
        serving() as port,
        FlakyFront(upstream=("127.0.0.1", port)) as front,
        aio.insecure_channel(front.target, options=SLOW) as channel,
    ):
        await channel.channel_ready()
        await front.refuse()
        call = enter_as_it_breaks(front, channel, monkeypatch, EchoStub(channel).Unary, Message(), timeout=30)
        assert await call.code() is grpc.StatusCode.UNAVAILABLE


async def test_initial_metadata_of_a_patient_stream_are_not_waited_for(monkeypatch):
    """CH-1: without a retry policy, empty initial metadata is returned at once, even if the call may still fail."""
    monkeypatch.setattr(importlib.import_module("grpc_backoff.aio.call"), "_GRACE_FOR_TRAILERS", 60.0)

    class Silent(Echo):
        async def Both(self, _requests, context):  # noqa: N802
            await context.send_initial_metadata(())
            await asyncio.Event().wait()
            yield

    async with serving(Silent()) as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        call = EchoStub(channel).Both(wait_for_ready=True)
        await call.write(Message())
        assert not await asyncio.wait_for(call.initial_metadata(), 20)
        call.cancel()


class NeverSends:
    """Stands in for the sender of a channel without a connection."""

    def make_attempt(self, _request, _arguments, _seconds, _instead, _avoid=()):
        return None


def on_a_clock_in_hand(clock, policy=None, hooks=None, **how):
    """Return a call to a target without a connection, on a clock that the test advances."""
    loop = asyncio.get_running_loop()
    pending = PendingCalls("target", loop)
    pending.pool = Manager()
    calls = CallEnvironment(
        read_channel("target", None, {"rng": random.Random(1)}),
        pending=pending,
        hooks=Hooks(hooks or RetryHooks(), "target", clock, loop),
        listeners=Listeners((), loop),
        clock=clock,
        loop=loop,
    )
    machine = (RetryMachine if policy else CallMachine)("target", "/method", policy, **how)
    arguments = Arguments(64.0, None, None, None, None)
    return CALL_CLASSES["unary_unary"](
        CallSetup(calls, machine, NeverSends(), arguments.timeout, None, None, b"", arguments)
    )


async def test_waits_by_the_channels_clock():
    """CB-12, CH-3: a call's deadline is measured on the channel's clock, not on that of the event loop."""
    clock = FakeClock()
    call = on_a_clock_in_hand(clock, wait_for_ready=True)
    await clock.advance(63)
    assert not call.done()
    assert call.time_remaining() == 1.0
    await clock.advance(1)
    assert call.done()
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert clock.armed() == []


async def test_sleeps_by_the_channels_clock():
    """CB-12, RT-7: waits between attempts use the channel's clock; no attempt starts after the deadline."""
    clock = FakeClock()
    call = on_a_clock_in_hand(clock, parse_policy("retry: 9, delay: 40s, max_delay: 40s, jitter: none"))
    await clock.advance(1)
    assert clock.armed() == [1040.0]
    await clock.jump(100)
    with pytest.raises(aio.RetriesExhaustedError) as caught:
        await call
    assert (caught.value.attempts, caught.value.reason) == (1, Reason.DEADLINE)


async def test_hooks_are_waited_for_by_the_channels_clock():
    """CB-12, RT-7: the call waits for a hook until its deadline, measured on the channel's clock."""

    async def never(_failed):
        await asyncio.Event().wait()

    clock, before = FakeClock(), asyncio.all_tasks()
    policy = parse_policy("retry: 1, delay: 100s, max_delay: 100s")  # leaves no time for a second attempt
    call = on_a_clock_in_hand(clock, policy, RetryHooks(on_exhausted=never))
    await clock.advance(63)
    assert not call.done()
    await clock.advance(1)
    assert call.done()
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    for task in asyncio.all_tasks() - before:
        task.cancel()
