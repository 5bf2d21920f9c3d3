"""CH-1: features that only asyncio's calls have, for all four arities, on plain channels and on this library's.

`tests/both_apis/test_drop_in.py` covers what calls do on both APIs. Each test runs on a fresh channel, where this
library's calls have to wait, and on a READY one.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc

import grpc
import grpc.aio
import pytest

from tests.aio.conftest import RETRYING
from tests.aio.trying import finish
from tests.echo import Message

GZIP = grpc.Compression.Gzip


async def later(*texts):
    for text in texts:
        await asyncio.sleep(0)
        yield Message(text=text)


def make(stub, method):
    """Make a call that is answered as `ANSWERS` says."""
    return getattr(stub, method)(Message(text="a", count=2) if method in ("Unary", "Down") else later("a", "a"))


ANSWERS = {"Unary": "a", "Down": ["a", "a"], "Up": "aa", "Both": ["a", "a"]}
ARITIES = pytest.mark.parametrize("method", ANSWERS)


@ARITIES
async def test_questions(stub, method):
    """CH-1: a new call is neither done nor cancelled and has grpc's own type; a finished call returns its result."""
    call = make(stub, method)
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
    await finish(call)
    assert call.time_remaining() is None
    assert isinstance(await call.initial_metadata(), grpc.aio.Metadata)
    assert isinstance(await call.trailing_metadata(), grpc.aio.Metadata)
    assert isinstance(await call.debug_error_string(), str | None)
    assert await call.wait_for_connection() is None
    assert isinstance(repr(call), str)
    assert isinstance(str(call), str)


async def test_await_twice(stub):
    """CH-1: a single response can be awaited more than once, even by two tasks at the same time."""
    for call in (stub.Unary(Message(text="x")), stub.Up(later("x"))):
        assert await asyncio.gather(finish(call), finish(call)) == ["x"] * 2
        assert (await call).text == "x"


async def test_code_before_the_answer_is_awaited(stub):
    """CH-1: `code()` can be awaited before the response."""
    call = stub.Unary(Message(text="x"))
    assert await call.code() is grpc.StatusCode.OK
    assert (await call).text == "x"


@pytest.mark.parametrize("method", ["Up", "Both"])
@pytest.mark.parametrize(
    "requests", [lambda: later("a", "a"), lambda: iter([Message(text="a")] * 2), lambda: [Message(text="a")] * 2]
)
async def test_request_iterators(stub, method, requests):
    """CH-1: requests can come from an asynchronous iterator, an iterator or a list."""
    assert await finish(getattr(stub, method)(requests())) == ANSWERS[method]


async def test_arguments_by_position(stub):
    """CH-1: methods that take a stream of requests accept all arguments by position, as in grpcio."""
    how = (5, (("key", "value"),), None, True, GZIP)
    assert await finish(stub.Up(later("a", "a"), *how)) == "aa"
    assert await finish(stub.Both(later("a", "a"), *how)) == ["a", "a"]


async def test_arguments_by_keyword_only(stub):
    """CH-1: methods that take a single request accept further arguments only by keyword."""
    with pytest.raises(TypeError):
        stub.Unary(Message(), 5)
    with pytest.raises(TypeError):
        stub.Down(Message(), 5)
    with pytest.raises(TypeError):
        stub.Unary(Message(), no_such_argument=1)


async def test_read(stub):
    """CH-1: `read()` returns the responses one by one and then EOF each time."""
    call = stub.Down(Message(text="x", count=2))
    assert [(await call.read()).text, (await call.read()).text] == ["x", "x"]
    assert await call.read() is grpc.aio.EOF
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_write_and_read(stub):
    """CH-1: `write()` and `read()` can alternate; calling `done_writing()` twice is allowed."""
    call = stub.Both()
    for text in "abc":
        await call.write(Message(text=text))
        assert (await call.read()).text == text
    await call.done_writing()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_reader_and_writer_tasks(stub):
    """CH-1: one task can write while another, which started first, reads."""
    call = stub.Both()
    reading = asyncio.create_task(finish(call))
    await asyncio.sleep(0)
    for text in "abc":
        await call.write(Message(text=text))
    await call.done_writing()
    assert await reading == ["a", "b", "c"]


