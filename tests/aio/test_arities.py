"""Retried calls of all four arities at their ends: trailers, deadlines, cancellation, closing.

What follows on a failure is the same for all of them, and held purely (`tests/calls`); how each arity hears of an end,
and of being ended, is not. Limits and pauses are real time. A slow machine makes these tests slower, not wrong.
"""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallExhausted, CallRetried, aio
from grpc_backoff.calls.events import Reason, WaitSource
from tests.aio.service import Tries, counts, echo, fails, hangs
from tests.aio.trying import (
    ANSWERS,
    BUFFER,
    CODE,
    METHODS,
    REQUEST_STREAMS,
    WAYS,
    failing,
    finish,
    make,
    trying,
)
from tests.echo import EchoStub, Message, serving

LATER = "retry: 3, delay: 60s"


def retried(service):
    return [(event.source, event.delay) for event in service.events if isinstance(event, CallRetried)]


# What the server says.


@METHODS
@pytest.mark.parametrize("after", [0, None])
async def test_the_server_says_when(method, after):
    """RT-3: a wait that the server asks for in the trailers of a stream takes the place of the schedule's."""
    async with trying(fails(after, trailing=(("grpc-retry-pushback-ms", "30"),)), retry=LATER) as service:
        assert await finish(make(service.stub, method)) == ANSWERS[method]
        assert retried(service) == [(WaitSource.PUSHBACK, pytest.approx(0.03))]


# Limits.


@pytest.mark.parametrize("method", ["Down", "Up", "Both"])
async def test_time_for_each_try(method):
    """RT-7: an attempt that takes too long is cancelled at the server, and followed by another."""
    async with trying(hangs, hangs, retry="retry: 9, delay: 10ms, timeout: 300ms") as service:
        call = make(service.stub, method)
        assert await finish(call) == ANSWERS[method]
        assert len(service.got) >= 3
        await service.until(lambda service: service.ended == len(service.got))


@METHODS
async def test_deadline_of_the_whole(method):
    """RT-7: one deadline bounds all attempts, and ends the one that runs."""
    async with trying(fails(), hangs, retry="retry: 9, delay: 10ms") as service:
        began = time.monotonic()
        call = make(service.stub, method, timeout=0.4)
        assert call.time_remaining() <= 0.41
        error = await failing(call)
        assert error.code() is CODE.DEADLINE_EXCEEDED
        assert error.reason is Reason.DEADLINE
        assert 0.39 <= time.monotonic() - began < 30
        assert len(service.got) <= 2
        assert call.time_remaining() == 0


@REQUEST_STREAMS
async def test_deadline_of_a_blocked_writer(method):
    """RT-7: the deadline frees a writer whose server does not read."""
    async with trying(hangs, options=[(BUFFER, 100_000_000)]) as service:
        call = make(service.stub, method, ["x" * 1_000_000] * 40, "written", timeout=0.5)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            await finish(call)
        assert await call.code() is CODE.DEADLINE_EXCEEDED
        assert service.got == [[]]


# Cancelling.


PHASES = {
    "in the first attempt": ([hangs], "retry: 3, delay: 10ms", lambda service: service.got),
    "between two attempts": ([fails()], LATER, retried),
    "in a later attempt": ([fails(), hangs], "retry: 3, delay: 10ms", lambda service: len(service.got) == 2),
}
STREAMS = pytest.mark.parametrize(
    ("method", "style"), [("Down", None), *((method, style) for method in ("Up", "Both") for style in WAYS)]
)
"""Unary calls come to more phases in `test_endings.py`."""
IN_EACH_PHASE = pytest.mark.parametrize("phase", PHASES)


@STREAMS
@IN_EACH_PHASE
@pytest.mark.parametrize("how", ["call", "task"])
async def test_cancel(method, style, phase, how):
    """CH-1: whenever and however a call is cancelled, that is its end, here and at the server."""
    behaviours, retry, there = PHASES[phase]
    async with trying(*behaviours, retry=retry) as service:
        call, seen = make(service.stub, method, style=style), []
        call.add_done_callback(lambda ended: seen.append((ended is call, ended.done(), ended.cancelled())))
        finishing = asyncio.create_task(finish(call))
        await service.until(there)
        assert not call.done()
        assert call.cancel() if how == "call" else finishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        assert await call.code() is CODE.CANCELLED
        assert await call.details() == "Locally cancelled by application!"
        assert call.cancelled()
        assert call.done()
        assert not call.cancel()
        assert len(await call.initial_metadata()) == len(await call.trailing_metadata()) == 0
        tries = len(service.got)
        await service.until(lambda service: service.ended == tries)
        await asyncio.sleep(0.02)
        assert len(service.got) == tries
        assert seen == [(True, True, True)]


@IN_EACH_PHASE
@pytest.mark.parametrize("who", ["reader", "writer"])
async def test_cancel_one_of_two_tasks(phase, who):
    """CH-1: a task that is cancelled while it reads or writes takes the call along, and so the other task."""
    behaviours, retry, there = PHASES[phase]
    async with trying(*behaviours, retry=retry, options=[(BUFFER, 100_000_000)]) as service:
        call = service.stub.Both()

        async def write():
            while True:
                await call.write(Message(text="x" * 1_000_000))

        tasks = {"reader": asyncio.create_task(call.read()), "writer": asyncio.create_task(write())}
        await service.until(there)
        await asyncio.sleep(0.1)  # the writer is blocked, by the window or the wait
        tasks[who].cancel()
        await asyncio.wait(tasks.values(), timeout=30)
        assert tasks["reader"].cancelled()
        # Who wrote between two attempts hears of it as of any end; who waits for a window is cancelled with the RPC.
        assert tasks["writer"].cancelled() or isinstance(tasks["writer"].exception(), asyncio.InvalidStateError)
        assert call.cancelled()


