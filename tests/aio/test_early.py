"""Calls that are made in the attempt to connect itself: where the target was proven a moment ago (CB-7)."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from concurrent import futures

import grpc
import grpc.aio
import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, Disconnected, Stage, State, aio
from grpc_backoff.aio import core
from grpc_backoff.aio.core import CoreChannel, CoreConnector
from grpc_backoff.testing.front import FlakyFront, healthy, settings_only, settings_then_close, silent
from tests.echo import Echo, EchoStub, Message, services, serving

LONG = [("grpc.initial_reconnect_backoff_ms", 60_000)]
"""The proof lasts for INITIAL_BACKOFF."""
BRIEF = [("grpc.initial_reconnect_backoff_ms", 1_000), ("grpc.min_reconnect_backoff_ms", 300)]


@pytest.fixture
async def echo():
    """A service that counts what it executes, behind a front."""
    echo = Echo()
    async with serving(echo) as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        echo.front = front
        yield echo


async def prove(target, options=LONG):
    """Have a channel whose connection stands until it is closed."""
    async with aio.insecure_channel(target, options) as channel:
        await channel.channel_ready()


async def failing(call):
    with pytest.raises(aio.NoConnectionError) as caught:
        async with asyncio.timeout(20):
            await call
    return caught.value


async def dialling(front, connections):
    """Return once the front has accepted so many connections."""
    async with asyncio.timeout(20):
        while len(front.visits) < connections:
            await asyncio.sleep(0.01)


async def at_once(kind, target):
    """Make a call whose program does not come back to its event loop; return whether it was executed meanwhile."""
    executed = threading.Event()

    class Noting(services.EchoServicer):
        def Unary(self, request, context):  # noqa: N802
            executed.set()
            return request

    server = grpc.server(futures.ThreadPoolExecutor(2))
    services.add_EchoServicer_to_server(Noting(), server)
    port = server.add_insecure_port(target)
    server.start()
    try:
        await prove(f"127.0.0.1:{port}")
        async with kind.insecure_channel(f"127.0.0.1:{port}", LONG) as channel:
            call = EchoStub(channel).Unary(Message(text="x"))
            await asyncio.sleep(0)  # grpc's own calls begin with the next turn of the loop
            found = executed.wait(20)
            assert (await call).text == "x"
            return found
    finally:
        server.stop(None)


@pytest.mark.parametrize("kind", [grpc.aio, aio])
async def test_a_call_is_the_attempt(kind):
    """CB-7: to a proven target a call goes out as its connection is made, as with grpc's own channel."""
    assert await at_once(kind, "127.0.0.1:0")


async def test_what_is_shown_is_what_a_waiting_call_shows(echo):
    """CH-3, CH-11: state, events and status of the second channel are those of the first."""
    shown = []
    for _ in range(2):
        events = []
        async with aio.insecure_channel(echo.front.target, LONG, listeners=[events.append]) as channel:
            call = EchoStub(channel).Unary(Message(text="x"), timeout=20)
            assert channel.get_state() is grpc.ChannelConnectivity.CONNECTING
            assert not call.done()
            assert 0 < call.time_remaining() <= 20
            assert (await call).text == "x"
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            assert await call.code() is grpc.StatusCode.OK
            assert channel.connection_status().connections == 1
        shown.append([type(event) for event in events])
    assert shown[0] == shown[1]
    assert shown[0][:2] == [AttemptStarted, Connected]
    assert len(echo.front.visits) == 2
    assert echo.executed["x"] == 2


async def test_all_that_wait_enter(echo):
    """CB-1: calls of several channels that want a connection at the same time are in one attempt."""
    await prove(echo.front.target)
    channels = [aio.insecure_channel(echo.front.target, LONG) for _ in range(3)]
    calls = [EchoStub(channel).Unary(Message(text="x")) for channel in channels for _ in range(3)]
    streams = [EchoStub(channel).Down(Message(text="x", count=3)) for channel in channels]
    assert [reply.text for reply in await asyncio.gather(*calls)] == ["x"] * 9
    for stream in streams:
        assert [reply.text async for reply in stream] == ["x"] * 3
    await asyncio.gather(*(channel.close() for channel in channels))
    assert len(echo.front.visits) == 2
    assert echo.executed["x"] == 9


