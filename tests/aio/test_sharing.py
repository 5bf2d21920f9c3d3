"""Channels that share a schedule and channels that share a connection, on real sockets and event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import random
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import grpc
import grpc.aio
import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, Disconnected, State, aio
from grpc_backoff.aio.core_connector import CoreConnection
from grpc_backoff.aio.pool import Share, Shares, _shared_pools
from grpc_backoff.connection.connector import Loss
from grpc_backoff.engine import registry
from grpc_backoff.engine.manager import ConnectionManager
from grpc_backoff.engine.registry import SCHEDULES
from grpc_backoff.testing.front import FlakyFront, accept_close, healthy, silent
from tests.aio.trying import until
from tests.both_apis.interceptors import notes
from tests.both_apis.loops import LoopThread
from tests.echo import EchoStub, Message, serving
from tests.sync.service import place

FAST = [("grpc.initial_reconnect_backoff_ms", 500), ("grpc_backoff.jitter", 0.0)]
SLOW = [("grpc.initial_reconnect_backoff_ms", 60_000)]
RETRY = "retry: 2, delay: 10ms"
OWN = [("grpc.use_local_subchannel_pool", 1)]
TLS = grpc.ssl_channel_credentials()
IDLE, READY = grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.READY
FAILING = grpc.ChannelConnectivity.TRANSIENT_FAILURE


@pytest.fixture
async def front():
    """A front that counts connections, with a healthy server behind it."""
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        yield front


async def called(channel, **how):
    return await EchoStub(channel).Unary(Message(text="x"), timeout=20, **how)


async def state(channel, wanted):
    async with asyncio.timeout(20):
        while (now := channel.get_state(try_to_connect=True)) is not wanted:
            await channel.wait_for_state_change(now)


# Sharing a connection (SH-2, SH-7).


async def test_one_connection_for_insecure_channels(front):
    """SH-2: insecure channels on one loop with the same key share one connection, as in grpcio."""
    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(aio.insecure_channel(front.target)) for _ in range(10)]
        await asyncio.gather(*map(called, channels))
        assert len(front.visits) == 1
        assert len({id(channel._pool) for channel in channels}) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"options": OWN},
        {"options": [("grpc.keepalive_time_ms", 70_000)]},
        {"compression": grpc.Compression.Gzip},
        {"rng": random.Random(1)},
    ],
    ids=["own pool", "options", "compression", "rng"],
)
async def test_connections_of_their_own(front, how):
    """SH-1: a channel with another key, or with its own random generator, has its own connection."""
    async with aio.insecure_channel(front.target) as first, aio.insecure_channel(front.target, **how) as second:
        await asyncio.gather(called(first), called(second))
        assert len(front.visits) == 2


async def test_tls_has_connections_of_its_own(front):
    """SH-2: channels with TLS have separate managers, but share one schedule if their PEMs are equal."""
    front.behaviour = accept_close
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(aio.secure_channel(front.target, grpc.ssl_channel_credentials()))
            for _ in range(5)
        ]
        assert len({id(channel._pool) for channel in channels}) == 5
        for channel in channels:
            await state(channel, FAILING)
        assert len(front.visits) == 1
        assert {channel.connection_status().attempt for channel in channels} == {1}


async def test_idle_until_asked(front):
    """SH-7: a channel is IDLE until it first asks for a connection, whatever the state of others with the same key."""
    async with aio.insecure_channel(front.target) as first, aio.insecure_channel(front.target) as second:
        await called(first)
        assert (first.get_state(), second.get_state()) == (READY, IDLE)
        status = second.connection_status()
        assert (status.state, status.made, status.ready_since) == (State.IDLE, 0, None)
        watch = asyncio.ensure_future(second.wait_for_state_change(IDLE))
        await asyncio.sleep(0.05)
        assert not watch.done()
        assert second.get_state(try_to_connect=True) is IDLE
        await asyncio.wait_for(watch, 5)
        assert second.get_state() is READY
        assert second.connection_status() == first.connection_status()
        assert len(front.visits) == 1


async def test_a_channel_is_told_of_a_connection_that_stands(front):
    """SH-7: a channel that joins a connection sends calls at once and gets one `Connected` event, with `joined` set."""
    async with aio.insecure_channel(front.target, FAST) as first:
        await called(first)
        heard = []
        async with aio.insecure_channel(front.target, FAST, listeners=[heard.append]) as second:
            await called(second)
            assert second.get_state() is READY
            (joined,) = heard
            assert (type(joined), joined.joined, joined.channel) == (Connected, True, second._connections.key)
            await front.break_all()
            await until(lambda: second.get_state() is IDLE)
            await called(second)
            again = [event for event in heard[1:] if isinstance(event, Connected)]
            assert [event.joined for event in again] == [False]


async def test_a_channel_is_not_told_of_a_connection_that_has_ended(front):
    """SH-7: a channel that joins just as the connection ends receives only the `Disconnected` event."""
    async with aio.insecure_channel(front.target, FAST) as first:
        await called(first)
        heard = []
        async with aio.insecure_channel(front.target, FAST, listeners=[heard.append]) as second:
            first._pool.rules.only._lost(first._pool.rules.only.connection, Loss("it broke"))
            await asyncio.sleep(0.01)
            assert [type(event) for event in heard] == [Disconnected]
            assert second.get_state() is IDLE


@pytest.mark.parametrize("grace", [None, 0.2])
async def test_close_ends_the_channels_own_calls(grace):
    """SH-7: closing a channel ends its own calls, of all arities, and none of another channel's."""
    with place() as server:
        first, second = aio.insecure_channel(server.target), aio.insecure_channel(server.target)

        def begin(channel):
            stub, request = EchoStub(channel), Message(text="hang", count=1)
            return [stub.Unary(request), stub.Down(request), stub.Up(iter([request])), stub.Both(iter([request]))]

        own, others = begin(first), begin(second)
        await until(lambda: len(server.servicer.hung) == 8)
        await asyncio.wait_for(first.close(grace), 20)
        assert [call.done() for call in own] == [True] * 4
        assert [await call.code() for call in own] == [grpc.StatusCode.CANCELLED] * 4
        assert [call.done() for call in others] == [False] * 4
        server.servicer.end()
        unary, down, up, both = others
        assert ((await unary).text, (await up).text) == ("hang", "hang")
        assert [len([response async for response in call]) for call in (down, both)] == [1, 1]
        await second.close()


