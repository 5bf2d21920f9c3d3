"""CH-1: endings that only asyncio's calls have, on plain channels and on this library's.

`tests/both_apis` covers how calls end on both APIs. Deadlines are in real time, but a slow machine only makes these
tests slower.
"""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest

from grpc_backoff.testing.front import FlakyFront
from tests.aio.trying import CODE, METHODS, REQUEST_STREAMS, failing, finish, is_cancelled, make
from tests.echo import EchoStub, Message
from tests.sync.service import TRAILING

HANG = ["hang"]


@pytest.fixture
async def nowhere():
    """A target that refuses connections."""
    async with FlakyFront() as front:
        await front.refuse()
        yield front.target


@METHODS
async def test_deadline_without_a_connection(kind, nowhere, method):
    """CH-3: if a call's deadline expires without a connection, all of the call's methods report DEADLINE_EXCEEDED."""
    async with kind.insecure_channel(nowhere) as channel:
        call = make(EchoStub(channel), method, HANG, timeout=0.2, wait_for_ready=True)
        error = await failing(call)
        assert (error.code(), await call.details()) == (CODE.DEADLINE_EXCEEDED, error.details())
        assert isinstance(await call.initial_metadata(), grpc.aio.Metadata)
        assert isinstance(await call.trailing_metadata(), grpc.aio.Metadata)
        with pytest.raises(grpc.aio.AioRpcError):
            await call.wait_for_connection()


@METHODS
async def test_cancel_at_once(stub, method):
    """CH-1: a call that is cancelled right after it was made raises CancelledError, and its code is CANCELLED."""
    call = make(stub, method, HANG)
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finish(call)
    await is_cancelled(call)


@METHODS
async def test_cancel_the_task(stub, server, method):
    """CH-1: cancelling the task that awaits the call cancels the call."""
    call = make(stub, method, HANG)
    task = asyncio.create_task(finish(call))
    assert await asyncio.to_thread(server.servicer.hanging.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await is_cancelled(call)
    assert await asyncio.to_thread(server.servicer.cancelled.wait, 20)


@METHODS
async def test_cancel_without_a_connection(kind, nowhere, method):
    """CH-3: cancelling the task that awaits a pending call cancels the call."""
    async with kind.insecure_channel(nowhere) as channel:
        call, seen = make(EchoStub(channel), method, HANG, wait_for_ready=True), []
        call.add_done_callback(seen.append)
        task = asyncio.create_task(finish(call))
        await asyncio.sleep(0.05)
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await is_cancelled(call)
        assert [one is call for one in seen] == [True]


async def test_cancelled_question(stub):
    """CH-1: cancelling a task that only awaits `code()` does not cancel the call."""
    call = stub.Both()
    task = asyncio.create_task(call.code())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not call.done()
    await call.write(Message(text="a"))
    assert (await call.read()).text == "a"
    call.cancel()


async def test_cancel_one_of_two_that_await(stub, server):
    """CH-1: if two tasks await a call, cancelling one of them cancels the call and the other task."""
    call = stub.Unary(Message(text="hang"))
    first, second = (asyncio.create_task(finish(call)) for _ in range(2))
    assert await asyncio.to_thread(server.servicer.hanging.wait, 20)
    first.cancel()
    await asyncio.wait([first, second], timeout=20)
    assert first.cancelled()
    assert second.cancelled()


@METHODS
@pytest.mark.parametrize("text", ["abort", "hang"])
async def test_questions_asked_before_the_end(stub, method, text):
    """CH-1: tasks that already await the status or metadata get it when the call ends, even if it is cancelled."""
    call = make(stub, method, [text])
    asking = {
        question: asyncio.create_task(getattr(call, question)())
        for question in ("code", "details", "trailing_metadata", "initial_metadata", "debug_error_string")
    }
    await asyncio.sleep(0.05)
    if text == "hang":
        call.cancel()
    async with asyncio.timeout(30):
        if hasattr(call, "read") and text == "abort":
            await failing(call)
        answers = dict(zip(asking, await asyncio.gather(*asking.values()), strict=True))
    assert answers["code"] is (CODE.CANCELLED if text == "hang" else CODE.FAILED_PRECONDITION)
    assert answers["details"] == ("Locally cancelled by application!" if text == "hang" else "not now")
    assert isinstance(answers["initial_metadata"], grpc.aio.Metadata)
    assert isinstance(answers["trailing_metadata"], grpc.aio.Metadata)
    assert text == "hang" or set(TRAILING) <= set(answers["trailing_metadata"])


@REQUEST_STREAMS
async def test_cancelled_writer_without_a_connection(kind, nowhere, method):
    """CH-1: a write that is cancelled while the call waits leaves the call as it was; the request is not sent."""
    async with kind.insecure_channel(nowhere) as channel:
        call = getattr(EchoStub(channel), method)(wait_for_ready=True)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call.write(Message(text="a")), 0.02)
        assert not call.done()
        call.cancel()


