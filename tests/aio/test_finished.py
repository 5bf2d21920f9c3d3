"""Finished calls: releasing the core's channel changes none of their results."""

from __future__ import annotations

import asyncio
import pickle

import grpc
import pytest

import grpc_backoff.aio
from grpc_backoff.aio.finished import release_core
from grpc_backoff.decide.connections.pool_records import Condemned
from grpc_backoff.testing.front import FlakyFront, healthy
from tests.echo import EchoStub, Message, serving

ALONE = [("grpc.use_local_subchannel_pool", 1)]


async def everything(call):
    """Return everything that a finished call's methods report."""
    said = [
        call.done(),
        call.cancelled(),
        call.cancel(),
        str(call),
        await call.code(),
        await call.details(),
        await call.debug_error_string(),
        tuple(await call.initial_metadata()),
        tuple(await call.trailing_metadata()),
        (call.time_remaining() or 0) > 0,
    ]
    call.add_done_callback(said.append)
    said.remove(call)
    return said


async def outcome(call):
    try:
        return [m async for m in call] if hasattr(call, "read") else await call
    except asyncio.CancelledError:
        return "cancelled"
    except grpc.aio.AioRpcError as error:
        return str(error)


@pytest.mark.parametrize("how", ["answered", "late", "cancelled"])
@pytest.mark.parametrize("arity", ["Unary", "Down", "Up", "Both"])
async def test_finished_calls_say_what_they_said(server, arity, how):
    """CH-1: `release_core` does not change what a finished call's methods return; its error can be pickled."""
    message = Message(text="hang" if how == "late" else "x", count=1)
    async with grpc.aio.insecure_channel(server.target, options=ALONE) as channel:
        request = iter([message]) if arity in ("Up", "Both") else message
        call = getattr(EchoStub(channel), arity)(request, timeout=0.2 if how == "late" else 20)
        if how == "cancelled":
            call.cancel()
        first = await outcome(call)
        before = await everything(call)
        release_core(call)
        release_core(call)
        assert await everything(call) == before
        if arity in ("Unary", "Up"):
            assert await outcome(call) == first
            if how == "late":
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert pickle.loads(pickle.dumps(caught.value)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        elif how != "cancelled":
            await outcome(call)
            assert (await call.code() is grpc.StatusCode.OK) == (how == "answered")


async def test_a_channel_ends_with_a_call_that_is_held():
    """CB-10: after `release_core`, a closed channel's connection ends even if a program still holds a finished call."""
    async with serving() as port, FlakyFront(healthy, upstream=("127.0.0.1", port)) as front:
        channel = grpc.aio.insecure_channel(front.target, options=ALONE)
        call = EchoStub(channel).Unary(Message(text="x"))
        await call
        await channel.close()
        await asyncio.sleep(0.1)
        assert front.visits[0].ended is None
        release_core(call)
        async with asyncio.timeout(5):
            while front.visits[0].ended is None:
                await asyncio.sleep(0.01)
        assert (await call).text == "x"


async def test_calls_that_run_are_left_alone():
    """CH-7: `release_core` does not affect running calls and accepts objects that are not calls."""
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=ALONE) as channel:
        call = EchoStub(channel).Both()
        await call.write(Message(text="x"))
        release_core(call)
        assert (await call.read()).text == "x"
        call.cancel()
        release_core(object())


async def test_a_write_that_fails_behind_the_end():
    """CH-1: a failed write that grpcio records after `release_core` does not change the status of the call."""
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=ALONE) as channel:
        call = EchoStub(channel).Unary(Message(text="x"))
        await call
        assert release_core(call)
        call._cython_call.set_internal_error("Failed")
        assert await call.code() is grpc.StatusCode.OK


async def test_a_status_that_is_still_to_come():
    """RT-2: without `stand_in`, `release_core` keeps a call whose write failed, because its status may still arrive."""
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=ALONE) as channel:
        call = EchoStub(channel).Both(timeout=20)
        await call.write(Message(text="x"))
        held = call._cython_call
        held.set_internal_error('Failed "execute_batch": by the test')  # as grpcio does when a write fails
        assert call.done()
        assert not release_core(call)
        assert call._cython_call is held
        assert release_core(call, stand_in=True)
        assert await call.code() is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("arity", ["Unary", "Down", "Up", "Both"])
async def test_a_condemned_connections_calls_say_so_to_all_who_wait(server, arity):
    """PO-2: whoever already waits for a call's status, messages or end learns that it is UNAVAILABLE, and why."""
    async with grpc_backoff.aio.insecure_channel(server.target, [("grpc_backoff.quiet_after", 30)]) as channel:
        await channel.channel_ready()
        message, told = Message(text="hang", count=1), []
        call = getattr(EchoStub(channel), arity)(forever(message) if arity in ("Up", "Both") else message)
        call.add_done_callback(lambda ended: told.append((ended.done(), ended.cancelled())))
        waiting = [asyncio.ensure_future(each()) for each in (call.code, call.details, call.trailing_metadata)]
        waiting.append(asyncio.ensure_future(outcome(call)))
        await asyncio.sleep(0.05)
        channel._pool.feed(Condemned(0, "no answer"))
        code, details, metadata, ended = await asyncio.wait_for(asyncio.gather(*waiting), 20)
        assert (code, tuple(metadata), call.cancelled()) == (grpc.StatusCode.UNAVAILABLE, (), False)
        assert all("no answer" in text for text in (details, ended, repr(call))), (details, ended, repr(call))
        assert set(told) == {(True, False)}  # grpcio 1.63 calls back twice when a call that is waited for is cancelled


async def forever(message):
    yield message
    await asyncio.Event().wait()
