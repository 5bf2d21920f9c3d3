"""CH-1: how calls end, the same on a plain channel and on ours: deadlines, cancellation, errors, no connection.

Deadlines here are real time; a slow machine makes these tests slower, not wrong.
"""

from __future__ import annotations

import asyncio
import pickle

import grpc
import grpc.aio
import pytest

from grpc_backoff.testing.front import FlakyFront, silent
from tests.aio.service import TRAILING
from tests.echo import EchoStub, Message

CODE = grpc.StatusCode
METHODS = pytest.mark.parametrize("method", ["Unary", "Down", "Up", "Both"])
RESPONSE_STREAMS = {"Down", "Both"}


def make(stub, method, text="hang", **how):
    """Make a call whose request says `text`."""
    request = Message(text=text, count=1)
    return getattr(stub, method)(request if method in {"Unary", "Down"} else [request], **how)


async def finish(call, method):
    """Wait for the call's end as its caller does."""
    if method in RESPONSE_STREAMS:
        return [response async for response in call]
    return await call


async def outcome(call, method):
    """Return the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(30):
            await finish(call, method)
    return caught.value


@pytest.fixture(params=["refusing", "silent"])
async def nowhere(request):
    """A target that never becomes READY: it refuses, or accepts and stays silent."""
    async with FlakyFront(silent) as front:
        if request.param == "refusing":
            await front.refuse()
        yield front.target


@METHODS
async def test_time_remaining(stub, method):
    """CH-1: a call knows how many seconds it has left; a slow machine may take some of them before it is asked."""
    call = make(stub, method, timeout=30)
    assert 10 < call.time_remaining() <= 30.001
    assert call.cancel()


@METHODS
async def test_time_remaining_without_a_connection(kind, nowhere, method):
    """CH-3: a call that waits knows that as well."""
    async with kind.insecure_channel(nowhere) as channel:
        call = make(EchoStub(channel), method, timeout=30, wait_for_ready=True)
        assert 10 < call.time_remaining() <= 30.001
        assert call.cancel()


@METHODS
async def test_deadline_while_it_runs(stub, method):
    """CH-1: DEADLINE_EXCEEDED when the server takes too long, and the call says the same afterwards."""
    call = make(stub, method, timeout=0.3)
    error = await outcome(call, method)
    assert error.code() is CODE.DEADLINE_EXCEEDED
    assert "Deadline Exceeded" in error.details()
    assert await call.code() is CODE.DEADLINE_EXCEEDED
    assert call.done()
    assert not call.cancelled()
    assert not call.cancel()
    assert call.time_remaining() == 0
    assert isinstance(repr(call), str)


@METHODS
async def test_deadline_without_a_connection(kind, nowhere, method):
    """CH-3: a call that waits ends at its deadline."""
    async with kind.insecure_channel(nowhere) as channel:
        call = make(EchoStub(channel), method, timeout=0.2, wait_for_ready=True)
        error = await outcome(call, method)
        assert error.code() is CODE.DEADLINE_EXCEEDED
        assert "Deadline Exceeded" in error.details()
        assert await call.code() is CODE.DEADLINE_EXCEEDED
        assert (await call.details()) == error.details()
        assert isinstance(await call.initial_metadata(), grpc.aio.Metadata)
        assert isinstance(await call.trailing_metadata(), grpc.aio.Metadata)
        with pytest.raises(grpc.aio.AioRpcError):
            await call.wait_for_connection()


async def test_timeout_that_is_no_number(stub):
    """CH-1: TypeError at once."""
    with pytest.raises(TypeError):
        stub.Unary(Message(), timeout="1")


@METHODS
async def test_cancel_at_once(stub, method):
    """CH-1: a call cancelled as soon as it is made ends with CancelledError and CANCELLED."""
    call = make(stub, method)
    assert call.cancel()
    assert not call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finish(call, method)
    assert call.cancelled()
    assert call.done()
    assert await call.code() is CODE.CANCELLED
    assert await call.details() == "Locally cancelled by application!"


@METHODS
async def test_cancel_the_task(stub, server, method):
    """CH-1: cancelling the task that awaits the call cancels the call."""
    call = make(stub, method)
    task = asyncio.create_task(finish(call, method))
    await server.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call.code() is CODE.CANCELLED
    assert call.cancelled()
    await server.cancelled.wait()


@METHODS
@pytest.mark.parametrize("how", ["call", "task"])
async def test_cancel_without_a_connection(kind, nowhere, method, how):
    """CH-3: a waiting call can be cancelled in both ways."""
    async with kind.insecure_channel(nowhere) as channel:
        call, seen = make(EchoStub(channel), method, wait_for_ready=True), []
        call.add_done_callback(seen.append)
        task = asyncio.create_task(finish(call, method))
        await asyncio.sleep(0.05)
        assert call.cancel() if how == "call" else task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await call.code() is CODE.CANCELLED
        assert await call.details() == "Locally cancelled by application!"
        assert call.cancelled()
        assert call.done()
        assert not call.cancel()
        assert [one is call for one in seen] == [True]


async def test_cancelled_question(stub):
    """CH-1: a task that only asks for the code can be cancelled, and the call goes on."""
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
    """CH-1: a call is one: whoever is cancelled while awaiting it cancels it for all."""
    call = stub.Unary(Message(text="hang"))
    first, second = (asyncio.create_task(finish(call, "Unary")) for _ in range(2))
    await server.started.wait()
    first.cancel()
    await asyncio.wait([first, second], timeout=20)
    assert first.cancelled()
    assert second.cancelled()


async def test_wait_for(stub, server):
    """CH-1: asyncio.wait_for cancels the call."""
    call = stub.Unary(Message(text="hang"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0.3)
    assert call.cancelled()


@METHODS
async def test_abort(stub, method):
    """CH-1: the server's status, its text and its trailing metadata reach the caller."""
    call = make(stub, method, "abort")
    error = await outcome(call, method)
    assert type(error) is grpc.aio.AioRpcError
    assert error.code() is await call.code() is CODE.FAILED_PRECONDITION
    assert error.details() == await call.details() == "not now"
    assert set(TRAILING) <= set(error.trailing_metadata())
    assert set(TRAILING) <= set(await call.trailing_metadata())
    assert error.debug_error_string() == await call.debug_error_string()