@METHODS
async def test_callback_that_cannot_be_called(stub, method):
    """CH-1: a done callback that cannot be called is refused at once."""
    call = make(stub, method, HANG)
    with pytest.raises(TypeError, match="the first argument must be callable"):
        call.add_done_callback(None)
    call.cancel()


@REQUEST_STREAMS
@pytest.mark.parametrize("text", ["abort", "hang"])
async def test_writer_of_a_call_that_has_ended(stub, method, text):
    """CH-1: `write()` on a failed or cancelled call raises InvalidStateError, and `done_writing()` does nothing."""
    call = getattr(stub, method)()
    await call.write(Message(text=text))
    if text == "hang":
        call.cancel()
    assert await call.code() is (CODE.CANCELLED if text == "hang" else CODE.FAILED_PRECONDITION)
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message())
    await call.done_writing()


@METHODS
async def test_a_cancelled_call_again(stub, server, method):
    """CH-1: `wait_for_connection()` and `read()` on a cancelled call raise CancelledError each time."""
    call = make(stub, method, HANG)
    assert await asyncio.to_thread(server.servicer.hanging.wait, 20)
    call.cancel()
    for _ in range(2):
        for ask in (call.wait_for_connection, *([call.read] if hasattr(call, "read") else [])):
            with pytest.raises(asyncio.CancelledError):
                await ask()


@METHODS
async def test_a_failed_call_again(stub, method):
    """CH-1: a failed call raises its error each time it is awaited or read, and from `wait_for_connection()`."""
    call = make(stub, method, ["abort"])
    for ask in [call.read] * 2 if hasattr(call, "read") else [lambda: finish(call)] * 2:
        with pytest.raises(grpc.aio.AioRpcError):
            await ask()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.wait_for_connection()
    assert caught.value.code() is CODE.FAILED_PRECONDITION


async def test_streams_without_a_connection(kind, nowhere):
    """CH-3: without a connection, `read()` and a pending write raise the call's error, and later writes are refused."""
    async with kind.insecure_channel(nowhere) as channel:
        stub = EchoStub(channel)
        written, read = stub.Both(), stub.Down(Message())
        for ask in (lambda: written.write(Message()), read.read, read.read):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask()
            assert caught.value.code() is CODE.UNAVAILABLE
        with pytest.raises(asyncio.InvalidStateError):
            await written.write(Message())
        await written.done_writing()


@REQUEST_STREAMS
async def test_first_write_of_a_task(kind, nowhere, method):
    """CH-1: without a connection, the first write raises the call's error, also if another task makes it."""
    async with kind.insecure_channel(nowhere) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await EchoStub(channel).Unary(Message())  # from now on, calls fail at once
        call = getattr(EchoStub(channel), method)()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.create_task(call.write(Message()))
        assert caught.value.code() is CODE.UNAVAILABLE
        await call.code()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(Message())
