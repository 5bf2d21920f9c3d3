"""CB-7: calls that are sent during the attempt to connect, because the target was proven shortly before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import weakref
from concurrent import futures

import grpc
import grpc.aio
import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, Disconnected, Stage, State, aio
from grpc_backoff.aio import core, manager
from grpc_backoff.aio.core import CoreConnector
from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.testing.front import FlakyFront, healthy, settings_only, settings_then_close, silent
from tests.echo import Echo, EchoStub, Message, services, serving

LONG = [("grpc.initial_reconnect_backoff_ms", 60_000)]
"""Options with an INITIAL_BACKOFF of a minute, for which the target stays proven."""
BRIEF = [("grpc.initial_reconnect_backoff_ms", 1_000), ("grpc.min_reconnect_backoff_ms", 300)]


@pytest.fixture
async def echo():
    """A service that counts the calls that it executes, behind a front."""
    echo = Echo()
    async with serving(echo) as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        echo.front = front
        yield echo


async def prove(target, options=LONG):
    """Prove a target: open a channel, and close it while it is connected."""
    async with aio.insecure_channel(target, options) as channel:
        await channel.channel_ready()


async def failing(call):
    with pytest.raises(aio.NoConnectionError) as caught:
        async with asyncio.timeout(20):
            await call
    return caught.value


async def dialling(front, connections):
    """Wait until the front has accepted this many connections."""
    async with asyncio.timeout(20):
        while len(front.visits) < connections:
            await asyncio.sleep(0.01)


async def at_once(kind, target):
    """Make a call and block the event loop at once; return whether the server executed the call meanwhile."""
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
            await asyncio.sleep(0)  # grpc's own calls start in the next iteration
            found = executed.wait(20)
            assert (await call).text == "x"
            return found
    finally:
        server.stop(None)


@pytest.mark.parametrize("kind", [grpc.aio, aio])
async def test_a_call_is_the_attempt(kind):
    """CB-7: a call to a proven target is sent while the connection is being made, as on grpc's own channel."""
    assert await at_once(kind, "127.0.0.1:0")


async def test_what_is_shown_is_what_a_waiting_call_shows(echo):
    """CH-3, CH-11: a call sent during an attempt to connect leads to the same states and events as a pending call."""
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
    """CB-1: if calls on several channels ask for a connection at the same time, they share one attempt."""
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
    """CH-4, CB-1: a failed attempt to connect makes one dial, and calls sent during it fail like pending calls."""
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
    """CB-3: an attempt to connect that carries calls is abandoned at its limit, and leaves nothing behind."""
    await prove(echo.front.target, BRIEF)
    echo.front.behaviour = silent
    async with aio.insecure_channel(echo.front.target, BRIEF) as channel:
        error = await failing(EchoStub(channel).Unary(Message(text="x")))
        assert error.status.last_error.stage is Stage.SETTINGS
        echo.front.behaviour = healthy
        assert (await EchoStub(channel).Unary(Message(text="y"), wait_for_ready=True, timeout=20)).text == "y"
    assert echo.executed == {"y": 1}


