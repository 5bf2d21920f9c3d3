"""When a streaming call ends, so does its request iterator."""

from __future__ import annotations

import asyncio
import gc
import weakref

import grpc
import pytest

from grpc_backoff import aio
from tests.aio.trying import REQUEST_STREAMS, RETRY, finish
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


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("retry", [None, RETRY])
@REQUEST_STREAMS
async def test_an_iterator_that_waits_ends_with_its_call(method, retry, ready):
    """CB-10, RT-8: when a call ends, its request iterator is closed and not read again; no task or call is left."""
    queue, ended = asyncio.Queue(), asyncio.Event()

    async def requests():
        try:
            while True:
                yield await queue.get()
        finally:
            ended.set()

    async with serving(Leaves()) as port, aio.insecure_channel(f"127.0.0.1:{port}", retry=retry) as channel:
        if ready:
            await channel.channel_ready()
        await queue.put(Message(text="x"))
        call = getattr(EchoStub(channel), method)(requests())
        await finish(call)
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
