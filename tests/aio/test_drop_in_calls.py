"""CH-1: the four arities with every argument and method, the same on a plain channel and on ours.

Each test runs on a fresh channel, where our call is a waiting one, and on a READY one.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc

import grpc
import grpc.aio
import pytest

from grpc_backoff.testing.front import FlakyFront
from tests.aio.service import INITIAL, TRAILING
from tests.echo import EchoStub, Message

GZIP = grpc.Compression.Gzip


async def later(*texts):
    for text in texts:
        await asyncio.sleep(0)
        yield Message(text=text)


def call_all(stub, text="a", **how):
    """Make one call of each arity."""
    return {
        "Unary": stub.Unary(Message(text=text), **how),
        "Down": stub.Down(Message(text=text, count=2), **how),
        "Up": stub.Up(later(text, text), **how),
        "Both": stub.Both(later(text, text), **how),
    }


async def answer(call):
    """Return what a call of any arity answers, as texts."""
    if isinstance(call, grpc.aio.UnaryUnaryCall | grpc.aio.StreamUnaryCall):
        return (await call).text
    return [response.text async for response in call]


ANSWERS = {"Unary": "a", "Down": ["a", "a"], "Up": "aa", "Both": ["a", "a"]}
ARITIES = pytest.mark.parametrize("method", ANSWERS)


async def test_all_at_once(stub):
    """CH-1: calls of all arities run at the same time."""
    calls = call_all(stub)
    got = await asyncio.gather(*(answer(call) for call in calls.values()))
    assert dict(zip(calls, got, strict=True)) == ANSWERS


@ARITIES
async def test_after_the_end(stub, method):
    """CH-1: an ended call answers every question about its end, and cannot be cancelled any more."""
    call = call_all(stub)[method]
    await answer(call)
    assert await call.code() is grpc.StatusCode.OK
    assert await call.details() == ""
    assert call.done()
    assert not call.cancelled()
    assert not call.cancel()
    assert call.time_remaining() is None
    assert isinstance(await call.initial_metadata(), grpc.aio.Metadata)
    assert isinstance(await call.trailing_metadata(), grpc.aio.Metadata)
    assert isinstance(await call.debug_error_string(), str | None)
    assert await call.wait_for_connection() is None
    assert isinstance(repr(call), str)
    assert isinstance(str(call), str)


@ARITIES
async def test_questions_before_the_end(stub, method):
    """CH-1: a call that has just been made is neither done nor cancelled, has a repr and is of grpc's type."""
    call = call_all(stub)[method]
    kinds = {
        "Unary": grpc.aio.UnaryUnaryCall,
        "Down": grpc.aio.UnaryStreamCall,
        "Up": grpc.aio.StreamUnaryCall,
        "Both": grpc.aio.StreamStreamCall,
    }
    assert isinstance(call, kinds[method])
    assert isinstance(call, grpc.aio.Call)
    assert isinstance(call, grpc.RpcContext | grpc.aio.RpcContext)
    assert not call.done()
    assert not call.cancelled()
    assert isinstance(repr(call), str)
    await answer(call)


async def test_await_twice(stub):
    """CH-1: a unary response can be awaited again, also by two at the same time."""
    for call in (stub.Unary(Message(text="x")), stub.Up(later("x"))):
        both = await asyncio.gather(call_again(call), call_again(call))
        assert [response.text for response in (*both, await call)] == ["x"] * 3


async def call_again(call):
    return await call


async def test_code_before_the_answer_is_awaited(stub):
    """CH-1: the status can be waited for without awaiting the response."""
    call = stub.Unary(Message(text="x"))
    assert await call.code() is grpc.StatusCode.OK
    assert (await call).text == "x"


@pytest.mark.parametrize("method", ["Up", "Both"])
@pytest.mark.parametrize(
    "requests", [lambda: later("a", "a"), lambda: iter([Message(text="a")] * 2), lambda: [Message(text="a")] * 2]
)
async def test_request_iterators(stub, method, requests):
    """CH-1: requests come from an async iterator, an iterator or a list."""
    assert await answer(getattr(stub, method)(requests())) == ANSWERS[method]


async def test_arguments_by_position(stub):
    """CH-1: the request-streaming arities take all arguments by position, as grpc's do."""
    how = (5, (("key", "value"),), None, True, GZIP)
    assert await answer(stub.Up(later("a", "a"), *how)) == "aa"
    assert await answer(stub.Both(later("a", "a"), *how)) == ["a", "a"]


