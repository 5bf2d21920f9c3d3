"""CH-1: channels of plain grpc and of this library: states, waits for a state, closing, event loops, signatures."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio
import pytest

import grpc_backoff.aio
from grpc_backoff.testing.front import FlakyFront, silent
from tests.echo import EchoStub, Message

IDLE = grpc.ChannelConnectivity.IDLE
CONNECTING = grpc.ChannelConnectivity.CONNECTING
READY = grpc.ChannelConnectivity.READY
TRANSIENT_FAILURE = grpc.ChannelConnectivity.TRANSIENT_FAILURE
SHUTDOWN = grpc.ChannelConnectivity.SHUTDOWN

ARITIES = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
BASES = {
    "unary_unary": grpc.aio.UnaryUnaryMultiCallable,
    "unary_stream": grpc.aio.UnaryStreamMultiCallable,
    "stream_unary": grpc.aio.StreamUnaryMultiCallable,
    "stream_stream": grpc.aio.StreamStreamMultiCallable,
}


def shape(function):
    """Return the names, kinds and defaults of a function's parameters."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_nothing_abstract_is_left():
    """CH-1: the channel implements every abstract method of grpcio's interface, including newly added ones."""
    assert not grpc_backoff.aio.Channel.__abstractmethods__


@pytest.mark.parametrize("name", [*ARITIES, "close", "get_state", "wait_for_state_change", "channel_ready"])
def test_signatures_of_the_channel(name):
    """CH-1: the channel's methods have the same parameters as those of grpc's own channel."""
    genuine = inspect.getattr_static(grpc.aio.Channel, name)
    assert shape(getattr(grpc_backoff.aio.Channel, name)) == shape(genuine)


