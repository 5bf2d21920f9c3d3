"""One channel of grpcio's C-core: its calls, its end, and the watch on its state."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import time

import grpc
import pytest

from grpc_backoff import aio
from grpc_backoff.aio.core_channel import CoreChannel, StateWatch
from grpc_backoff.decide.connections import dial_machine as m
from grpc_backoff.grpcio.aio_private import state_check
from tests.aio.trying import until
from tests.echo import EchoStub, Message, serving


class Core(CoreChannel):
    """A channel that records when it has looked: whether the server had answered a call by then."""

    alive = last_used = loss = link = None  # of a connection, which this is not

    def __init__(self, channel):
        super().__init__(channel, asyncio.get_running_loop(), time.monotonic)
        self.looks = []
        self.judged = itertools.repeat(True)

    def look(self):
        self.looks.append(self.served)

    def _judge(self, _call):
        return next(self.judged)


@pytest.fixture
async def core():
    """A READY core channel to an echo server."""
    async with serving() as port:
        plain = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        core = Core(plain)
        await plain.channel_ready()
        yield core
        await core.close_channel()


def begun(core, owner=None):
    call = EchoStub(core.channel).Both()
    core.began(call, owner)
    return call


async def finish(call):
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_retired_channel_drains_with_its_last_call(core):
    """CH-6: a retired channel may be closed once its last call has ended; this is reported once, and not earlier."""
    core.served = True
    first, second = begun(core), begun(core)
    core.retire()
    await finish(first)
    assert core.looks == []
    await finish(second)
    assert core.looks == [True]
    core.retire()
    assert core.looks == [True]


async def test_a_channel_without_calls_drains_at_once(core):
    """CH-6: a channel without running calls may be closed as soon as it is retired."""
    core.served = True
    await finish(begun(core))
    assert core.looks == []
    core.retire()
    assert core.looks == [True]


async def test_an_end_is_recorded_with_its_time(core):
    """CB-14: the time at which the last call ended is known; while no call has ended, it is before any other time."""
    assert core.used < 0
    call = begun(core)
    assert (core.running, core.used < 0) == (1, True)
    before = time.monotonic()
    await finish(call)
    assert core.running == 0
    assert before <= core.used <= time.monotonic()


async def test_a_failed_write_is_one_end(core):
    """CH-6: a call that the server ends during a write ends once; older releases of grpcio report two ends."""
    for _ in range(10):
        call = core.channel.stream_stream("/echo.v1.Echo/Unknown")()
        core.began(call, None)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for _ in range(100):
                await call.write(bytes(1000))
        assert await call.code() is not grpc.StatusCode.OK
    await asyncio.sleep(0.05)
    assert core.running == 0


async def test_ends_are_noticed_until_the_server_has_answered(core):
    """CB-7: each end is reported until the server has answered a call; the ends of calls that began before are not."""
    core.judged = iter([False, True])
    calls = [begun(core) for _ in range(4)]
    for call in calls:
        await finish(call)
    await until(lambda: not core.running)
    assert core.looks == [False, True]


async def test_calls_that_nothing_refers_to_are_forgotten():
    """CB-10: a channel knows the calls that are running or still referenced, and nothing of any other call."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        stub, known = EchoStub(channel), channel._pool.rules.only.connection
        kept = stub.Unary(Message(text="a"))
        await kept
        for _ in range(3):
            await stub.Unary(Message(text="a"))
        running = stub.Both()
        gc.collect()
        assert {call for call, _ in known.calls()} == {kept, running}
        assert known.running == 1
        running.cancel()
        assert known.running == 0


async def test_streams_that_nothing_refers_to_are_forgotten(core):
    """CB-10: of a finished stream that nothing refers to, not even the record is left."""
    for _ in range(3):
        await finish(begun(core))
    gc.collect()
    assert core.owners == {}


