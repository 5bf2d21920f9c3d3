"""Retried calls that end early, in any phase: the call is cancelled, or its channel is closed or dropped."""

from __future__ import annotations

import asyncio
import gc
import weakref

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallRetried, RetryHooks, aio
from tests.aio.retry_service import CODE, HANG, OK, RetryService, Say, peer, peer_of
from tests.aio.test_channel import settle
from tests.aio.trying import failing, finish, is_cancelled, until
from tests.echo import EchoStub, Message

__all__ = ["peer"]

DOWN = Say()
LONG = "retry: 2, delay: 1h, max_delay: 1h"
QUICK = "retry: 2, delay: 10ms"

IN_FLIGHT = {
    "first attempt": (QUICK, [HANG]),
    "second attempt": (QUICK, [DOWN, HANG]),
}
BETWEEN = {
    "sleeping": (LONG, [DOWN]),
    "refreshing": (QUICK, [Say(CODE.UNAUTHENTICATED)]),
    "settling a conflict": (QUICK, [Say(CODE.ABORTED)]),
    "exhausted": (QUICK, [DOWN] * 3),
}
PHASES = IN_FLIGHT | BETWEEN
HOOKS = {"refreshing", "settling a conflict", "exhausted"}


class Phase:
    """One phase of a retried call, and the script and hooks that bring a call into it."""

    def __init__(self, peer, name):
        self.hook_runs, self.hook_cancelled = asyncio.Event(), asyncio.Event()
        self.before = asyncio.all_tasks()
        self.callbacks = []
        words, self.script = PHASES[name]
        self.name = name
        self.service = peer.service
        self.service.scripts["a"] = self.script
        hooks = RetryHooks(refresh_credentials=self.hang, on_conflict=self.hang, on_exhausted=self.hang)
        self.client = peer.client(words, retry_hooks=hooks)

    async def hang(self, _failed):
        """Run, as a hook, until it is cancelled."""
        self.hook_runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # simulates cleanup
            self.hook_cancelled.set()

    async def reach(self):
        """Make the call, wait until it has reached its phase, and return it."""
        call = self.client.call()
        call.add_done_callback(self.callbacks.append)
        await self.service.until(len(self.script))
        async with asyncio.timeout(30):
            if self.name == "sleeping":
                await self.client.until(CallRetried)
            elif self.name in HOOKS:
                await self.hook_runs.wait()
        assert not call.done()
        return call

    def tasks(self):
        """Return this library's tasks that are still running."""
        return [task for task in asyncio.all_tasks() - self.before if "grpc_backoff/aio/" in repr(task)]


@pytest.fixture(params=PHASES)
async def phase(peer, request):
    """Each phase that a retried call can be in."""
    return Phase(peer, request.param)


async def ends_cancelled(phase, call):
    """Check that the call looks like a cancelled call in plain grpc, and that it ended once."""
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(finish(call)), 30)
    await is_cancelled(call)
    assert isinstance(repr(call), str)
    assert phase.callbacks == [call]
    late = []
    call.add_done_callback(late.append)
    assert late == [call]


def is_the_connections(task):
    return "grpc_backoff/aio/manager" in repr(task) or "grpc_backoff/aio/core" in repr(task)


async def no_more_tries(phase):
    """Check that the call makes no further attempt, and that a running one was cancelled on the server."""
    async with asyncio.timeout(30):
        while phase.name in IN_FLIGHT and not phase.service.cancelled:
            await asyncio.sleep(0.002)
    await settle()
    assert len(phase.service.tries["a"]) == len(phase.script)
    assert phase.service.cancelled == (phase.name in IN_FLIGHT)


@pytest.mark.parametrize("way", ["call", "task", "wait_for", "question"])
async def test_cancelled(phase, way):
    """CH-1: cancelling a call ends it in any phase; cancelling a task that waits for its code or metadata does not."""
    call = await phase.reach()
    if way == "question":
        asking = asyncio.ensure_future(call.initial_metadata() if phase.name in BETWEEN else call.code())
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert not call.done()
    if way in {"call", "question"}:
        assert call.cancel()
    elif way == "task":
        task = asyncio.ensure_future(finish(call))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(finish(call), 0.05)
    await ends_cancelled(phase, call)
    await no_more_tries(phase)
    if phase.name not in HOOKS:
        assert [task for task in phase.tasks() if not is_the_connections(task)] == []


@pytest.mark.parametrize("grace", [None, 0.1])
async def test_channel_closed(phase, grace):
    """CB-10: closing the channel ends the call in any phase, including a running hook, and leaves no task.

    A call between two attempts ends at once, even with a long grace period.
    """
    call = await phase.reach()
    if grace is not None and phase.name in BETWEEN:
        grace = 600
    awaiting = asyncio.ensure_future(finish(call))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(phase.client.channel.close(grace), 30)
    await ends_cancelled(phase, call)
    await asyncio.gather(awaiting, return_exceptions=True)
    assert awaiting.cancelled()
    await no_more_tries(phase)
    assert phase.tasks() == []
    assert phase.hook_cancelled.is_set() == (phase.name in HOOKS)
    with pytest.raises(grpc.aio.UsageError):
        phase.client.call()


@pytest.mark.parametrize("said", [OK, DOWN], ids=["answered", "failing"])
async def test_a_try_that_ends_within_the_grace(peer, said):
    """CB-10: a running attempt may finish within the grace period; its outcome ends the call, without a retry."""
    client = peer.client(QUICK)
    peer.service.scripts["a"] = [Say(said.code, hold=0.3)]
    call = client.call()
    await peer.service.until(1)
    await asyncio.wait_for(client.channel.close(60), 30)
    if said is OK:
        assert await finish(call) == "a"
    else:
        error = await failing(call)
        assert (type(error), error.code()) == (grpc.aio.AioRpcError, CODE.UNAVAILABLE)
    assert len(peer.service.tries["a"]) == 1