async def test_grace_is_the_channels_own():
    """SH-7: a channel's grace period protects its call even if the last other channel closes without a grace period."""
    with place() as server:
        first, second = aio.insecure_channel(server.target), aio.insecure_channel(server.target)
        call, other = EchoStub(first).Unary(Message(text="hang")), EchoStub(second).Unary(Message(text="hang"))
        await until(lambda: len(server.servicer.hung) == 2)
        closing = asyncio.ensure_future(first.close(20))
        await asyncio.sleep(0.05)
        await second.close()
        assert (call.done(), other.done()) == (False, True)
        server.servicer.end()
        assert (await call).text == "hang"
        await closing


async def test_the_last_channel_closes_the_connection(front):
    """SH-7, CB-10: a connection is closed when the last of the channels that share it closes, and not earlier."""
    channels = [aio.insecure_channel(front.target) for _ in range(3)]
    await asyncio.gather(*map(called, channels))
    for channel in channels[:2]:
        await channel.close()
        await asyncio.sleep(0.05)
        assert front.visits[0].ended is None
        await called(channels[2])
    await channels[2].close()
    await until(lambda: front.visits[0].ended is not None)
    assert len(front.visits) == 1


async def test_a_dropped_channel_leaves_the_others_alone(front):
    """SH-7, CB-10: a channel that is dropped without `close()` does not affect the others."""
    kept, dropped = aio.insecure_channel(front.target), aio.insecure_channel(front.target)
    await asyncio.gather(called(kept), called(dropped))
    with pytest.warns(ResourceWarning, match="unclosed channel"):
        del dropped
    await asyncio.sleep(0.05)
    await called(kept)
    assert len(front.visits) == 1
    await kept.close()
    await until(lambda: front.visits[0].ended is not None)