@pytest.mark.parametrize("name", ["insecure_channel", "secure_channel"])
def test_signatures_of_the_constructors(name):
    """CH-1: the constructors take grpc's parameters first; all others are keyword-only."""
    genuine, ours = shape(getattr(grpc.aio, name)), shape(getattr(grpc_backoff.aio, name))
    assert ours[: len(genuine)] == genuine
    assert [kind for _, kind, _ in ours[len(genuine) :]] == [inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize("arity", ARITIES)
async def test_types(channel, arity):
    """CH-1: the channel and its multicallables are instances of grpc's interfaces and have their signatures."""
    assert isinstance(channel, grpc.aio.Channel)
    made = getattr(channel, arity)("/echo.v1.Echo/Unary")
    assert isinstance(made, BASES[arity])
    assert shape(type(made).__call__) == shape(BASES[arity].__call__)
    assert isinstance(repr(channel), str)
    assert isinstance(repr(made), str)


async def test_states(kind, server):
    """CH-1: a channel is IDLE until it is asked to connect, then READY, and SHUTDOWN after `close()`.

    `wait_for_state_change` returns at once if the state differs already.
    """
    async with kind.insecure_channel(server.target) as channel, asyncio.timeout(20):
        assert channel.get_state() is IDLE
        for other in (CONNECTING, READY, TRANSIENT_FAILURE, SHUTDOWN):
            await channel.wait_for_state_change(other)
        await asyncio.sleep(0.05)
        assert channel.get_state() is IDLE
        assert channel.get_state(try_to_connect=True) is IDLE
        await channel.channel_ready()
        assert channel.get_state() is READY
    assert channel.get_state() is SHUTDOWN
    assert channel.get_state(True) is SHUTDOWN


async def test_states_of_a_failure(kind):
    """CH-1: a channel that fails to connect goes from IDLE to CONNECTING and TRANSIENT_FAILURE."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        async with kind.insecure_channel(front.target) as channel, asyncio.timeout(20):
            channel.get_state(try_to_connect=True)
            state = IDLE
            while state is not TRANSIENT_FAILURE:
                await channel.wait_for_state_change(state)
                state = channel.get_state()
                assert state in {CONNECTING, TRANSIENT_FAILURE}


async def test_wait_that_is_cancelled(kind, server):
    """CH-1: waiting for a state change can be cancelled and started again."""
    async with kind.insecure_channel(server.target) as channel:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(channel.wait_for_state_change(IDLE), 0.05)
        await channel.channel_ready()


async def test_lost_connection(kind, server):
    """CH-2: when the connection is lost, the state changes, and the next call on the same stub reconnects."""
    host, _, port = server.target.rpartition(":")
    options = [("grpc.initial_reconnect_backoff_ms", 100)]
    async with (
        FlakyFront(upstream=(host, int(port))) as front,
        kind.insecure_channel(front.target, options=options) as channel,
        asyncio.timeout(30),
    ):
        stub = EchoStub(channel)
        await stub.Unary(Message())
        await front.break_all()
        if hasattr(grpc.aio._channel.Channel, "_register_call"):
            await channel.wait_for_state_change(READY)
        else:  # before 1.8x, grpcio's core sometimes noticed the loss only when it was next used
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stub.Unary(Message(), wait_for_ready=True)
        assert (await stub.Unary(Message(text="again"), wait_for_ready=True)).text == "again"


@pytest.mark.parametrize("grace", [None, 0, 0.2])
async def test_closed(channel, stub, grace):
    """CH-1: a closed channel is SHUTDOWN, its calls raise UsageError at once, and closing it again does nothing."""
    await channel.close(grace)
    await channel.close()
    await channel.close(grace)
    assert channel.get_state() is SHUTDOWN
    for call in (stub.Unary, stub.Down, lambda request: stub.Up([request]), lambda request: stub.Both([request])):
        with pytest.raises(grpc.aio.UsageError, match="Channel is closed"):
            call(Message())
    with pytest.raises(grpc.aio.UsageError, match="Channel is closed"):
        await channel.channel_ready()
    for state in (IDLE, SHUTDOWN):
        with pytest.raises(grpc.aio.UsageError, match="Channel is closed"):
            await channel.wait_for_state_change(state)
    async with channel:
        pass


async def test_close_cancels_calls(channel, stub):
    """CH-1: `close()` cancels calls that are still running after the grace period."""
    calls = [stub.Unary(Message(text="hang")), stub.Both()]
    tasks = [asyncio.create_task(reading(call)) for call in calls]
    await asyncio.sleep(0.1)
    await channel.close(0.2)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
    assert [await call.code() for call in calls] == [grpc.StatusCode.CANCELLED] * 2


async def reading(call):
    return await (call.read() if isinstance(call, grpc.aio.StreamStreamCall) else call)


async def test_close_with_grace_lets_calls_end(channel, stub, server):
    """CH-1: calls may finish within the grace period, and `close()` returns as soon as all calls have ended."""
    calls = [asyncio.ensure_future(reading(stub.Unary(Message(text="a")))) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await channel.close(60)
    assert [(await call).text for call in calls] == ["a"] * 3


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_close_with_grace_lets_requests_be_sent(channel, stub, method):
    """CH-1: within the grace period, a running stream may still send requests, by writing or from an iterator."""
    if method == "Both" and not hasattr(grpc.aio._channel.Channel, "_register_call"):
        pytest.skip("grpcio gave streams of responses no grace before 1.8x")
    go_on = asyncio.Event()

    async def requests():
        yield Message(text="a")
        await go_on.wait()
        yield Message(text="b")

    iterated, written = getattr(stub, method)(requests()), getattr(stub, method)()
    await written.write(Message(text="a"))
    closing = asyncio.create_task(channel.close(60))
    await asyncio.sleep(0.1)
    go_on.set()
    await written.write(Message(text="b"))
    await written.done_writing()
    async with asyncio.timeout(20):
        if method == "Up":
            assert [(await call).text for call in (iterated, written)] == ["ab", "ab"]
        else:
            assert [[one.text async for one in call] for call in (iterated, written)] == [["a", "b"]] * 2
        await closing


async def test_close_while_somebody_waits_for_a_state(kind, server):
    """CH-1: `close()` ends a wait for a state change."""
    channel = kind.insecure_channel(server.target)
    waiting = asyncio.create_task(channel.wait_for_state_change(IDLE))
    await asyncio.sleep(0.05)
    await channel.close()
    async with asyncio.timeout(20):
        await waiting


async def test_closing_another_channel(kind, channel, stub):
    """CH-1: closing one channel leaves another's calls running, even if a task is awaiting their `code()`."""
    call = stub.Unary(Message(text="hang"), wait_for_ready=True)
    asking = asyncio.create_task(call.code())
    await asyncio.sleep(0)
    for other in (grpc.aio.insecure_channel("127.0.0.1:1"), kind.insecure_channel("127.0.0.1:1")):
        await other.close()
    assert not call.done()
    call.cancel()
    assert await asking is grpc.StatusCode.CANCELLED


async def test_bad_arguments(kind):
    """CH-1: an object that is not an interceptor raises a ValueError."""
    with pytest.raises(ValueError, match="Interceptor"):
        kind.insecure_channel("127.0.0.1:1", interceptors=[object()])


def test_made_without_a_loop(kind):
    """CH-1: creating a channel in a thread without an event loop raises a RuntimeError."""
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(kind.insecure_channel, "127.0.0.1:1").exception(20), RuntimeError)


def test_made_before_the_loop_runs(kind):
    """CH-1: a channel created while a loop is set but not running belongs to that loop."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        channel = kind.insecure_channel("127.0.0.1:1")

        async def use():
            with pytest.raises(grpc.aio.AioRpcError):
                await EchoStub(channel).Unary(Message())
            await channel.close()

        loop.run_until_complete(use())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def test_its_loop(channel):
    """CH-1: other libraries read a channel's event loop under grpcio's name."""
    assert channel._loop is asyncio.get_running_loop()


async def test_negative_grace(kind, channel):
    """CH-1: a negative grace period raises a ValueError, and the channel stays open."""
    if kind is grpc.aio and not hasattr(grpc.aio._channel.Channel, "_register_call"):
        pytest.skip("grpcio took a negative grace period for none before 1.8x")
    with pytest.raises(ValueError, match="grace must be non-negative"):
        await channel.close(-1)
    assert channel.get_state() is not SHUTDOWN
