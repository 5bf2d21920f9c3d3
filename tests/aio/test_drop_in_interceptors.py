"""CH-1: interceptors of all four kinds, the same on a plain channel and on ours, before and after READY."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import grpc.aio
import pytest

from tests.aio.test_drop_in_calls import ANSWERS, answer, call_all
from tests.echo import EchoStub, Message


class Note:
    """What each kind below does: note the method, add a header, go on."""

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
    """A unary interceptor from a function."""

    def __init__(self, function):
        self.function = function

    async def intercept_unary_unary(self, continuation, client_call_details, request):
        return await self.function(continuation, client_call_details, request)


@pytest.fixture
async def opened(kind, phase, server):
    """Open channels to the server with these interceptors, in the phase."""
    channels = []

    async def opens(*interceptors, target=server.target):
        channel = kind.insecure_channel(target, interceptors=interceptors)
        channels.append(channel)
        if phase == "ready" and target == server.target:
            await channel.channel_ready()
        stub = EchoStub(channel)
        stub.channel = channel
        return stub

    yield opens
    for channel in channels:
        await channel.close()


@pytest.mark.parametrize("method", ANSWERS)
async def test_chain(opened, server, method):
    """CH-1: each interceptor of the call's kind runs once, in order, and its metadata reaches the server."""
    noted = []
    stub = await opened(*notes(noted, "one", "two"))
    call = call_all(stub, metadata=(("own", "x"),))[method]
    assert await answer(call) == ANSWERS[method]
    path = f"/echo.v1.Echo/{method}".encode()
    assert [name for name, seen in noted if seen == path] == ["one", "two"]
    through = [value for key, value in server.metadata[0] if key == "through"]
    assert through == ["one", "two"]
    assert await call.code() is grpc.StatusCode.OK


async def test_write_and_read(opened):
    """CH-1: the writer's and reader's methods work through interceptors."""
    stub = await opened(*notes([], "one"))
    call = stub.Both()
    for text in "ab":
        await call.write(Message(text=text))
        assert (await call.read()).text == text
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_other_method(opened):
    """CH-1: an interceptor may call another method; its name is bytes, and may be given as str."""

    async def elsewhere(continuation, details, request):
        assert details.method == b"/echo.v1.Echo/Nowhere"
        return await continuation(details._replace(method=b"/echo.v1.Echo/Unary"), request)

    stub = await opened(Does(elsewhere))
    # Not registered: grpcio before 1.8x ignores the new name of a method that is.
    nowhere = stub.channel.unary_unary("/echo.v1.Echo/Nowhere", Message.SerializeToString, Message.FromString)
    assert (await nowhere(Message(text="a"))).text == "a"


async def test_answer_without_a_call(opened, server):
    """CH-1: an interceptor may answer by itself, also where there is no server at all."""

    async def answers(continuation, details, request):
        return Message(text="cached")

    stub = await opened(Does(answers), target="127.0.0.1:1")
    call = stub.Unary(Message())
    assert (await call).text == "cached"
    assert await call.code() is grpc.StatusCode.OK
    assert not server.executed


async def test_retry(opened, server):
    """CH-1: an interceptor may go on several times, and gives the last call."""

    async def retries(continuation, details, request):
        for text in ("abort", "fine"):
            call = await continuation(details, Message(text=text))
            if await call.code() is grpc.StatusCode.OK:
                break
        return call

    stub = await opened(Does(retries))
    assert (await stub.Unary(Message())).text == "fine"
    assert server.executed == Counter({"fine": 1})


async def test_timeout_and_wait_for_ready_are_seen(opened):
    """CH-1: interceptors see what the caller said, and may change it."""
    seen = []

    async def shortens(continuation, details, request):
        seen.append((details.timeout, details.wait_for_ready))
        return await continuation(details._replace(timeout=0.2), request)

    stub = await opened(Does(shortens))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Unary(Message(text="hang"), timeout=60, wait_for_ready=True)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert seen == [(60, True)]


@pytest.mark.skipif(not hasattr(grpc.aio._channel.Channel, "_register_call"), reason="grpcio raised it twice")
async def test_interceptor_that_raises(opened):
    """CH-1: the caller gets it."""

    async def raises(continuation, details, request):
        raise ZeroDivisionError

    stub = await opened(Does(raises))
    with pytest.raises(ZeroDivisionError):
        await stub.Unary(Message())


async def test_error_status(opened):
    """CH-1: an interceptor sees the error when it awaits the call, and the caller gets it."""
    seen = []

    async def looks(continuation, details, request):
        call = await continuation(details, request)
        seen.append(await call.code())
        return call

    stub = await opened(Does(looks))
    with pytest.raises(grpc.aio.AioRpcError, match="not now"):
        await stub.Unary(Message(text="abort"))
    assert seen == [grpc.StatusCode.FAILED_PRECONDITION]


async def test_cancel(opened, server):
    """CH-1: cancelling goes through."""
    stub = await opened(*notes([], "one"))
    call = stub.Unary(Message(text="hang"))
    await server.started.wait()
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await server.cancelled.wait()
    assert call.cancelled()


@pytest.mark.parametrize("method", ANSWERS)
async def test_closed_in_the_same_tick(opened, server, method):
    """CB-10, CH-1: a call whose interceptors have not begun when the channel closes is cancelled, as any other."""
    stub = await opened(*notes([], "one"))
    call = call_all(stub)[method]
    await stub.channel.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(answer(call), 20)
    assert await call.code() is grpc.StatusCode.CANCELLED


async def test_no_connection(opened):
    """CH-3: an interceptor sees UNAVAILABLE, once for each call."""
    seen = []

    async def looks(continuation, details, request):
        call = await continuation(details, request)
        seen.append(await call.code())
        return call

    stub = await opened(Does(looks), target="127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Unary(Message())
    assert seen == [grpc.StatusCode.UNAVAILABLE] * 2


async def test_call_from_an_interceptor(opened, server):
    """CH-1: an interceptor may call another channel, which has interceptors too, before it goes on."""
    noted = []
    other = await opened(*notes(noted, "inner"))

    async def asks(continuation, details, request):
        asked = await other.Unary(Message(text="first"))
        return await continuation(details, Message(text=asked.text + " then"))

    stub = await opened(Does(asks))
    assert (await stub.Unary(Message())).text == "first then"
    assert server.executed == Counter({"first": 1, "first then": 1})