async def test_the_calls_of_one_owner_end(core):
    """SH-7: ending one owner's calls leaves the calls of the others running, and the channel open."""
    one, other = begun(core, "one"), begun(core, "other")
    await core.end_calls("one", None)
    assert one.cancelled()
    await finish(other)


async def test_the_calls_of_an_owner_get_their_grace(core):
    """SH-7: a call that ends within the grace period is not cancelled."""
    call = begun(core, "one")
    ending = asyncio.create_task(core.end_calls("one", 10.0))
    await asyncio.sleep(0)
    await finish(call)
    await ending
    assert not call.cancelled()


@pytest.mark.parametrize("grace", [None, 0.05])
async def test_closing_ends_calls_and_watches(core, grace):
    """CB-10: once the channel is closed, no call of it is running, and no watch is left in the core."""
    call = begun(core)
    core._watch.begin(core.channel, m.READY, core.shown(), lambda: None)
    await core.close_channel(grace)
    assert call.cancelled()
    assert core.last_state == m.READY
    assert core.check(False) == m.SHUTDOWN
    assert not core._tasks
    assert not core._watch.notices


async def test_a_cancelled_close_still_closes(core):
    """CB-10: cancelling `close` during the grace period ends the period, and the channel is closed."""
    call = begun(core)
    closing = asyncio.create_task(core.close_channel(60.0))
    await asyncio.sleep(0.01)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    assert call.cancelled()
    assert core.check(False) == m.SHUTDOWN


async def test_a_question_on_a_channel_of_the_parents():
    """FK-1, LV-1: in the child of a fork, a liveness call on a channel of the parent's ends as cancelled."""
    core, told = Core(grpc.aio.insecure_channel("127.0.0.1:1")), []
    channel, *_ = core.leave_alone()
    core.ask(1.0, told.append)
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.01)
    assert [reply.code for reply in told] == ["CANCELLED"]
    await channel.close()


async def test_a_channel_that_is_given_up(core):
    """SH-8: it stays open for another owner, while this one is closed for good."""
    served = await EchoStub(core.channel).Unary(Message(text="a"))
    assert served.text == "a"
    call = begun(core)
    assert core.is_used()
    await finish(call)
    assert not core.is_used()
    channel = core.give_up()
    assert (core.shown(), core.retired, core.check(False)) == (m.SHUTDOWN, True, m.SHUTDOWN)
    await core.close_channel()
    assert (await EchoStub(channel).Unary(Message(text="b"))).text == "b"
    await channel.close()
    assert await call.code() is grpc.StatusCode.OK


class Watched:
    """A channel of grpcio's own, with a watch and how often it has told of the end of a state."""

    def __init__(self, channel):
        self.channel = channel
        self.told = 0
        self.watch = StateWatch(asyncio.get_running_loop())

    def begin(self, state):
        self.watch.begin(self.channel, state, state_check(self.channel)(False), self._tell)

    def _tell(self):
        self.told += 1


@pytest.fixture
async def watched():
    """A channel to an echo server, not yet connected."""
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Watched(channel)


async def test_a_state_that_lasts_is_watched_once(watched):
    """CB-1: asking again for the end of a state leaves one watch in the core."""
    watched.begin(m.IDLE)
    watched.begin(m.IDLE)
    assert len(watched.watch.notices) == 1


async def test_only_the_end_of_the_latest_state_is_told(watched):
    """CB-16: the end of a watched state is reported once, and not if another state is watched by then."""
    watched.begin(m.IDLE)
    await asyncio.sleep(0.05)
    assert watched.told == 0
    watched.begin(m.READY)  # it is still IDLE
    await until(lambda: watched.told == 1)
    await watched.channel.channel_ready()  # leaves IDLE
    watched.begin(m.READY)
    await asyncio.sleep(0.05)
    assert watched.told == 1


async def test_closing_the_channel_ends_the_watch(watched):
    """CB-10: once the channel is closed, no watch is left in the core, and its end is told."""
    watched.begin(m.IDLE)
    await watched.channel.close()
    await until(lambda: watched.told == 1)
    assert not watched.watch.notices