async def test_done_writing_first(stub):
    """CH-1: a call may end its requests without sending any."""
    call = stub.Up()
    await call.done_writing()
    assert (await call).count == 0


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_write_after_done_writing(stub, method):
    """CH-1: `write()` raises InvalidStateError after `done_writing()`, but the call still succeeds."""
    call = getattr(stub, method)()
    await call.write(Message(text="a"))
    await call.done_writing()
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message(text="b"))
    assert await finish(call) == ANSWERS[method][:1]
    assert await call.code() is grpc.StatusCode.OK
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message(text="b"))


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_write_beside_an_iterator(stub, method):
    """CH-1: `write()` and `done_writing()` raise UsageError on a call with a request iterator."""
    call = getattr(stub, method)(later("a", "a"))
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.write(Message())
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.done_writing()
    assert await finish(call) == ANSWERS[method]


@pytest.mark.parametrize("method", ["Down", "Both"])
async def test_read_beside_iteration(stub, kind, server, method):
    """CH-1: `read()` raises UsageError once iteration over the call has started, also in its later attempts."""
    server.servicer.fails = 2 if kind is RETRYING else 0
    call = make(stub, method)
    responses = aiter(call)
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.read()
    assert (await anext(responses)).text == "a"
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await call.read()
    assert aiter(call) is responses
    call.cancel()


@pytest.mark.parametrize("method", ["Down", "Both"])
async def test_iteration_beside_read(stub, kind, server, method):
    """CH-1: iterating over a call raises UsageError once `read()` has been called, also in its later attempts."""
    server.servicer.fails = 2 if kind is RETRYING else 0
    call = make(stub, method)
    reading = asyncio.create_task(call.read())
    await asyncio.sleep(0)
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        aiter(call)
    assert (await reading).text == "a"
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        aiter(call)
    call.cancel()


@pytest.mark.parametrize("arity", ["stream_unary", "stream_stream"])
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("serializer", [lambda _request: 1 / 0, lambda _request: None], ids=["raises", "none"])
async def test_serializer_of_a_stream_that_fails(channel, arity, written, serializer):
    """CH-1: if a stream's serializer raises or returns None, an empty message is sent, as in grpcio."""
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
    """CH-1: writing a message that is not bytes raises a TypeError; yielding one from an iterator cancels the call."""
    made = getattr(channel, arity)("/echo.v1.Echo/Both", serializer, None)
    call = made()
    for _ in range(2):
        with pytest.raises(TypeError):
            await call.write("text")
    assert not call.done()
    call.cancel()
    assert await made(["text"]).code() is grpc.StatusCode.CANCELLED


async def test_deserializer_that_raises(channel):
    """CH-1: if the deserializer raises, the response is None, for single responses and for streams."""
    data = Message(text="x", count=1).SerializeToString()

    def raises(_data):
        raise ZeroDivisionError

    assert await channel.unary_unary("/echo.v1.Echo/Unary", None, raises)(data) is None
    assert [got async for got in channel.stream_stream("/echo.v1.Echo/Both", None, raises)([data])] == [None]


async def test_without_serializers(channel):
    """CH-1: without serializers, requests and responses are bytes."""
    data = Message(text="x", count=1).SerializeToString()
    assert await channel.unary_unary("/echo.v1.Echo/Unary")(data) == data
    assert [got async for got in channel.unary_stream("/echo.v1.Echo/Down")(data)] == [data]
    assert await channel.stream_unary("/echo.v1.Echo/Up")([data]) == data
    assert [got async for got in channel.stream_stream("/echo.v1.Echo/Both")([data])] == [data]


@pytest.mark.skipif(not hasattr(grpc.aio._channel.Channel, "_register_call"), reason="grpcio cancelled it before 1.8x")
async def test_dropped_stream_goes_on(stub, server):
    """CH-1: a response stream without references is not cancelled, because grpc's channel holds it until it ends."""
    call = stub.Down(Message(text="then hang", count=1))
    assert (await call.read()).text == "then hang"
    assert await asyncio.to_thread(server.servicer.hanging.wait, 20)
    del call
    gc.collect()
    assert not await asyncio.to_thread(server.servicer.cancelled.wait, 0.2)


async def test_context_variables(stub):
    """CH-1: a call's request iterator runs in the context in which the call was made."""
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
    """CH-1: `_registered_method` may be True, as in generated code, False, or absent."""
    for how in ({}, {"_registered_method": False}, {"_registered_method": True}):
        call = channel.unary_unary("/echo.v1.Echo/Unary", Message.SerializeToString, Message.FromString, **how)
        assert (await call(Message(text="x"))).text == "x"
    assert await channel.unary_unary("/echo.v1.Echo/Unary", None, None, True)(b"") == b""