@pytest.mark.parametrize("closed", [0, 1], ids=["dropped", "one closed"])
async def test_the_connection_ends_with_dropped_channels(front, closed):
    """CB-10: the last of the channels that share a connection is dropped: its running calls go on, and that is all."""
    first, last = aio.insecure_channel(front.target), aio.insecure_channel(front.target)
    await asyncio.gather(called(first), called(last))
    stream = EchoStub(last).Both()
    await stream.write(Message(text="a"))
    assert (await stream.read()).text == "a"
    if closed:
        await first.close()
    with pytest.warns(ResourceWarning, match="unclosed channel"):
        del first, last
    await asyncio.sleep(0.05)
    await stream.write(Message(text="b"))
    assert (await stream.read()).text == "b"
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    await until(lambda: front.visits[0].ended is not None)
    assert len(front.visits) == 1


async def test_a_channel_after_the_last(front):
    """SH-2: a channel that is created while the last channel with its key closes, even by a listener, can connect."""
    made = []

    def hear(event):
        if isinstance(event, Closed) and not made:
            made.append(aio.insecure_channel(front.target))

    async with aio.insecure_channel(front.target, listeners=[hear]) as channel:
        await called(channel)
    await called(made[0])
    await made[0].close()
    assert len(front.visits) == 2


async def test_many_pools_of_one_loop():
    """SH-3: channels with TLS have separate pools, but where they live is noted once, however many they are."""
    channels = [aio.secure_channel("127.0.0.1:1", TLS) for _ in range(5)]
    homes = channels[0]._pool.rules.only.membership.group.homes
    assert list(homes.values()) == [5]
    for channel in channels:
        await channel.close()
    assert not homes


async def test_events_reach_every_channel_and_one_log(front, caplog):
    """SH-7: each channel receives the attempt's events, with its own key and a common id; each event is logged once."""
    caplog.set_level(logging.DEBUG, logger="grpc_backoff")
    heard = [], []
    async with (
        aio.insecure_channel(front.target, listeners=[heard[0].append]) as first,
        aio.insecure_channel(front.target, listeners=[heard[1].append]) as second,
    ):
        await called(first)
        await called(second)
    for events in heard:
        assert [type(event) for event in events] == [AttemptStarted, Connected, Closed]
        assert len({event.channel for event in events}) == 1
        assert not any(event.elsewhere for event in events)
    assert {event.attempt_id for events in heard for event in events[:2]} == {heard[0][0].attempt_id}
    assert heard[0][0].channel is not heard[1][0].channel
    assert sorted(events[-1].lived is None for events in heard) == [False, True]
    assert [record.getMessage().partition(" ")[2] for record in caplog.records].count(
        "attempt 1, for at most 20 s"
    ) == 1


async def test_interceptors_and_retries_are_the_channels_own(front):
    """SH-7: one channel's interceptors and retries do not apply to another channel that shares its connection."""
    noted = []
    async with (
        aio.insecure_channel(front.target, retry=RETRY) as retrying,
        aio.insecure_channel(front.target, interceptors=notes(noted, "first"), retry=RETRY) as first,
        aio.insecure_channel(front.target, retry={"another.Service/Method": RETRY}) as second,
    ):
        assert first._pool is retrying._pool
        for channel in (retrying, first, second):
            await called(channel)
    assert len(noted) == 1


# Sharing a schedule (SH-3 to SH-6, SH-8).


async def test_loops_in_threads_dial_by_one_schedule():
    """SH-3, SH-4: in backoff, loops in several threads make one attempt at a time, and all receive its outcome."""
    async with serving() as port, FlakyFront(accept_close, upstream=("127.0.0.1", port)) as front:
        loops = [Elsewhere(front.target, FAST) for _ in range(4)]
        try:
            loops[0].want()
            await until(lambda: loops[0].status.state is State.TRANSIENT_FAILURE)
            for loop in loops:
                loop.want()
            await asyncio.sleep(2)
            assert 2 <= len(front.visits) <= 4
            await until(lambda: {loop.status.state for loop in loops} == {State.TRANSIENT_FAILURE})
            assert len(failures(loops)) >= 2
            await until(lambda: all(failures([loop], here=False) == failures(loops) for loop in loops))
            front.behaviour = healthy
            loops[0].reset()
            await until(lambda: {loop.status.state for loop in loops} == {State.READY})
        finally:
            for loop in loops:
                loop.end()


