"""Calls of all four arities, with retries, to a server that handles each attempt as a test specifies."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallRetried, aio
from tests.both_apis.tries import Tries
from tests.echo import EchoStub, Message
from tests.sync.service import place

CODE = grpc.StatusCode
RETRY = "retry: 3, delay: 10ms"
ANSWERS = {"Unary": "ab", "Down": ["ab"], "Up": "ab", "Both": ["a", "b"]}
METHODS = pytest.mark.parametrize("method", ANSWERS)
RESPONSE_STREAMS = pytest.mark.parametrize("method", ["Down", "Both"])
REQUEST_STREAMS = pytest.mark.parametrize("method", ["Up", "Both"])
WAYS = ["written", "async iterator", "iterator"]
STYLES = pytest.mark.parametrize("style", WAYS)
CALLS = pytest.mark.parametrize(
    ("method", "style"),
    [("Unary", None), ("Down", None), *((method, style) for method in ("Up", "Both") for style in WAYS)],
)
BUFFER = "grpc.per_rpc_retry_buffer_size"


@contextlib.asynccontextmanager
async def trying(*behaviours, retry=RETRY, options=()):
    """Run a server with these behaviours and open a channel to it; check that neither leaves anything behind.

    Yields the service, with these attributes added: its `port`, the `channel`, the channel's `stub`, and the `events`
    of the calls.
    """
    service, before, complaints = Tries(*behaviours), asyncio.all_tasks(), []

    def complain(_, context):
        if "PollerCompletionQueue" not in context["message"]:  # from grpcio, about another test's loop
            complaints.append(context)

    asyncio.get_running_loop().set_exception_handler(complain)
    service.events = []
    with place(service) as server:
        service.port = server.port
        service.channel = aio.insecure_channel(server.target, options, retry=retry, listeners=[service.events.append])
        service.stub = EchoStub(service.channel)
        async with service.channel:
            yield service
    for _ in range(500):
        if asyncio.all_tasks() <= before:
            break
        await asyncio.sleep(0.01)
    left = asyncio.all_tasks() - before
    assert not left, left
    gc.collect()
    assert not complaints, complaints


async def each(texts):
    for text in texts:
        await asyncio.sleep(0)
        yield Message(text=text)


def requests_of(texts, style):
    return each(texts) if style == "async iterator" else [Message(text=text) for text in texts]


def make(stub, method, texts=("a", "b"), style="async iterator", **how):
    """Call the method with these texts, joined into one request if it is not request-streaming.

    With the style "written", nothing is sent until `finish`.
    """
    if method in {"Unary", "Down"}:
        return getattr(stub, method)(Message(text="".join(texts)), **how)
    call = getattr(stub, method)(None if style == "written" else requests_of(texts, style), **how)
    call.texts = texts if style == "written" else None
    return call


async def finish(call, *, read=False):
    """Write the texts that `make` left to be written, if any; return the response's text, or a list for a stream."""
    async with asyncio.timeout(60):
        if getattr(call, "texts", None) is not None:
            with contextlib.suppress(asyncio.InvalidStateError):  # the call has ended; its response says how
                for text in call.texts:
                    await call.write(Message(text=text))
            await call.done_writing()
        if isinstance(call, grpc.aio.UnaryUnaryCall | grpc.aio.StreamUnaryCall):
            return (await call).text
        if not read:
            return [response.text async for response in call]
        texts = []
        while (response := await call.read()) is not grpc.aio.EOF:
            texts.append(response.text)
        return texts


async def failing(call, **how):
    """Return the error that the call raises."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await finish(call, **how)
    return caught.value


async def is_cancelled(call):
    """Check that a call that has ended looks like a cancelled call in plain grpc."""
    assert call.done()
    assert call.cancelled()
    assert not call.cancel()
    assert await call.code() is CODE.CANCELLED
    assert await call.details() == "Locally cancelled by application!"
    for metadata in (await call.initial_metadata(), await call.trailing_metadata()):
        assert isinstance(metadata, grpc.aio.Metadata)
        assert len(metadata) == 0


def retrying(service):
    """Return whether an attempt has failed, and another one follows."""
    return any(isinstance(event, CallRetried) for event in service.events)


async def until(condition, seconds=20):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.01)
