"""Endings of retried calls that only asyncio has: written requests, cancelled tasks, and iterators that raise.

`tests/both_apis/test_arities.py` covers what both APIs do, and the pure tests in `tests/decide/calls` the decisions
after a failure. Limits and pauses are in real time, but a slow machine only makes the tests slower.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from tests.aio.trying import (
    BUFFER,
    CODE,
    REQUEST_STREAMS,
    RETRY,
    WAYS,
    finish,
    is_cancelled,
    make,
    retrying,
    trying,
    until,
)
from tests.both_apis.api import asyncio_stream
from tests.both_apis.tries import fails, hangs
from tests.both_apis.wire import REFUSED_STREAM, Streams
from tests.echo import EchoStub, Message
from tests.sync.service import front

LATER = "retry: 3, delay: 60s"


# Timeouts and deadlines.


@REQUEST_STREAMS
async def test_deadline_of_a_blocked_writer(method):
    """RT-7: the deadline ends a call whose writer is blocked because the server does not read."""
    async with trying(hangs, options=[(BUFFER, 100_000_000)]) as service:
        call = make(service.stub, method, ["x" * 1_000_000] * 40, "written", timeout=0.5)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            await finish(call)
        assert await call.code() is CODE.DEADLINE_EXCEEDED
        assert service.got == [[]]


# Cancelling.


async def test_cancelled_as_a_stream_opens():
    """RO-3: a reader that is cancelled while grpcio opens a stream is cancelled, and nothing is repeated.

    grpcio loses the cancellation if the stream has just been refused.
    """
    with front(Streams(*[REFUSED_STREAM] * 10_000)) as made:
        async with aio.insecure_channel(made.target, retry="retry: 100, delay: 1ms, jitter: none") as channel:
            await asyncio.wait_for(channel.channel_ready(), 20)
            both, cancelled = EchoStub(channel).Both, 0
            for number in range(500):
                task = asyncio.create_task(finish(both(asyncio_stream(["a", "b"]))))
                await asyncio.sleep(number % 50 * 0.0003)
                if task.cancel():
                    await asyncio.wait([task], timeout=20)
                    assert task.cancelled()
                    cancelled += 1
            assert cancelled


PHASES = {
    "in the first attempt": ([hangs], RETRY, lambda service: service.got),
    "between two attempts": ([fails()], LATER, retrying),
    "in a later attempt": ([fails(), hangs], RETRY, lambda service: len(service.got) == 2),
}
OTHER_STYLES = [(method, style) for method in ("Up", "Both") for style in WAYS if style != "iterator"]
STREAMS = [("Down", None), ("Up", "iterator"), ("Both", "iterator")]
"""Other streaming calls; `test_endings.py` covers unary calls, in more phases."""
IN_EACH_PHASE = pytest.mark.parametrize("phase", PHASES)


@pytest.mark.parametrize(
    ("method", "style", "how"),
    [*((*call, "call") for call in OTHER_STYLES), *((*call, "task") for call in OTHER_STYLES + STREAMS)],
)
@IN_EACH_PHASE
async def test_cancel(method, style, phase, how):
    """CH-1: cancelling the call, or the task that awaits it, ends the call on client and server, in any phase."""
    behaviours, retry, there = PHASES[phase]
    async with trying(*behaviours, retry=retry) as service:
        call, seen = make(service.stub, method, style=style), []
        call.add_done_callback(lambda ended: seen.append((ended is call, ended.done(), ended.cancelled())))
        finishing = asyncio.create_task(finish(call))
        await until(lambda: there(service))
        assert not call.done()
        assert call.cancel() if how == "call" else finishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        await is_cancelled(call)
        tries = len(service.got)
        await until(lambda: service.ended == tries)
        await asyncio.sleep(0.02)
        assert len(service.got) == tries
        assert seen == [(True, True, True)]


@REQUEST_STREAMS
@pytest.mark.parametrize("waits", ["write", "wait_for_connection"])
@pytest.mark.parametrize("retry", [RETRY, None])
async def test_cancel_before_the_call_is_sent(method, waits, retry):
    """CH-1: cancelling a call ends a task that waits until the call has been sent; with plain grpc.aio, it hangs."""
    async with trying(hangs, retry=retry) as service:
        await service.channel.channel_ready()
        call = getattr(service.stub, method)()
        waiting = asyncio.create_task(call.write(Message(text="a")) if waits == "write" else call.wait_for_connection())
        await asyncio.sleep(0)
        assert call.cancel()
        await asyncio.wait([waiting], timeout=20)
        assert waiting.cancelled()
        await is_cancelled(call)


@IN_EACH_PHASE
@pytest.mark.parametrize("who", ["reader", "writer"])
async def test_cancel_one_of_two_tasks(phase, who):
    """CH-1: cancelling a task that reads or writes cancels the call, and so ends the other task."""
    behaviours, retry, there = PHASES[phase]
    async with trying(*behaviours, retry=retry, options=[(BUFFER, 100_000_000)]) as service:
        call = service.stub.Both()

        async def write():
            while True:
                await call.write(Message(text="x" * 1_000_000))

        tasks = {"reader": asyncio.create_task(call.read()), "writer": asyncio.create_task(write())}
        await until(lambda: there(service))
        await asyncio.sleep(0.1)  # by now the writer is blocked
        tasks[who].cancel()
        await asyncio.wait(tasks.values(), timeout=30)
        assert tasks["reader"].cancelled()
        # A write between two attempts raises InvalidStateError when the call ends. One that waits for the flow-control
        # window is cancelled with the RPC.
        assert tasks["writer"].cancelled() or isinstance(tasks["writer"].exception(), asyncio.InvalidStateError)
        assert call.cancelled()


@REQUEST_STREAMS
@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, grpc.aio.AioRpcError])
@pytest.mark.parametrize("style", ["async iterator", "iterator"])
@pytest.mark.parametrize("behaviours", [[], [fails(), hangs]])
async def test_iterator_that_raises(method, error, style, behaviours):
    """CH-1: an exception of any type from a request iterator cancels the call, whichever attempt is running."""
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
            await until(lambda: len(service.got) == 2)
            go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await finish(call)
        assert await call.code() is CODE.CANCELLED
        await until(lambda: service.ended == len(service.got))