async def test_arguments_by_keyword_only(stub):
    """CH-1: the others take them by keyword only."""
    with pytest.raises(TypeError):
        stub.Unary(Message(), 5)
    with pytest.raises(TypeError):
        stub.Down(Message(), 5)
    with pytest.raises(TypeError):
        stub.Unary(Message(), no_such_argument=1)


async def test_read(stub):
    """CH-1: responses are read one by one, then EOF, again and again."""
    call = stub.Down(Message(text="x", count=2))
    assert [(await call.read()).text, (await call.read()).text] == ["x", "x"]
    assert await call.read() is grpc.aio.EOF
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_write_and_read(stub):
    """CH-1: requests are written and answers read in turn; `done_writing` may be said twice."""
    call = stub.Both()
    for text in "abc":
        await call.write(Message(text=text))
        assert (await call.read()).text == text
    await call.done_writing()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_write_then_iterate(stub):
    """CH-1: written requests, iterated responses."""
    call = stub.Both()
    await call.write(Message(text="a"))
    await call.write(Message(text="b"))
    await call.done_writing()
    assert await answer(call) == ["a", "b"]


async def test_reader_and_writer_tasks(stub):
    """CH-1: one task writes while another, which was there first, reads."""
    call = stub.Both()
    reading = asyncio.create_task(answer(call))
    await asyncio.sleep(0)
    for text in "abc":
        await call.write(Message(text=text))
    await call.done_writing()
    assert await reading == ["a", "b", "c"]


async def test_write_unary(stub):
    """CH-1: written requests, one response."""
    call = stub.Up()
    await call.write(Message(text="a"))
    await call.write(Message(text="b"))
    await call.done_writing()
    assert (await call).text == "ab"
    await call.done_writing()  # nothing happens


async def test_done_writing_first(stub):
    """CH-1: no request at all is allowed."""
    call = stub.Up()
    await call.done_writing()
    assert (await call).count == 0


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_write_after_done_writing(stub, method):
    """CH-1: InvalidStateError."""
    call = getattr(stub, method)()
    await call.write(Message(text="a"))
    await call.done_writing()
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message(text="b"))
    assert await answer(call) == ANSWERS[method][:1]
    assert await call.code() is grpc.StatusCode.OK
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message(text="b"))


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_write_beside_an_iterator(stub, method):
    """CH-1: UsageError, for both of the writer's methods."""
    call = getattr(stub, method)(later("a", "a"))
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.write(Message())
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.done_writing()
    assert await answer(call) == ANSWERS[method]


@pytest.mark.parametrize("method", ["Down", "Both"])
async def test_read_beside_iteration(stub, method):
    """CH-1: UsageError, whenever the iterating call is read."""
    call = call_all(stub)[method]
    responses = aiter(call)
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.read()
    assert (await anext(responses)).text == "a"
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.read()
    assert aiter(call) is responses
    call.cancel()


@pytest.mark.parametrize("method", ["Down", "Both"])
async def test_iteration_beside_read(stub, method):
    """CH-1: UsageError, whenever the call that is being read is iterated over."""
    call = call_all(stub)[method]
    reading = asyncio.create_task(call.read())
    await asyncio.sleep(0)
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        aiter(call)
    assert (await reading).text == "a"
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        aiter(call)
    call.cancel()


async def test_break_and_go_on(stub):
    """CH-1: an iteration that was left is gone on with by the next."""
    call = stub.Both(later("a", "b", "c"))
    async for response in call:
        assert response.text == "a"
        break
    assert await answer(call) == ["b", "c"]


METADATA = [
    (("key", "value"), ("key", "again"), ("key-bin", b"\x00\xff")),
    [("key", "value"), ("key", "again"), ("key-bin", b"\x00\xff")],
    grpc.aio.Metadata(("key", "value"), ("key", "again"), ("key-bin", b"\x00\xff")),
]


@pytest.mark.parametrize("metadata", METADATA, ids=["tuple", "list", "Metadata"])
async def test_metadata_sent(stub, server, metadata):
    """CH-1: metadata reaches the server, binary too, repeated keys in their order."""
    await stub.Unary(Message(), metadata=metadata)
    seen = next(pairs for pairs in server.metadata if ("key-bin", b"\x00\xff") in pairs)
    assert [value for key, value in seen if key == "key"] == ["value", "again"]


