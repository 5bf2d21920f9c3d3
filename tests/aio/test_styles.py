"""CH-1: mixing `read()` with iteration, or `write()` with an iterator, raises UsageError, as in grpcio.

`test_drop_in_calls.py` compares calls without retries with grpc's own. These tests cover the attempts of a retried call
and the waits between them.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from tests.aio.trying import CODE, REQUEST_STREAMS, RESPONSE_STREAMS, make, retrying, trying, until
from tests.both_apis.tries import fails
from tests.echo import Message

MIXED = pytest.raises(grpc.aio.UsageError, match="may not be mixed")
LATER = "retry: 1, delay: 60s"


@RESPONSE_STREAMS
async def test_read_past_the_end(method):
    """CH-1: after a call has ended, each `read()` returns EOF or raises the error, even after iteration."""
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
    """CH-1: a new iteration continues where the previous one was left by `break`, even in a later attempt."""
    async with trying(fails(1), fails(1)) as service:
        call = make(service.stub, method)
        async for response in call:
            first = response.text
            break
        rest = [response.text async for response in call]
        assert [first, *rest] == (["a", "b"] if method == "Both" else ["ab"])


@REQUEST_STREAMS
async def test_writing_beside_an_iterator(method):
    """CH-1: `write()` on a call with a request iterator raises UsageError, during attempts and between them."""
    async with trying(fails(), retry=LATER) as service:
        call = make(service.stub, method)
        for _ in range(2):
            with MIXED:
                await call.write(Message())
            with MIXED:
                await call.done_writing()
            await until(lambda: retrying(service))
        call.cancel()


@REQUEST_STREAMS
async def test_writing_in_a_pause(method):
    """RT-8: a write between two attempts waits for the next attempt."""
    async with trying(fails(), retry="retry: 1, delay: 500ms, jitter: none") as service:
        call = getattr(service.stub, method)()
        await until(lambda: retrying(service))
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
    """RT-6: a write that waits for another attempt raises the call's error if no further attempt is made."""
    async with trying(fails(), fails(), retry="retry: 1, delay: 200ms, jitter: none") as service:
        call = getattr(service.stub, method)()
        await until(lambda: retrying(service))
        writing = asyncio.create_task(write_on(call))
        assert await call.code() is CODE.UNAVAILABLE
        await asyncio.wait([writing])
        assert isinstance(writing.exception(), grpc.aio.AioRpcError | asyncio.InvalidStateError)
        with pytest.raises(asyncio.InvalidStateError, match="already finished"):
            await call.write(Message(text="b"))
        await call.done_writing()


async def test_two_writers():
    """RT-8: concurrent writes by several tasks are sent one after another; with plain grpc, the call would fail."""
    async with trying(fails(3)) as service:
        call = service.stub.Up()
        await asyncio.gather(*(call.write(Message(text=f"{number}")) for number in range(10)))
        await call.done_writing()
        assert (await call).count == 10
        assert service.got[-1] == [f"{number}" for number in range(10)]