async def test_a_refusal_says_why(echo):
    """CH-4, CB-1: an attempt that fails is one dial, and its calls fail as if they had waited outside."""
    await prove(echo.front.target)
    await echo.front.refuse()
    events = []
    async with aio.insecure_channel(echo.front.target, LONG, listeners=[events.append]) as channel:
        calls = [EchoStub(channel).Unary(Message(text="x")), EchoStub(channel).Down(Message(text="x"))]
        lasting = EchoStub(channel).Unary(Message(text="lasting"), wait_for_ready=True)
        for error in await asyncio.gather(failing(calls[0]), failing(anext(aiter(calls[1])))):
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert error.details().startswith(f"no connection to {echo.front.target}; last error: tcp: ")
            assert error.status.last_error.stage is Stage.TCP
        assert channel.connection_status().state is State.TRANSIENT_FAILURE
        assert not lasting.done()
        await failing(EchoStub(channel).Unary(Message(text="x")))
        await echo.front.listen()
        channel.reset_connect_backoff()
        assert (await asyncio.wait_for(lasting, 20)).text == "lasting"
    assert [type(event) for event in events[:2]] == [AttemptStarted, AttemptFailed]
    assert echo.executed == {"lasting": 1}
    assert len(echo.front.visits) == 2


async def test_silence_ends_at_the_limit(echo):
    """CB-3: an attempt that its calls are in is given up as any other, and leaves nothing."""
    await prove(echo.front.target, BRIEF)
    echo.front.behaviour = silent
    async with aio.insecure_channel(echo.front.target, BRIEF) as channel:
        error = await failing(EchoStub(channel).Unary(Message(text="x")))
        assert error.status.last_error.stage is Stage.SETTINGS
        echo.front.behaviour = healthy
        assert (await EchoStub(channel).Unary(Message(text="y"), wait_for_ready=True, timeout=20)).text == "y"
    assert echo.executed == {"y": 1}


