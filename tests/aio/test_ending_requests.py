"""When a streaming call ends, so does its request iterator."""

from __future__ import annotations

import asyncio
import gc
import weakref

import grpc
import pytest

from grpc_backoff import aio
from tests.aio.trying import REQUEST_STREAMS, RETRY, finish, until
from tests.both_apis.test_answers import Requests
from tests.echo import Echo, EchoStub, Message, serving
from tests.sync.service import front


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


async def test_close_after_an_answer_that_was_not_read():
    """CB-10: if a server answers before the requests end, and the answer is never read, nothing of it outlasts `close`.

    grpcio gives such a call a status of its own, and a task waits for the server's until the answer has been read.
    """

    async def requests():
        for _ in range(50):
            yield Message(text="a")
            await asyncio.sleep(0.02)

    before = asyncio.all_tasks()
    with front(Requests(1000, last=None)) as made:
        async with aio.insecure_channel(made.target) as channel:
            call = EchoStub(channel).Both(requests(), wait_for_ready=True, timeout=60)
            await until(lambda: made.visits)
            await asyncio.sleep(0.1)
            call.cancel()
            del call
    await until(lambda: asyncio.all_tasks() == before)