async def test_metadata_belongs_to_the_call(stub, server):
    """CH-1: what the caller does to the metadata after the call was made does not touch it."""
    metadata = grpc.aio.Metadata(("key", "before"))
    call = stub.Unary(Message(), metadata=metadata)
    metadata["key"] = "after"
    await call
    assert ("key", "before") in server.metadata[0]


async def test_metadata_that_is_none(stub):
    """CH-1: what is no sequence raises at once."""
    with pytest.raises(TypeError):
        stub.Unary(Message(), metadata=5)


async def test_metadata_with_a_bad_key(stub):
    """CH-1: what only the core refuses is raised to whoever awaits."""
    call = stub.Unary(Message(), metadata=[("Bad Key", "x")])
    with pytest.raises(grpc.aio.InternalError):
        await call


async def test_request_belongs_to_the_call(stub):
    """CH-1: a request that is changed while its call is on its way, or waits, is sent as it was."""
    request = Message(text="before", count=1)
    unary, stream = stub.Unary(request), stub.Down(request)
    await asyncio.sleep(0)
    request.text = "after"
    assert await answer(unary) == "before"
    assert await answer(stream) == ["before"]


async def test_serializer_that_raises(channel):
    """CH-1: grpc logs it and sends an empty message; so it goes here."""
    call = channel.unary_unary("/echo.v1.Echo/Unary", lambda _request: 1 / 0)
    assert await call("anything") == b""


@pytest.mark.parametrize("arity", ["stream_unary", "stream_stream"])
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("serializer", [lambda _request: 1 / 0, lambda _request: None], ids=["raises", "none"])
async def test_serializer_of_a_stream_that_fails(channel, arity, written, serializer):
    """CH-1: in a stream, too, an empty message takes the place of what cannot be serialized."""
    method = "/echo.v1.Echo/" + ("Up" if arity == "stream_unary" else "Both")
    made = getattr(channel, arity)(method, serializer, Message.FromString)
    call = made() if written else made(["anything"] * 2)
    if written:
        await call.write("anything")
        await call.write("anything")
        await call.done_writing()
    if arity == "stream_unary":
        assert (await call).count == 2
    else:
        assert [response.text for response in [response async for response in call]] == ["", ""]


@pytest.mark.parametrize("arity", ["stream_unary", "stream_stream"])
@pytest.mark.parametrize("serializer", [lambda _request: "text", None], ids=["text", "none at all"])
async def test_serializer_of_no_bytes(channel, arity, serializer):
    """CH-1: what is no bytes is a TypeError to who writes it, and cancels a call with an iterator of it."""
    made = getattr(channel, arity)("/echo.v1.Echo/Both", serializer, None)
    call = made()
    for _ in range(2):
        with pytest.raises(TypeError):
            await call.write("text")
    assert not call.done()
    call.cancel()
    assert await made(["text"]).code() is grpc.StatusCode.CANCELLED


async def test_deserializer_that_raises(channel):
    """CH-1: grpc logs it, and the response is None; for one arity here as for the other."""
    data = Message(text="x", count=1).SerializeToString()

    def raises(_data):
        raise ZeroDivisionError

    assert await channel.unary_unary("/echo.v1.Echo/Unary", None, raises)(data) is None
    assert [got async for got in channel.stream_stream("/echo.v1.Echo/Both", None, raises)([data])] == [None]


async def test_without_serializers(channel):
    """CH-1: bytes in, bytes out."""
    data = Message(text="x", count=1).SerializeToString()
    assert await channel.unary_unary("/echo.v1.Echo/Unary")(data) == data
    assert [got async for got in channel.unary_stream("/echo.v1.Echo/Down")(data)] == [data]
    assert await channel.stream_unary("/echo.v1.Echo/Up")([data]) == data
    assert [got async for got in channel.stream_stream("/echo.v1.Echo/Both")([data])] == [data]


async def test_metadata_received(stub):
    """CH-1: initial metadata, then trailing metadata, binary too."""
    call = stub.Unary(Message(text="metadata"))
    assert set(INITIAL) <= set(await call.initial_metadata())
    assert (await call).text == "metadata"
    assert set(TRAILING) <= set(await call.trailing_metadata())

    call = stub.Both()
    await call.write(Message(text="metadata"))
    assert set(INITIAL) <= set(await call.initial_metadata())
    await call.done_writing()
    assert (await call.read()).text == "metadata"
    assert await call.read() is grpc.aio.EOF
    assert set(TRAILING) <= set(await call.trailing_metadata())