async def test_a_loop_that_ends_leaves_the_turn():
    """SH-3: if a loop ends during its attempt without closing its channel, other loops still dial."""
    async with FlakyFront(accept_close) as front:
        gone = Elsewhere(front.target, FAST)
        gone.want()
        await until(lambda: gone.status.state is State.TRANSIENT_FAILURE)
        front.behaviour = silent
        await until(lambda: gone.channel._pool.rules.only._state.in_flight)
        async with aio.insecure_channel(front.target, FAST) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await called(channel)
            gone.abandon()
            front.behaviour = accept_close
            seen = len(front.visits)
            await until(lambda: len(front.visits) > seen)


async def test_a_closed_channel_resets_nothing():
    """CB-9, SH-7: after `close`, a channel's reset does not affect another one that goes on using the connections."""
    async with FlakyFront(accept_close) as front, aio.insecure_channel(front.target, SLOW) as other:
        channel = aio.insecure_channel(front.target, SLOW)
        await state(other, FAILING)
        assert channel._pool is other._pool
        await channel.close()
        channel.reset_connect_backoff()
        await asyncio.sleep(0.1)
        assert len(front.visits) == 1
        other.reset_connect_backoff()
        await until(lambda: len(front.visits) == 2)


def held():
    """Count what channels could leave behind: managers, shares, core channels, threads and file descriptors."""
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    descriptors = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
    return kinds[ConnectionManager], kinds[Share], kinds[CoreConnection], threading.active_count(), descriptors


async def test_many_channels_leave_nothing(monkeypatch):
    """SH-8: used and closed channels leave a bounded table, and no manager, task, thread or file descriptor.

    A third of the calls succeeds, a third fails, and a third is still running when its channel is closed. `python -m
    benchmarks sharing` does the same with 100,000 channels.
    """
    most = 50
    monkeypatch.setattr(registry, "MOST_REMEMBERED", most)
    async with serving() as alive, FlakyFront(accept_close) as front:

        async def use(number):
            target = f"127.0.0.1:{alive}" if number % 3 == 1 else front.target
            async with aio.insecure_channel(target, [("a key of its own", number)]) as channel:
                call = EchoStub(channel).Unary(Message())
                return await call.code() if number % 3 else None

        assert [await use(number) for number in range(3)] == [None, grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE]
        before = held()
        for number in range(3, 3 + 6 * most):
            await use(number)
        await until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
        table, open_keys = SCHEDULES, [entry for entry in SCHEDULES._groups.values() if entry.members]
        assert open_keys == []
        assert len(table) <= most
        ours = [task for task in asyncio.all_tasks() if "grpc_backoff/aio" in repr(task)]
        assert ours == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_fork_begins_without_managers():
    """SH-8: the child of a fork starts without its parent's managers."""
    async with aio.insecure_channel("127.0.0.1:9") as channel:
        assert channel._pool in [pool for here in _shared_pools.values() for pool in here.values()]
        child = os.fork()
        if child == 0:
            os._exit(len(_shared_pools))
        _, ended = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(ended) == 0
        assert len(_shared_pools) > 0


def failures(loops, *, here=True):
    """Return the ids of the failed attempts that these channels reported; with `here`, only of those they made."""
    heard = [event for loop in loops for event in loop.heard if isinstance(event, AttemptFailed)]
    return {event.attempt_id for event in heard if not (here and event.elsewhere)}


class Elsewhere:
    """A channel on an event loop in a separate thread."""

    def __init__(self, target, options):
        self.heard = []
        self._loop = LoopThread()
        self.channel = self._loop.do(aio.insecure_channel, target, options, listeners=[self.heard.append])

    def want(self):
        self._loop.do(self.channel.get_state, True)

    def reset(self):
        self._loop.do(self.channel.reset_connect_backoff)

    @property
    def status(self):
        return self.channel.connection_status()

    def end(self):
        self._loop.run(self.channel.close())
        self.abandon()

    def abandon(self):
        """End the loop without closing the channel."""
        self._loop.close()
        self.channel.closing = True  # no ResourceWarning


