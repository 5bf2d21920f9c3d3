"""CH-1: a call is read or iterated over, and written or given an iterator; what grpc says to who mixes that.

Held to grpc's own calls in `test_drop_in_calls`; here over several attempts of a retried call, and in its pauses.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallRetried
from tests.aio.service import fails
from tests.aio.trying import CODE, REQUEST_STREAMS, RESPONSE_STREAMS, make, trying
from tests.echo import Message

MIXED = pytest.raises(grpc.aio.UsageError, match="may not be mixed")
LATER = "retry: 1, delay: 60s"


def retrying(service):
    return any(isinstance(event, CallRetried) for event in service.events)


@RESPONSE_STREAMS
async def test_iteration_lasts_over_tries(method):
    """CH-1: there is one iteration of a call, whichever attempt it is at, and no reading beside it."""
    async with trying(fails(), fails()) as service:
        call = make(service.stub, method)
        responses = aiter(call)
        with MIXED:
            await call.read()
        await service.until(lambda service: len(service.got) == 3)
        assert aiter(call) is responses
        with MIXED:
            await call.read()
        assert (await anext(responses)).text in {"a", "ab"}
        with MIXED:
            await call.read()
        call.cancel()


@RESPONSE_STREAMS
async def test_reading_lasts_over_tries(method):
    """CH-1: a call that was read once is not iterated over, whichever attempt it is at."""
    async with trying(fails(), fails()) as service:
        call = make(service.stub, method)
        reading = asyncio.create_task(call.read())
        await asyncio.sleep(0)
        with MIXED:
            aiter(call)
        assert (await reading).text in {"a", "ab"}
        assert len(service.got) == 3
        with MIXED:
            aiter(call)
        call.cancel()


@RESPONSE_STREAMS
async def test_read_behind_the_end(method):
    """CH-1: once the call has ended `read` may be used by who iterated as well, and says how it ended, each time."""
    async with trying() as service:
        call = make(service.stub, method)
        assert [response.text async for response in call]
        for _ in range(2):
            assert await call.read() is grpc.aio.EOF
    async with trying(fails(), fails(), retry="retry: 1, delay: 10ms") as service:
        call = make(service.stub, method)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match=r"gave up: .* \(2 attempts in "):
                await call.read()


@RESPONSE_STREAMS
async def test_iteration_that_is_left(method):
    """CH-1: an iteration that was left with `break` is gone on with by the next, over several attempts."""
    async with trying(fails(1), fails(1)) as service:
        call = make(service.stub, method)
        async for response in call:
            first = response.text
            break
        rest = [response.text async for response in call]
        assert [first, *rest] == (["a", "b"] if method == "Both" else ["ab"])


@REQUEST_STREAMS
async def test_writing_beside_an_iterator(method):
    """CH-1: a call with an iterator is not written to, in whichever attempt, nor in a pause."""
    async with trying(fails(), retry=LATER) as service:
        call = make(service.stub, method)
        for _ in range(2):
            with MIXED:
                await call.write(Message())
            with MIXED:
                await call.done_writing()
            await service.until(retrying)
        call.cancel()


@REQUEST_STREAMS
async def test_writing_in_a_pause(method):
    """RT-8: what is written between two attempts waits for the next one, and so does the end of it."""
    async with trying(fails(), retry="retry: 1, delay: 500ms, jitter: none") as service:
        call = getattr(service.stub, method)()
        await service.until(retrying)
        writing = asyncio.create_task(call.write(Message(text="a")))
        await asyncio.sleep(0.05)
        assert not writing.done()
        await writing
        await call.done_writing()
        await call.done_writing()
        with pytest.raises(asyncio.InvalidStateError, match="half closed"):
            await call.write(Message(text="b"))
        assert (await call).text == "a" if method == "Up" else (await call.read()).text == "a"
        assert service.got == [[], ["a"]]


async def write_on(call):
    while True:
        await call.write(Message(text="a"))


@REQUEST_STREAMS
async def test_writing_to_a_call_that_is_given_up(method):
    """RT-6: a write that waits for an attempt that never comes raises the call's error; the next says it has ended."""
    async with trying(fails(), fails(), retry="retry: 1, delay: 200ms, jitter: none") as service:
        call = getattr(service.stub, method)()
        await service.until(retrying)
        writing = asyncio.create_task(write_on(call))
        assert await call.code() is CODE.UNAVAILABLE
        await asyncio.wait([writing])
        assert isinstance(writing.exception(), grpc.aio.AioRpcError | asyncio.InvalidStateError)
        with pytest.raises(asyncio.InvalidStateError, match="already finished"):
            await call.write(Message(text="b"))
        await call.done_writing()


async def test_two_writers():
    """RT-8: writes of several tasks are sent one after the other; grpc would fail the call."""
    async with trying(fails(3)) as service:
        call = service.stub.Up()
        await asyncio.gather(*(call.write(Message(text=f"{number}")) for number in range(10)))
        await call.done_writing()
        assert (await call).count == 10
        assert service.got[-1] == [f"{number}" for number in range(10)]