@ARITIES
async def test_wait_for_ready(stub, method):
    """CH-1: True, False and None are all taken."""
    for wait_for_ready in (True, False, None):
        assert await answer(call_all(stub, wait_for_ready=wait_for_ready)[method]) == ANSWERS[method]


@pytest.mark.parametrize("of", ["channel", "call", "neither"])
async def test_compression(kind, phase, server, of):
    """CH-1: requests are compressed as the channel or the call says."""
    sent = 0

    async def count(visit):
        nonlocal sent
        reader, writer = await asyncio.open_connection(*visit.upstream)
        back = asyncio.create_task(pump(reader, visit.writer))
        try:
            while data := await visit.reader.read(65536):
                sent += len(data)
                writer.write(data)
        finally:
            back.cancel()
            writer.transport.abort()

    host, _, port = server.target.rpartition(":")
    of_channel, of_call = (GZIP if of == each else None for each in ("channel", "call"))
    async with (
        FlakyFront(count, upstream=(host, int(port))) as front,
        kind.insecure_channel(front.target, compression=of_channel) as channel,
    ):
        if phase == "ready":
            await channel.channel_ready()
        for call in call_all(EchoStub(channel), "a" * 50_000, compression=of_call).values():
            await answer(call)
    assert (sent > 6 * 50_000) == (of == "neither")
    assert (sent < 50_000) == (of != "neither")


async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)


async def test_never_awaited_but_sent(stub, server):
    """CH-1: a call is sent when it is made, whether anybody awaits it or not."""
    stub.Unary(Message(text="hang"))
    async with asyncio.timeout(20):
        await server.started.wait()


@pytest.mark.skipif(not hasattr(grpc.aio._channel.Channel, "_register_call"), reason="grpcio cancelled it before 1.8x")
async def test_dropped_stream_goes_on(stub, server):
    """CH-1: a response stream that nobody holds any more is not cancelled: grpc's channel keeps it until it ends."""
    call = stub.Down(Message(text="then hang", count=1))
    assert (await call.read()).text == "then hang"
    await server.started.wait()
    del call
    gc.collect()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.cancelled.wait(), 0.2)


async def test_iteration_keeps_the_call(stub):
    """CH-1: iterating over a call that has no other name does not lose it."""
    assert [response.text async for response in stub.Down(Message(text="a", count=3))] == ["a"] * 3


async def test_done_callback(stub):
    """CH-1: a done callback is called once, with the very call object, also when it is added after the end."""
    call, seen = stub.Unary(Message()), []
    call.add_done_callback(seen.append)
    await call
    await call.code()
    assert len(seen) == 1
    assert seen[0] is call
    assert seen[0].done()
    call.add_done_callback(seen.append)
    assert [one is call for one in seen] == [True, True]


async def test_done_callback_of_a_cancelled_call(stub):
    """CH-1: cancelling is an end too."""
    call, seen = stub.Unary(Message(text="hang")), []
    call.add_done_callback(seen.append)
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await asyncio.sleep(0)
    assert len(seen) == 1
    assert seen[0] is call
    assert seen[0].done()


async def test_context_variables(stub):
    """CH-1: what runs for a call, here its request iterator, runs in the context in which that call was made."""
    trace, seen = contextvars.ContextVar("trace"), []

    async def requests():
        seen.append(trace.get())
        yield Message()

    calls = []
    for name in ("first", "second"):
        trace.set(name)
        calls.append(stub.Up(requests()))
    trace.set("another")
    for call in calls:
        await call
    assert seen == ["first", "second"]


async def test_registered_or_not(channel):
    """CH-1: generated code says `_registered_method=True`, hand-written code says nothing."""
    for how in ({}, {"_registered_method": False}, {"_registered_method": True}):
        call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, Message.FromString, **how)
        assert (await call(Message(text="x"))).text == "x"
    assert await channel.unary_unary("/echo.v1.Echo/Unary", None, None, True)(b"") == b""


async def test_unknown_method(channel):
    """CH-1: UNIMPLEMENTED, as the server says."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/echo.v1.Echo/None")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_many_first_calls(stub):
    """CH-1: many calls made at once each get their own answer."""
    calls = [stub.Unary(Message(count=number)) for number in range(100)]
    assert [(await call).count for call in calls] == list(range(100))
