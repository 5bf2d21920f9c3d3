"""CH-1: features that only asyncio's interceptors have, on plain channels and on this library's, fresh or READY.

`tests/both_apis/test_interceptors.py` covers what interceptors do on both APIs.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from tests.aio.test_drop_in_calls import ANSWERS, answer, call_all
from tests.echo import EchoStub, Message


class Note:
    """Records the method, adds a header and continues: the behaviour of the four interceptors below."""

    def __init__(self, noted, name="one"):
        self.noted = noted
        self.name = name

    async def note(self, continuation, details, request):
        self.noted.append((self.name, details.method))
        metadata = grpc.aio.Metadata(*(details.metadata or ()), ("through", self.name))
        return await continuation(details._replace(metadata=metadata), request)


class NoteUnaryUnary(Note, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, client_call_details, request):
        return await self.note(continuation, client_call_details, request)


class NoteUnaryStream(Note, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, client_call_details, request):
        return await self.note(continuation, client_call_details, request)


class NoteStreamUnary(Note, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation, client_call_details, request_iterator):
        return await self.note(continuation, client_call_details, request_iterator)


class NoteStreamStream(Note, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
        return await self.note(continuation, client_call_details, request_iterator)


def notes(noted, *names):
    kinds = (NoteUnaryUnary, NoteUnaryStream, NoteStreamUnary, NoteStreamStream)
    return [kind(noted, name) for name in names for kind in kinds]


class Does(grpc.aio.UnaryUnaryClientInterceptor):
    """A unary-unary interceptor that calls a function."""

    def __init__(self, function):
        self.function = function

    async def intercept_unary_unary(self, continuation, client_call_details, request):
        return await self.function(continuation, client_call_details, request)


@pytest.fixture
async def intercepted(kind, phase, server):
    """Open a channel to the server with interceptors, in the phase that the fixture selects."""
    async with kind.insecure_channel(server.target, interceptors=notes([], "one")) as channel:
        if phase == "ready":
            await channel.channel_ready()
        yield channel


async def test_write_and_read(intercepted):
    """CH-1: `write()` and `read()` work through interceptors."""
    call = EchoStub(intercepted).Both()
    for text in "ab":
        await call.write(Message(text=text))
        assert (await call.read()).text == text
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("method", ANSWERS)
async def test_closed_in_the_same_tick(intercepted, method):
    """CB-10, CH-1: a call is cancelled even if the channel closes before its interceptors have started."""
    call = call_all(EchoStub(intercepted))[method]
    await intercepted.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(answer(call), 20)
    assert await call.code() is grpc.StatusCode.CANCELLED