@IN_EACH_PHASE
async def test_cancel_a_question(phase):
    """CH-1: a task that only asks can be cancelled at any time, and the call goes on."""
    behaviours, retry, there = PHASES[phase]
    async with trying(*behaviours, retry=retry) as service:
        call = make(service.stub, "Both")
        asking = [
            asyncio.create_task(question())
            for question in (call.code, call.details, call.trailing_metadata, call.initial_metadata)
        ]
        await service.until(there)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        assert all(task.cancelled() for task in asking)
        assert not call.done()
        call.cancel()


@REQUEST_STREAMS
@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, grpc.aio.AioRpcError])
@pytest.mark.parametrize("style", ["async iterator", "iterator"])
@pytest.mark.parametrize("behaviours", [[], [fails(), hangs]])
async def test_iterator_that_raises(method, error, style, behaviours):
    """CH-1: whatever an iterator of requests raises, at whatever point, the call is cancelled."""
    raised = error() if error is not grpc.aio.AioRpcError else error(CODE.ABORTED, *[grpc.aio.Metadata()] * 2)
    go_on = asyncio.Event()

    async def requests():
        yield Message(text="a")
        if behaviours:
            await go_on.wait()
        raise raised

    def at_once():
        yield Message(text="a")
        raise raised

    async with trying(*behaviours) as service:
        call = getattr(service.stub, method)(requests() if style == "async iterator" else at_once())
        if behaviours and style == "async iterator":
            await service.until(lambda service: len(service.got) == 2)
            go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await finish(call)
        assert await call.code() is CODE.CANCELLED
        await service.until(lambda service: service.ended == len(service.got))


@REQUEST_STREAMS
async def test_iterator_of_a_call_that_has_ended(method):
    """RT-8: an iterator that waits for its next request is not waited for when the call has ended."""
    over = asyncio.Event()

    async def requests():
        try:
            yield Message(text="a")
            await asyncio.Event().wait()
        finally:
            over.set()

    async with trying(fails(1, code=CODE.NOT_FOUND)) as service:
        await failing(getattr(service.stub, method)(requests()))
        async with asyncio.timeout(30):
            await over.wait()


# Closing the channel.


@STREAMS
@IN_EACH_PHASE
async def test_close(method, style, phase):
    """CB-10: closing the channel cancels its calls in whatever phase, and nothing is left of them."""
    behaviours, retry, there = PHASES[phase]
    async with trying(*behaviours, retry=retry) as service:
        call = make(service.stub, method, style=style)
        finishing = asyncio.create_task(finish(call))
        await service.until(there)
        async with asyncio.timeout(30):
            await service.channel.close()
            with pytest.raises(asyncio.CancelledError):
                await finishing
        assert call.cancelled()
        assert await call.code() is CODE.CANCELLED
        await service.until(lambda service: service.ended == len(service.got))


@METHODS
@pytest.mark.parametrize("behaviours", [[], [fails()]], ids=["first attempt", "later attempt"])
async def test_close_with_grace(method, behaviours):
    """CB-10: a call that runs may end within the grace, requests that are still to be sent included."""
    go_on = asyncio.Event()

    async def requests():
        yield Message(text="a")
        await go_on.wait()
        yield Message(text="b")

    async def when_told(requests, context):
        await go_on.wait()
        async for response in echo(requests, context):
            yield response

    async with trying(*behaviours, when_told) as service:
        one_request = method in {"Unary", "Down"}
        call = make(service.stub, method) if one_request else getattr(service.stub, method)(requests())
        finishing = asyncio.create_task(finish(call))
        await service.until(lambda service: len(service.got) > len(behaviours))
        closing = asyncio.create_task(service.channel.close(60))
        await asyncio.sleep(0.05)
        go_on.set()
        assert await finishing == ANSWERS[method]
        async with asyncio.timeout(30):
            await closing


@METHODS
async def test_closing_ends_the_retries(method):
    """CB-10: what fails within the grace is not tried again."""
    go_on = asyncio.Event()
    async with trying(fails(when=go_on)) as service:
        finishing = asyncio.create_task(failing(make(service.stub, method)))
        await service.until(lambda service: service.got)
        closing = asyncio.create_task(service.channel.close(60))
        await asyncio.sleep(0.05)
        go_on.set()
        assert (await finishing).code() is CODE.UNAVAILABLE
        async with asyncio.timeout(30):
            await closing
        assert len(service.got) == 1


async def test_exhausted_is_said_once():
    """RT-6: many streams that fail are one event each."""
    async with trying(*[fails()] * 40, retry="retry: 1, delay: 10ms") as service:
        calls = [make(service.stub, method) for method in ANSWERS for _ in range(5)]
        errors = await asyncio.gather(*(failing(call) for call in calls))
        assert [error.attempts for error in errors] == [2] * 20
        assert len([event for event in service.events if isinstance(event, CallExhausted)]) == 20


async def test_many_at_once():
    """CH-7: a hundred streams at once on a channel, half of whose attempts fail, each get their own answer."""
    service = Tries(*[fails(1), counts] * 200)
    async with (
        serving(service) as port,
        aio.insecure_channel(f"127.0.0.1:{port}", retry="retry: 100, delay: 5ms") as channel,
    ):
        stub = EchoStub(channel)
        calls = [
            make(stub, "Both", ["x"] * count, style) for count in range(1, 51) for style in ("written", "iterator")
        ]
        answers = await asyncio.gather(*(finish(call) for call in calls))
    assert answers == [[str(count)] for count in range(1, 51) for _ in range(2)]
