"""A single retried call against a real server: features that only asyncio has.

`tests/both_apis` covers what both APIs do. The pure tests of the state machine (`tests/decide/calls`) cover which
attempts follow which outcomes, and when. Waits are short and in real time. The tests compare the waits that the channel
reports, so a slow machine only makes the tests slower.
"""

from __future__ import annotations

import asyncio
import traceback
import types

import pytest

from grpc_backoff import CallExhausted, CallRetried, CallSucceeded, aio
from grpc_backoff.aio.loops import LoopClock
from grpc_backoff.decide.calls import call_machine as m
from tests.aio.retry_service import CODE, HANG, Breaking, Say, peer
from tests.aio.trying import failing, finish
from tests.echo import EchoStub, Message

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
QUICK = "retry: 3, delay: 1ms"


# Giving up (RT-6).


async def test_exhausted(peer):
    """RT-6, CH-1: however often it is awaited, a call raises the same error, and its own methods say the same."""
    client = peer.client("retry: 2, delay: 30ms")
    peer.service.scripts["a"] = NEVER
    call, callbacks = client.call(), []
    call.add_done_callback(callbacks.append)
    errors = [*await asyncio.gather(*(failing(call) for _ in range(3))), await failing(call)]
    assert {error.details() for error in errors} == {await call.details()}
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors[1:]}) == 1, "it does not grow"
    error = errors[0]
    assert isinstance(error, aio.RetriesExhaustedError)
    assert error.code() is await call.code() is CODE.UNAVAILABLE
    assert error.trailing_metadata() == await call.trailing_metadata()
    assert error.initial_metadata() == await call.initial_metadata()
    assert error.debug_error_string() == await call.debug_error_string()
    assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
    assert callbacks == [call]
    assert "not now" in repr(call)
    assert (len(peer.service.tries["a"]), len(client.of(CallExhausted))) == (3, 1)


# The caller's side.


@types.coroutine
def counted(call, waits):
    """Await a call; append to `waits` whatever the caller's task waits for."""
    steps = call.__await__()
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            return end.value
        waits.append(wait)
        yield wait


async def test_failed_attempts_do_not_wake_the_caller(peer):
    """RT-1: the caller waits for the outcome, however many attempts it takes."""
    client, waits = peer.client(QUICK), []
    peer.service.scripts["a"] = [DOWN] * 3
    assert (await counted(client.call("a"), waits)).text == "a"
    assert len(peer.service.tries["a"]) == 4
    assert len(waits) <= 2, "for the outcome, and perhaps for grpcio to read the response"


async def test_the_connection_does_not_wake_the_caller(peer):
    """CH-1: the caller of a call that waits for the connection is woken when the call has ended, not before."""

    class Waits(list):
        def append(self, wait):
            wait.add_done_callback(lambda _: super(Waits, self).append(call.done()))

    waits = Waits()
    async with aio.insecure_channel(peer.target) as channel:
        call = EchoStub(channel).Unary(Message(text="a"))
        assert (await counted(call, waits)).text == "a"
    assert set(waits) == {True}


async def test_never_awaited(peer):
    """RT-1: a call is retried even if it is neither awaited nor referenced."""
    client = peer.client("retry: 2, delay: 10ms")
    peer.service.scripts |= {"a": [DOWN] * 2, "b": NEVER}
    client.call()
    client.call("b")
    await client.until(CallSucceeded)
    await client.until(CallExhausted)
    assert [len(peer.service.tries[text]) for text in "ab"] == [3, 3]


async def test_questions_while_it_runs(peer):
    """CH-1: `code()` and `details()` wait for the last attempt; cancelling a task that awaits them is harmless."""
    client = peer.client("retry: 1, delay: 200ms")
    peer.service.scripts["a"] = [Say(trailing=(("try", "first"),))]
    call = client.call()
    questions = [asyncio.ensure_future(ask()) for ask in (call.code, call.details, call.trailing_metadata)]
    dropped = asyncio.ensure_future(call.code())
    await client.until(CallRetried)
    assert not call.done()
    assert "attempt 1" in repr(call)
    dropped.cancel()
    await asyncio.gather(dropped, return_exceptions=True)
    code, text, trailing = await asyncio.wait_for(asyncio.gather(*questions), 30)
    assert (code, text) == (CODE.OK, "")
    assert "try" not in trailing
    assert "attempt 2" in repr(call)


async def test_connection_and_initial_metadata(peer):
    """RT-8: a wait for a connection or for initial metadata spans retries; receiving metadata commits the call."""
    client = peer.client("retry: 2, delay: 10ms")
    greeting = (("greeting", "hello"),)
    peer.service.scripts |= {"a": [DOWN, Say(CODE.OK, initial=greeting)], "b": NEVER}
    call = client.call()
    await call.wait_for_connection()
    assert (await call.initial_metadata())["greeting"] == "hello"
    assert await finish(call) == "a"
    call = client.call("b")
    assert "greeting" not in await call.initial_metadata()
    with pytest.raises(aio.RetriesExhaustedError):
        await call.wait_for_connection()
    assert len(peer.service.tries["b"]) == 3


async def test_the_code_of_a_call_whose_step_raised(peer):
    """CH-1: asking for the status of a call that a user-supplied generator has ended raises the generator's error."""
    rng = Breaking()
    client = peer.client("retry: 2, delay: 10ms, jitter: full", rng=rng)
    await client.channel.channel_ready()
    rng.broken = True
    peer.service.scripts["a"] = NEVER
    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError, match="no chance"):
            await client.call().code()


class BreakingClock(LoopClock):
    """The loop's clock, which raises once when `broken` is set."""

    broken = False

    def __init__(self, loop):
        super().__init__(loop)
        self.now = self._time

    def _time(self):
        if self.broken:
            self.broken = False
            raise ZeroDivisionError("no time")
        return self.loop.time()


async def test_a_clock_that_raises(peer):
    """CH-1: an exception from a user-supplied clock is raised by the call, whose running attempt is cancelled."""
    clock = BreakingClock(asyncio.get_running_loop())
    client = peer.client("retry: 2, delay: 10ms", clock=clock)
    peer.service.scripts["a"] = [HANG]
    call = client.call()
    answer = asyncio.ensure_future(finish(call))
    await peer.service.until(1)
    clock.broken = True
    assert call.cancel()
    async with asyncio.timeout(30):
        for waiting in (answer, call):
            with pytest.raises(ZeroDivisionError, match="no time"):
                await waiting
        while not peer.service.cancelled:
            await asyncio.sleep(0.01)


async def test_an_interrupted_step_keeps_the_inputs_behind_it():
    """TH-6: if a signal interrupts a step, the inputs that were waiting are processed with the next one."""
    async with aio.insecure_channel("127.0.0.1:9", retry="retry: 1") as channel:
        call = EchoStub(channel).Unary(Message(text="a"), wait_for_ready=True)
        seen, step = [], call._machine.step

        class Interrupted(type(call._machine)):
            def step(self, state, given, now, around):
                seen.append(given)
                if len(seen) == 1:
                    call.feed(m.Committed())
                    raise KeyboardInterrupt
                return step(state, given, now, around)

        given = call._machine
        call._machine = Interrupted(given.target, given.method, given.policy, given.wait_for_ready)
        with pytest.raises(KeyboardInterrupt):
            call.feed(m.ConnectionReady())
        call.feed(m.CancelRequested())
        assert [type(each) for each in seen] == [m.ConnectionReady, m.Committed, m.CancelRequested]
        assert call.cancelled()