async def test_error_again(stub):
    """CH-1: a failed unary call raises each time that it is awaited; a failed stream raises from `read`."""
    call = stub.Unary(Message(text="abort"))
    for _ in range(2):
        assert (await outcome(call, "Unary")).code() is CODE.FAILED_PRECONDITION
    call = stub.Down(Message(text="abort"))
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


async def test_write_to_a_failed_call(stub):
    """CH-1: InvalidStateError."""
    call = stub.Both()
    await call.write(Message(text="abort"))
    assert await call.code() is CODE.FAILED_PRECONDITION
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message())
    await call.done_writing()  # nothing happens


async def test_write_without_a_connection(kind):
    """CH-3: a pending write, and one after the call's end, say what is wrong."""
    async with FlakyFront() as front:
        await front.refuse()
        async with kind.insecure_channel(front.target) as channel:
            call = EchoStub(channel).Both()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.write(Message())
            assert caught.value.code() is CODE.UNAVAILABLE
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(Message())
            await call.done_writing()


async def test_read_without_a_connection(kind):
    """CH-3: `read` raises, each time."""
    async with FlakyFront() as front:
        await front.refuse()
        async with kind.insecure_channel(front.target) as channel:
            call = EchoStub(channel).Down(Message())
            for _ in range(2):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call.read()
                assert caught.value.code() is CODE.UNAVAILABLE


ERRORS = [
    RuntimeError("no more"),
    asyncio.CancelledError(),
    grpc.aio.AioRpcError(CODE.ABORTED, *[grpc.aio.Metadata()] * 2),
]