async def test_a_deadline_says_why(echo):
    """CH-4: a call that meets its deadline in an attempt is told what it waited for."""
    await prove(echo.front.target)
    echo.front.behaviour = silent
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        error = await failing(EchoStub(channel).Unary(Message(text="x"), timeout=0.2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.status.state is State.CONNECTING


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_a_cancelled_call_is_not_executed(echo, turns):
    """CH-7: cancelled before there is a connection, a call has never left; the attempt goes on without it."""
    await prove(echo.front.target)
    echo.front.behaviour = silent
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        call = EchoStub(channel).Unary(Message(text="x"))
        stream = EchoStub(channel).Down(Message(text="x"))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert call.cancel()
        assert stream.cancel()
        assert call.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await call
        await dialling(echo.front, 2)
        assert channel.get_state() is grpc.ChannelConnectivity.CONNECTING
    assert not echo.executed


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_closing_in_the_attempt_leaves_nothing(echo, turns, caplog):
    """CB-10: closed before its attempt is through, a channel leaves no call, core channel, task or dial."""
    await prove(echo.front.target)
    echo.front.behaviour = silent
    before, others = asyncio.all_tasks(), weakref.WeakSet(core_channels())
    channel = aio.insecure_channel(echo.front.target, BRIEF)
    calls = [EchoStub(channel).Unary(Message(text="x")), EchoStub(channel).Down(Message(text="x"))]
    for _ in range(turns):
        await asyncio.sleep(0)
    await channel.close()
    assert all(call.cancelled() for call in calls)
    with caplog.at_level(logging.WARNING):
        del channel, calls
        async with asyncio.timeout(20):
            while asyncio.all_tasks() - before or any(visit.ended is None for visit in echo.front.visits):
                await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.name != "grpc_backoff"]
    assert not [each for each in core_channels() if each not in others]
    assert not echo.executed


def core_channels():
    return [each for each in gc.get_objects() if type(each) is CoreChannel]


async def test_no_call_is_made_twice_before_a_peer_that_hangs_up(echo):
    """CH-7: a connection that ends as its call goes out fails the call, once, however the peer ends it."""
    await prove(echo.front.target)
    echo.front.behaviour = settings_then_close()
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(20):
                await EchoStub(channel).Unary(Message(text="x"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not echo.executed


async def test_a_call_does_not_wait_behind_one_that_missed(echo):
    """CH-7: a call that went out with a connection ends as that does, also where a call before it had no part in it."""
    await prove(echo.front.target)
    echo.front.behaviour = settings_then_close()
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        lasting = EchoStub(channel).Unary(Message(text="lasting"), wait_for_ready=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(20):
                await EchoStub(channel).Unary(Message(text="x"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        lasting.cancel()  # unless it had its turn with that connection too
    assert not echo.executed


@pytest.mark.parametrize("arity", ["Unary", "Down"])
async def test_what_is_answered_stays_so(echo, arity, monkeypatch):
    """CH-7: news that the key is in backoff fails no call that was answered before the channel heard of it."""
    monkeypatch.setattr(core, "_LOOKS_IN_USE", (20.0, 20.0))  # so that the call's end comes first on any machine
    await prove(echo.front.target)
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        call = getattr(EchoStub(channel), arity)(Message(text="x"))
        async with asyncio.timeout(20):
            while not call.is_answered and call.attempt is None:  # it is so for a turn of the loop
                await asyncio.sleep(0)
        assert call.is_answered
        channel._pending.fail()
        if arity == "Unary":
            assert (await call).text == "x"
        else:
            assert [reply async for reply in call] == []


async def test_calls_end_with_the_connection_that_they_made(echo):
    """CH-7, CB-7: a call that had gone out when its connection broke fails as in grpcio; the channel hears of it."""
    await prove(echo.front.target)
    echo.front.behaviour = settings_only
    events = []
    async with aio.insecure_channel(echo.front.target, LONG, listeners=[events.append]) as channel:
        call = EchoStub(channel).Unary(Message(text="x"))
        async with asyncio.timeout(20):
            while channel.get_state() is not grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(channel.get_state())
        await echo.front.break_all()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call, 20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not isinstance(caught.value, aio.NoConnectionError)
        async with asyncio.timeout(20):
            while not isinstance(events[-1], Disconnected):
                await asyncio.sleep(0.01)
    assert [type(event) for event in events] == [AttemptStarted, Connected, Disconnected, Closed]


@pytest.mark.parametrize("grace", [None, 20.0])
async def test_grace_holds_for_a_call_in_the_attempt(echo, grace):
    """CB-10: with a grace the call is answered, without one it is cancelled."""
    await prove(echo.front.target)
    channel = aio.insecure_channel(echo.front.target, LONG)
    call = EchoStub(channel).Unary(Message(text="x"))
    await channel.close(grace)
    if grace:
        assert (await call).text == "x"
    else:
        assert call.cancelled()


async def test_a_short_life_keeps_calls_out():
    """CB-7: behind a connection that broke young, calls wait until the next has been looked at; so with CB-8."""
    async with FlakyFront(settings_only) as front, aio.insecure_channel(front.target, LONG) as channel:
        connector = channel._connector
        assert isinstance(connector, CoreConnector)
        connector.note_life(0.05)
        assert connector.enter(20.0) is None
    async with (
        FlakyFront(settings_only) as front,
        aio.insecure_channel(front.target, [("grpc_backoff.stable_after", 1.0)]) as channel,
    ):
        assert channel._connector.enter(20.0) is None


async def test_what_grpc_refuses_is_raised_where_the_call_is_awaited(echo):
    """CH-1: an argument that grpc's call does not take is told as it is on a channel whose target is not proven."""
    for _ in range(2):
        async with aio.insecure_channel(echo.front.target, LONG) as channel:
            call = EchoStub(channel).Unary(Message(text="x"), compression="none that grpc has")
            with pytest.raises(KeyError):
                await asyncio.wait_for(call, 20)
            assert channel.get_state() is grpc.ChannelConnectivity.READY
