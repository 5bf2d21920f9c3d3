"""Where a call that has no connection differs from a plain one, by rule (CH-3, CH-4) or on purpose."""

from __future__ import annotations

import asyncio
import pickle

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from grpc_backoff.connection.events import Stage, State
from grpc_backoff.testing.front import FlakyFront, settings_then_close, silent
from tests.echo import EchoStub, Message, serving

QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
SLOW = [("grpc.initial_reconnect_backoff_ms", 600_000), ("grpc.max_reconnect_backoff_ms", 600_000)]


@pytest.fixture
async def front():
    """A front that refuses connections, before a healthy server."""
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        await front.refuse()
        yield front


async def failing(call):
    with pytest.raises(aio.NoConnectionError) as caught:
        async with asyncio.timeout(30):
            await call
    return caught.value


async def test_unavailable_says_why(front):
    """CH-4: last connect error, which attempt comes when; the status at that moment comes with the error."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        for _ in range(2):
            error = await failing(EchoStub(channel).Unary(Message()))
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert f"no connection to {front.target}; last error: tcp: failed to connect" in error.details()
            assert "attempt 2 starts in" in error.details()
            assert error.status.state is State.TRANSIENT_FAILURE
            assert error.status.last_error.stage is Stage.TCP
            assert error.status.attempt == 1
            assert 0 < error.status.next_attempt_in <= 600
            assert pickle.loads(pickle.dumps(error)).status == error.status


async def test_deadline_says_why(front):
    """CH-4: DEADLINE_EXCEEDED of a call that waited says the same."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        error = await failing(EchoStub(channel).Unary(Message(), wait_for_ready=True, timeout=0.2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.details().startswith("Deadline Exceeded while waiting: no connection to")
        assert "last error: tcp: failed to connect" in error.details()
        assert "attempt 2 starts in" in error.details()


async def test_deadline_during_an_attempt():
    """CH-4: an attempt that is under way is said to be."""
    async with FlakyFront(silent) as front, aio.insecure_channel(front.target) as channel:
        error = await failing(EchoStub(channel).Unary(Message(), timeout=0.2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.details().endswith("attempt 1 is under way")


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_done_writing_says_why(front, method):
    """CH-4: a pending `done_writing` raises the call's error, where a plain call has an internal one."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        call = getattr(EchoStub(channel), method)(timeout=0.2, wait_for_ready=True)
        assert (await failing(call.done_writing())).code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_failing_fast_yields(front):
    """CH-3: a loop of calls that fail at once leaves the event loop to others."""
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
    """CH-3: a call that fails at once is not done before its caller has it in hand."""
    async with aio.insecure_channel(front.target, options=SLOW) as channel:
        stub, seen = EchoStub(channel), []
        await failing(stub.Unary(Message()))
        call = stub.Unary(Message())
        assert not call.done()
        call.add_done_callback(seen.append)
        await failing(call)
        assert seen == [call]


async def test_peer_that_hangs_up_behind_its_settings():
    """CH-3: a call that does not outlast failures does not wait for ever on such a peer."""
    async with FlakyFront(settings_then_close()) as front, aio.insecure_channel(front.target, options=QUICK) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(30):
                await EchoStub(channel).Unary(Message())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