@pytest.mark.parametrize("method", ["Up", "Both"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_request_iterator_that_raises(stub, method, error, asynchronous):
    """CH-1: the call is cancelled, also by an error that looks like one of its own."""

    async def requests():
        yield Message()
        raise error

    def requests_at_once():
        yield Message()
        raise error

    call = getattr(stub, method)(requests() if asynchronous else requests_at_once())
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await finish(call, method)
    assert await call.code() is CODE.CANCELLED


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_request_iterator_that_is_none(stub, method):
    """CH-1: what cannot be iterated over cancels the call, too."""
    assert await getattr(stub, method)(5).code() is CODE.CANCELLED


@METHODS
@pytest.mark.parametrize("text", ["abort", "hang"])
async def test_questions_asked_before_the_end(stub, method, text):
    """CH-1: whoever asks a call about its end before that is answered with it; a cancelled one is no exception."""
    call = make(stub, method, text)
    asking = {
        question: asyncio.create_task(getattr(call, question)())
        for question in ("code", "details", "trailing_metadata", "initial_metadata", "debug_error_string")
    }
    await asyncio.sleep(0.05)
    if text == "hang":
        call.cancel()
    async with asyncio.timeout(30):
        if method in RESPONSE_STREAMS and text == "abort":
            await outcome(call, method)
        answers = dict(zip(asking, await asyncio.gather(*asking.values()), strict=True))
    assert answers["code"] is (CODE.CANCELLED if text == "hang" else CODE.FAILED_PRECONDITION)
    assert answers["details"] == ("Locally cancelled by application!" if text == "hang" else "not now")
    assert isinstance(answers["initial_metadata"], grpc.aio.Metadata)
    assert isinstance(answers["trailing_metadata"], grpc.aio.Metadata)
    assert text == "hang" or set(TRAILING) <= set(answers["trailing_metadata"])


@METHODS
async def test_wait_for_connection_of_a_failed_call(stub, method):
    """CH-1: it raises the call's error."""
    call = make(stub, method, "abort")
    await outcome(call, method)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.wait_for_connection()
    assert caught.value.code() is CODE.FAILED_PRECONDITION


@METHODS
async def test_wait_for_connection_of_a_cancelled_call(stub, server, method):
    """CH-1: it raises CancelledError."""
    call = make(stub, method)
    await server.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.wait_for_connection()


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_writer_of_a_cancelled_call(stub, method):
    """CH-1: writing to it is an InvalidStateError, half-closing it is nothing."""
    call = getattr(stub, method)()
    await call.write(Message())
    call.cancel()
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message())
    await call.done_writing()


@pytest.mark.parametrize("method", ["Down", "Both"])
async def test_reader_of_a_cancelled_call(stub, server, method):
    """CH-1: reading from it is a CancelledError, each time."""
    call = make(stub, method)
    await server.started.wait()
    call.cancel()
    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            await call.read()


@METHODS
async def test_cancelled_by_the_server(stub, method):
    """CH-1: a server may say CANCELLED; that is an error to the caller, and no cancellation of a task."""
    call = make(stub, method, "cancelled")
    error = await outcome(call, method)
    assert type(error) is grpc.aio.AioRpcError
    assert error.code() is await call.code() is CODE.CANCELLED
    assert error.details() == "the server's own"
    assert call.cancelled()
    assert not call.cancel()


@pytest.mark.parametrize("method", ["Up", "Both"])
async def test_answer_in_front_of_the_requests(stub, method):
    """CH-1: a server may answer as soon as a call begins."""
    call = getattr(stub, method)()
    await call.write(Message(text="enough"))
    assert [response.text for response in await early(call, method)] == ["enough"]
    assert await call.code() is CODE.OK
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(Message())
    await call.done_writing()


async def early(call, method):
    return [await call] if method == "Up" else await finish(call, method)


async def test_errors_can_be_pickled(stub, kind):
    """CH-1: the errors of calls survive pickling, those without a connection too."""
    refused = FlakyFront()
    async with refused:
        await refused.refuse()
        async with kind.insecure_channel(refused.target) as channel:
            errors = [
                await outcome(stub.Unary(Message(text="abort")), "Unary"),
                await outcome(EchoStub(channel).Unary(Message()), "Unary"),
            ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert repr(again) == repr(error)
        assert again.trailing_metadata() == error.trailing_metadata()