async def test_a_hook_that_closes_the_channel(peer):
    """CB-10: a hook may close the channel; this cancels the call for which the hook runs."""
    clients = []

    async def give_up(_failed):
        await clients[0].channel.close()

    clients.append(peer.client(QUICK, retry_hooks=RetryHooks(on_exhausted=give_up)))
    peer.service.scripts["a"] = [DOWN] * 3
    call = clients[0].call()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(finish(call)), 30)
    assert await call.code() is CODE.CANCELLED


async def test_a_listener_that_cancels_the_call(peer):
    """CH-1: a listener may cancel the call; no further attempt is made, even if one was due at once."""
    for delay in ("0.01", "0.0"):
        calls, text = [], f"at {delay}"
        pushed = Say(trailing=(("grpc-retry-pushback-ms", str(int(float(delay) * 1000))),))
        client = peer.client(QUICK)
        client.channel.add_listener(lambda event, calls=calls: isinstance(event, CallRetried) and calls[0].cancel())
        peer.service.scripts[text] = [pushed]
        calls.append(client.call(text))
        assert await asyncio.wait_for(calls[0].code(), 30) is CODE.CANCELLED
        await settle()
        assert len(peer.service.tries[text]) == 1


OUTCOMES = {
    "answered at once": [OK],
    "answered later": [DOWN, DOWN],
    "exhausted": [DOWN] * 3,
    "not retried": [Say(CODE.INTERNAL)],
    "not retried later": [DOWN, Say(CODE.INTERNAL)],
    "conflict": [Say(CODE.ABORTED)],
}


@pytest.mark.parametrize("script", OUTCOMES.values(), ids=OUTCOMES)
async def test_done_callbacks(peer, script):
    """CH-1: a done callback is called once, with the ended call; an exception from it is reported and harmless."""
    reported, seen = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    peer.service.scripts["a"] = script
    call = peer.client(QUICK).call()
    call.add_done_callback(lambda _call: 1 / 0)
    call.add_done_callback(lambda call: seen.append((call, call.done())))
    await asyncio.wait_for(call.code(), 30)
    await settle()
    assert seen == [(call, True)]
    # grpc's own poller reports its BlockingIOErrors to the same handler.
    assert len([error for error in reported if isinstance(error, ZeroDivisionError)]) == 1


@pytest.mark.parametrize("script", [[DOWN], [DOWN] * 2], ids=["answered", "exhausted"])
async def test_a_call_keeps_its_channel_until_it_ends(script):
    """CB-10: a call between two attempts keeps its channel alive, but a finished call does not."""

    def drop():
        opened.clear()
        gc.collect()

    async def ended_for_good(call):
        await call.code()
        await settle()
        gc.collect()

    async with peer_of(RetryService()) as peer:
        peer.service.scripts["a"] = script
        opened = [aio.insecure_channel(peer.target, retry="retry: 1, delay: 300ms")]
        call = EchoStub(opened[0]).Unary(Message(text="a"))
        gone = weakref.ref(opened[0])
        await peer.service.until(1)
        drop()
        assert gone() is not None
        with pytest.warns(ResourceWarning, match="unclosed channel"):
            await ended_for_good(call)
        assert gone() is None
        assert call.done()
        assert len(peer.service.tries["a"]) == 2


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "shared"])
async def test_close_that_is_cancelled(others):
    """CB-10: cancelling `close()` ends the grace period; the calls are cancelled and the channel still closes."""
    service = RetryService(always=HANG)
    async with peer_of(service) as peer:
        channel, *_ = [peer.client().channel for _ in range(1 + others)]
        call = EchoStub(channel).Unary(Message(text="a"))
        await service.until(1)
        closing = asyncio.create_task(channel.close(60))
        await asyncio.sleep(0.05)
        closing.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert await call.code() is CODE.CANCELLED
            while not service.cancelled:
                await asyncio.sleep(0.01)
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


@pytest.mark.parametrize("grace", [None, 30], ids=["at once", "with grace"])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("others", [0, 1])
async def test_close_in_a_cancelled_scope(peer, slots, grace, others):
    """CB-10: if each await of `close` is cancelled, as in a cancelled scope of anyio, everything still ends."""
    peer.service.scripts["a"] = [HANG] * 3
    options = [("grpc_backoff.max_connections", slots), ("grpc_backoff.streams_per_connection", 2)]
    channel, *rest = [aio.insecure_channel(peer.target, options) for _ in range(1 + others)]
    calls = []
    for count in range(1, 4):
        calls.append(EchoStub(channel).Unary(Message(text="a"), timeout=60))
        await peer.service.until(count)
        await until(lambda: all(slot.state.name == "READY" for slot in channel.connection_status().connections))
    assert len(channel.connection_status().connections) == slots
    closing = asyncio.ensure_future(channel.close(grace))
    await asyncio.sleep(0)
    while not closing.done():
        closing.cancel()
        await asyncio.sleep(0)
    await asyncio.wait_for(channel.close(), 20)
    assert [call.done() for call in calls] == [True] * 3
    assert [await call.code() for call in calls] == [CODE.CANCELLED] * 3
    await until(lambda: peer.service.cancelled == 3)
    for other in rest:
        await other.close()
    await until(lambda: not [task for task in asyncio.all_tasks() if "/grpc_backoff/" in repr(task)])
