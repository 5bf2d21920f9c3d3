"""Calls of all four arities to a server whose attempts go as a test says, on a channel with retries."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from tests.aio.service import Tries
from tests.aio.test_drop_in_transport import client_credentials, server_credentials
from tests.echo import EchoStub, Message, serving

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
async def trying(*behaviours, tls=False, retry=RETRY, options=()):
    """Run a server whose attempts go so, and a channel to it; see to it that nothing is left of either.

    Yields the service; beside what it is, it has its `port`, the `channel`, its `stub` and the `events` of its calls.
    """
    service, before, complaints = Tries(*behaviours), asyncio.all_tasks(), []

    def complain(_, context):
        if "PollerCompletionQueue" not in context["message"]:  # grpcio's, about calls of another test's loop
            complaints.append(context)

    asyncio.get_running_loop().set_exception_handler(complain)
    service.events = []
    how = {"retry": retry, "options": options, "listeners": [service.events.append]}
    async with serving(service, credentials=server_credentials() if tls else None) as port:
        service.port, target = port, f"127.0.0.1:{port}"
        service.channel = (
            aio.secure_channel(target, client_credentials(), **how) if tls else aio.insecure_channel(target, **how)
        )
        service.stub = EchoStub(service.channel)
        async with service.channel:
            yield service
    for _ in range(100):
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
    """Make a call with these texts, or with one request of them all; what is to be written is left to `finish`."""
    if method in {"Unary", "Down"}:
        return getattr(stub, method)(Message(text="".join(texts)), **how)
    call = getattr(stub, method)(None if style == "written" else requests_of(texts, style), **how)
    call.texts = texts if style == "written" else None
    return call


async def finish(call, *, read=False):
    """Write what is to be written; return what the call answers, as texts."""
    async with asyncio.timeout(60):
        if getattr(call, "texts", None) is not None:
            with contextlib.suppress(asyncio.InvalidStateError):  # it has ended, and the answer says how
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
    """Return the error that the call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await finish(call, **how)
    return caught.value
