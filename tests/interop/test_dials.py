"""The channel announces every connection that a server sees, whatever happens to that connection and its calls.

The front counts the connections that reach it. The channel's listeners count attempts, and the core's redials for calls
that enter a connection as it ends. Limits are short, so that a core that dials by itself is noticed soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import time

import grpc
import pytest

from grpc_backoff import AttemptStarted, CoreRedial, Disconnected, aio
from grpc_backoff.testing.front import FlakyFront, accept_close, healthy
from tests.both_apis.log import Log
from tests.echo import EchoStub, Message, serving

LIMIT = 0.3
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 300),
    ("grpc.min_reconnect_backoff_ms", round(LIMIT * 1000)),
]
WATCHED = 2.5 * LIMIT  # a core that dials by itself would do so within one limit
READY = grpc.ChannelConnectivity.READY
ARITIES = ("Unary", "Down", "Up", "Both")


def announced(log):
    """Return how many connections the events announce."""
    return len(log.of((AttemptStarted, CoreRedial)))


async def unfinished():
    """Send one message and then nothing more, as a subscriber does."""
    yield Message(text="x", count=1)
    await asyncio.Event().wait()


def begin(stub, arity, **how):
    return getattr(stub, arity)(unfinished() if arity in ("Up", "Both") else Message(text="x", count=1), **how)


async def read(call):
    if hasattr(call, "read"):
        return [message async for message in call]
    return await call


async def hold(held, stub, arity, **how):
    """Make a call and keep what a program might keep: the call, its exception, and what `wait_for` leaves behind."""
    call = begin(stub, arity, **how)
    held.append(call)
    try:
        await asyncio.wait_for(read(call), 0.3)
    except (grpc.aio.AioRpcError, TimeoutError, asyncio.CancelledError) as error:
        held.append(error)


def cut(front):
    """End every connection immediately, without waiting for the loop."""
    for visit in front.visits:
        if visit.ended is None:
            number = os.dup(visit.writer.get_extra_info("socket").fileno())
            with socket.socket(fileno=number) as sock, contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def let_calls_stray(front):
    """Make the core lose its connection after calls are made, but before the core assigns them to it."""
    cut(front)
    be_late()


def be_late():
    """Block the loop for a moment, while grpc's core continues on its own threads."""
    time.sleep(0.05)


@contextlib.asynccontextmanager
async def watched():
    """Yield a front for a server, a channel to it, and the channel's events; garbage collection is off."""
    gc.disable()
    log = Log()
    try:
        async with serving() as port, FlakyFront(healthy, upstream=("127.0.0.1", port)) as front:
            channel = aio.insecure_channel(front.target, options=OPTIONS, listeners=[log.append])
            try:
                yield front, channel, log
            finally:
                await channel.close()
    finally:
        gc.enable()


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("arity", ARITIES)
async def test_calls_that_enter_as_a_connection_ends(arity, back):
    """CB-1, CB-16: the core's redials for calls that enter a dying connection are announced.

    If a redial fails, the core dials no more. Takes about three seconds of real time.
    """
    held = []
    async with watched() as (front, channel, log):
        stub = EchoStub(channel)
        await hold(held, stub, arity, timeout=5)
        await asyncio.sleep(0.3)
        front.behaviour = healthy if back else accept_close
        strays = [begin(stub, arity) for _ in range(3)]
        let_calls_stray(front)
        held += strays
        held += await asyncio.gather(*(asyncio.wait_for(read(call), 1) for call in strays), return_exceptions=True)
        await log.arrived(CoreRedial, 1)
        await asyncio.sleep(WATCHED)
        assert len(front.visits) == announced(log)
        front.behaviour = healthy
        assert (await stub.Unary(Message(text="y"), wait_for_ready=True, timeout=20)).text == "y"
        await asyncio.sleep(WATCHED)
        assert len(front.visits) == announced(log)
        lost, *trials = [event.failure.reason for event in log.of(Disconnected)]
        assert "trial" not in lost
        assert all("trial" in reason for reason in trials)
        await channel.close()
        await asyncio.sleep(WATCHED)
        assert len(front.visits) == announced(log)
        assert all(visit.ended is not None for visit in front.visits), "closed, whoever holds what"
    assert held


async def test_a_stray_call_beside_one_that_outlives_a_goaway():
    """CB-16, CH-6: while a stream outlives a GOAWAY, the core redials for another call, and each dial is announced.

    Takes about two seconds of real time.
    """
    age = [("grpc.max_connection_age_ms", 300), ("grpc.max_connection_age_grace_ms", 20_000)]
    log = Log()
    async with (
        serving(options=age) as port,
        FlakyFront(healthy, upstream=("127.0.0.1", port)) as front,
        aio.insecure_channel(front.target, options=OPTIONS, listeners=[log.append]) as channel,
    ):
        stub = EchoStub(channel)
        stream = stub.Both()
        await stream.write(Message(text="x"))
        front.behaviour = accept_close
        strays = []
        while channel.get_state() is READY:
            strays.append(stub.Unary(Message(text="y"), timeout=5))
            be_late()  # so that GOAWAY arrives before the call enters the connection
            await asyncio.sleep(0.01)  # so that each redial is seen, on uvloop too
        await asyncio.gather(*strays, return_exceptions=True)
        await asyncio.sleep(WATCHED)
        assert len(front.visits) <= announced(log) <= len(front.visits) + 1, "on a busy machine, one is still to come"
        assert not stream.done()
        stream.cancel()
        await asyncio.sleep(WATCHED)
        assert len(front.visits) <= announced(log) <= len(front.visits) + 1
