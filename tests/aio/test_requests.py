"""When a streaming call ends, so does its request iterator."""

from __future__ import annotations

import asyncio
import gc
import weakref

import grpc.aio
import pytest

from grpc_backoff import aio
from tests.echo import Echo, EchoStub, Message, serving


class Leaves(Echo):
    """A service that ends a call after the call's first request."""

    async def Up(self, request_iterator, context):  # noqa: N802
        async for request in request_iterator:
            return request
        return Message()

    async def Both(self, request_iterator, context):  # noqa: N802
        async for request in request_iterator:
            yield request
            return


async def read(call):
    return [message async for message in call] if hasattr(call, "read") else await call


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_an_iterator_that_waits_ends_with_its_call(method, ready):
    """CB-10: when a call ends, its request iterator is closed and takes no more items; no task or call is left."""
    queue, ended = asyncio.Queue(), asyncio.Event()

    async def requests():
        try:
            while True:
                yield await queue.get()
        finally:
            ended.set()

    async with serving(Leaves()) as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        if ready:
            await channel.channel_ready()
        await queue.put(Message(text="x"))
        call = getattr(EchoStub(channel), method)(requests())
        await asyncio.wait_for(read(call), 10)
        await asyncio.wait_for(ended.wait(), 5)
        await queue.put(Message(text="y"))
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if "_consume_request_iterator" in repr(task)]
        assert queue.qsize() == 1
        assert await call.code() is grpc.StatusCode.OK
        gone = weakref.ref(call)
        del call
        gc.collect()
        assert gone() is None


async def test_an_iterator_that_is_over_first():
    """CH-1: a call works normally if its request iterator ends first and is cancelled if the iterator raises."""

    async def requests(*texts, error=None):
        for text in texts:
            yield Message(text=text)
        if error is not None:
            raise error

    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        stub = EchoStub(channel)
        assert (await stub.Up(requests("a", "b"))).text == "ab"
        for error in (ValueError("mine"), asyncio.CancelledError()):
            with pytest.raises(asyncio.CancelledError):
                await stub.Up(requests("a", error=error))
        assert (await stub.Up(iter([Message(text="c")]))).text == "c"