async def test_the_grace_is_one():
    """SH-7: a call left over from a dropped channel does not extend another channel's grace period."""
    with place() as server:
        channel, dropped = aio.insecure_channel(server.target), [aio.insecure_channel(server.target)]
        calls = [EchoStub(each).Unary(Message(text="hang")) for each in (channel, *dropped)]
        await until(lambda: len(server.servicer.hung) == 2)
        closing = asyncio.create_task(channel.close(2.0))
        began = time.monotonic()
        await asyncio.sleep(0.1)
        with pytest.warns(ResourceWarning, match="unclosed channel"):
            dropped.clear()
        await closing
        assert time.monotonic() - began < 3.5
        assert all(call.done() for call in calls)


class Waiting:
    """Calls that wait on one channel; each is told to begin by its name."""

    def __init__(self, told, *names):
        self.names, self.told = list(names), told

    def __len__(self):
        return len(self.names)

    def release(self, most=math.inf):
        while self.names and most > 0:
            self.told.append(self.names.pop(0))
            most -= 1


def test_channels_take_turns():
    """PO-14: where there is room for some calls only, the channels take turns, however little room there is."""
    shares, told = Shares(), []
    for names in (("a1", "a2", "a3"), ("b1", "b2"), ()):
        shares.join(Mock(pending=Waiting(told, *names)))
    for _ in range(2):
        shares.release(1)
    assert told == ["a1", "b1"]
    shares.release(2)
    assert told == ["a1", "b1", "a2", "b2"]
    shares.release(5)
    assert (told[4:], len(shares)) == (["a3"], 0)


def played(script):
    """Play a script, whose steps are separated by semicolons; return it, with what each step closes.

    A step is a channel and what it does: join, leave, begin to end, or end. It closes the pool, the connection, or
    its own calls.
    """
    shares, steps = Shares(), []
    for step in (each.strip().partition(":")[0] for each in script.split(";")):
        channel, _, does = step.partition(" ")
        closes = ""
        if does == "joins":
            shares.join(channel)
        elif does == "leaves":
            closes = ": pool" if shares.is_last(channel) else ""
            shares.leave(channel)
        elif does == "ends":
            closes = ": own" if shares.shares_with(channel) else ""
        else:
            closes = ": connection" if shares.end(channel) else ""
        steps.append(step + closes)
    return "; ".join(steps)


@pytest.mark.parametrize(
    "script",
    [
        "a joins; a leaves: pool; a ends; a ended: connection; a ended again: connection",
        "a joins; b joins; a leaves; a ends: own; a ended; b leaves: pool; b ends; b ended: connection",
        # Calls of a channel that has left keep the connection open, and only they are ended.
        "a joins; b joins; a leaves; b leaves: pool; b ends: own; b ended; a ends; a ended: connection",
        # Both end at the same time.
        "a joins; b joins; a leaves; a ends: own; b leaves: pool; b ends: own; a ended; b ended: connection",
        # A dropped channel leaves and ends at once, also after it has left.
        "a joins; b joins; a leaves; a ended; b ends",
        # A channel that joins in between keeps both alive.
        "a joins; b joins; a leaves; c joins; b leaves; a ended; b ended; c leaves: pool; c ended: connection",
    ],
)
def test_what_is_closed(script):
    """SH-7: the pool closes when nobody asks any more; the connection, when nobody's calls are left."""
    assert played(script) == script


def test_channels_may_leave_while_others_are_notified():
    """SH-7: the end of one channel's call may close any of the channels; those that remain are notified in order."""
    shares, told = Shares(), []
    first, *others = [Mock(pending=Mock(fail=partial(told.append, name))) for name in "abc"]
    first.pending.fail = lambda: (told.append("a"), shares.leave(first))
    for share in (first, *others):
        shares.join(share)
    shares.fail()
    shares.fail()
    assert told == ["a", "b", "c", "b", "c"]