async def test_a_deadline_says_why(echo):
    """CH-4: a call whose deadline expires during the attempt to connect reports that there was no connection."""
    await prove(echo.front.target)
    echo.front.behaviour = silent
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        error = await failing(EchoStub(channel).Unary(Message(text="x"), timeout=0.2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.status.state is State.CONNECTING


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_a_cancelled_call_is_not_executed(echo, turns):
    """CH-7: cancelling a call during the attempt to connect keeps it from being executed, and the attempt continues."""
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
    """CB-10: closing a channel during its attempt to connect leaves no calls, core channels, tasks or dials."""
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
    """CH-7: if the peer hangs up after its SETTINGS, a call that was sent to it fails and is not sent again."""
    await prove(echo.front.target)
    echo.front.behaviour = settings_then_close()
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(20):
                await EchoStub(channel).Unary(Message(text="x"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not echo.executed


async def test_a_call_does_not_wait_behind_one_that_missed(echo):
    """CH-7: if the peer hangs up after SETTINGS, a fail-fast call fails even while a wait-for-ready call is pending."""
    await prove(echo.front.target)
    echo.front.behaviour = settings_then_close()
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        lasting = EchoStub(channel).Unary(Message(text="lasting"), wait_for_ready=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(20):
                await EchoStub(channel).Unary(Message(text="x"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        lasting.cancel()  # unless it has already failed with that connection
    assert not echo.executed


@pytest.mark.parametrize("arity", ["Unary", "Down"])
async def test_what_is_answered_stays_so(echo, arity, monkeypatch):
    """CH-7: a call that is answered during the attempt to connect succeeds even if the channel then enters backoff."""
    monkeypatch.setattr(core, "_LOOKS_IN_USE", (20.0, 20.0))  # so the call ends first on any machine
    await prove(echo.front.target)
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        call = getattr(EchoStub(channel), arity)(Message(text="x"))
        async with asyncio.timeout(20):
            while not call.is_answered and call.attempt is None:  # true for one iteration of the loop
                await asyncio.sleep(0)
        assert call.is_answered
        channel._pending.fail()
        if arity == "Unary":
            assert (await call).text == "x"
        else:
            assert [reply async for reply in call] == []


async def test_calls_end_with_the_connection_that_they_made(echo):
    """CH-7, CB-7: a call that is in flight when its connection breaks fails as in grpcio; the loss is an event."""
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
    """CB-10: closing cancels a call sent during the attempt to connect, unless a grace period lets it finish."""
    await prove(echo.front.target)
    channel = aio.insecure_channel(echo.front.target, LONG)
    call = EchoStub(channel).Unary(Message(text="x"))
    await channel.close(grace)
    if grace:
        assert (await call).text == "x"
    else:
        assert call.cancelled()


async def test_a_short_life_keeps_calls_out():
    """CB-7: after a short-lived connection, or with `stable_after`, calls wait until a new one has been observed."""
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


async def test_the_caller_continues_in_the_turn_after_the_answer(echo, monkeypatch):
    """CB-7: a call sent during an attempt to connect returns in the first iteration of the loop after its answer."""
    await prove(echo.front.target)
    loop, began, answered = asyncio.get_running_loop(), CoreChannel.began, []
    turn = 0

    def count():
        nonlocal turn, counting
        turn += 1
        counting = loop.call_soon(count)

    def begin(self, call, owner):
        began(self, call, owner)
        call.add_done_callback(lambda _: answered.append(turn))

    monkeypatch.setattr(CoreChannel, "began", begin)
    monkeypatch.setattr(core, "_LOOKS_IN_USE", (20.0, 20.0))  # so only the answer shows that there is a connection
    counting = loop.call_soon(count)
    async with aio.insecure_channel(echo.front.target, LONG) as channel:
        await EchoStub(channel).Unary(Message(text="x"), timeout=20)
        took = turn - answered[0]
        counting.cancel()
        assert channel.get_state() is grpc.ChannelConnectivity.READY
    assert took <= 1


async def test_closing_needs_no_turn_of_the_loop(echo, monkeypatch):
    """CB-10: a channel whose only call has ended closes within the current loop iteration, like grpc's own channel."""
    await prove(echo.front.target)
    monkeypatch.setattr(core, "_LOOKS_IN_USE", (20.0, 20.0))  # as above
    monkeypatch.setattr(manager, "_UNWATCHED", 20.0)  # so closing does not have to end a watch
    channel = aio.insecure_channel(echo.front.target, LONG)
    await EchoStub(channel).Unary(Message(text="x"), timeout=20)
    closing = channel.close().__await__()
    with pytest.raises(StopIteration):
        next(closing)
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_the_dial_comes_first():
    """CB-1, CB-7: a proven target is dialled as soon as a connection is wanted, even if the loop is then blocked."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.settimeout(20)
        target = f"127.0.0.1:{listening.getsockname()[1]}"

        def accept():
            accepted.append(stack.enter_context(listening.accept()[0]))

        accepted = []
        async with aio.insecure_channel(target, LONG) as channel:
            channel.get_state(try_to_connect=True)
            await asyncio.to_thread(accept)
            accepted[0].sendall(b"\0\0\0\4\0\0\0\0\0")  # SETTINGS
            await asyncio.wait_for(channel.channel_ready(), 20)
        async with aio.insecure_channel(target, LONG) as channel:
            channel.get_state(try_to_connect=True)
            accept()
            assert len(accepted) == 2
