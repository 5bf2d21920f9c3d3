"""RT-8: calls that the server ends while their stream of requests is still being written.

grpcio gives such a call a status of its own. These tests check that the server's status is reported instead, and that
the call never hangs, whether unread responses precede the status or the server never opens the flow-control window.
"""

from __future__ import annotations

import asyncio
import threading

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from grpc_backoff.aio.stream_attempt import StreamAttempt
from grpc_backoff.testing.front import FlakyFront
from tests.aio.trying import BUFFER, CODE, REQUEST_STREAMS, STYLES, failing, finish, make, trying, until
from tests.both_apis.tries import counts, fails
from tests.echo import EchoStub, Message, serving
from tests.sync.service import INITIAL, TRAILING

LARGE = [f"{number}" + "x" * 100_000 for number in range(20)]
HUGE = [f"{number}" + "x" * 1_000_000 for number in range(40)]  # more than HTTP/2's windows and socket buffers hold
WIDE = [(BUFFER, 100_000_000)]
OTHER_STYLES = pytest.mark.parametrize("style", ["written", "async iterator"])
"""The styles that `tests/both_apis/test_replay.py` does not test."""


def answers_early(requests, _context):
    yield next(requests)


def answers_early_and_fails(requests, context):
    yield next(requests)
    context.abort(CODE.UNAVAILABLE, "not now")


async def write_all(call, texts=LARGE):
    for text in texts:
        await call.write(Message(text=text))
    await call.done_writing()


def counted(method, texts):
    """Return the response of `counts` to these texts."""
    return str(len(texts)) if method == "Up" else [str(len(texts))]


@REQUEST_STREAMS
@OTHER_STYLES
@pytest.mark.parametrize("after", [0, 1])
async def test_the_status_is_the_servers(method, style, after):
    """RT-2: an error that is not retried reaches the caller as the server sent it, even after a failed write.

    A done callback is called once, with the ended call (CH-1).
    """
    async with trying(fails(after, code=CODE.NOT_FOUND, trailing=TRAILING)) as service:
        call, seen = make(service.stub, method, LARGE, style), []
        call.add_done_callback(lambda ended: seen.append((ended is call, ended.done())))
        error = await failing(call)
        assert type(error) is grpc.aio.AioRpcError
        assert error.code() is await call.code() is CODE.NOT_FOUND
        assert error.details() == await call.details() == "not now"
        assert set(TRAILING) <= set(error.trailing_metadata())
        assert set(TRAILING) <= set(await call.trailing_metadata())
        assert call.done()
        assert not call.cancelled()
        assert len(service.got) == 1
        await until(lambda: seen)
    assert seen == [(True, True)]


@REQUEST_STREAMS
@pytest.mark.parametrize("read", [False, True])
async def test_an_early_answer_to_a_writer(method, read):
    """CH-7: if the server responds early, further writes raise InvalidStateError, and the response can be read."""
    async with trying(answers_early, options=WIDE) as service:
        call = getattr(service.stub, method)()
        for _ in range(2):
            with pytest.raises(asyncio.InvalidStateError):
                await write_all(call, HUGE)
        await call.done_writing()
        assert await finish(call, read=read) == (HUGE[0] if method == "Up" else HUGE[:1])
        assert await call.code() is CODE.OK
        assert len(service.got) == 1


@pytest.mark.parametrize("read", [False, True])
async def test_an_early_answer_and_a_failure(read):
    """RT-8: an unread response that arrived before the failure reaches the caller, followed by the error."""
    async with trying(answers_early_and_fails, options=WIDE) as service:
        call = service.stub.Both()
        with pytest.raises(asyncio.InvalidStateError):
            await write_all(call, HUGE)
        responses = None if read else aiter(call)
        assert (await (call.read() if read else anext(responses))).text == HUGE[0]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call.read() if read else anext(responses))
        assert caught.value.code() is await call.code() is CODE.UNAVAILABLE
        assert len(service.got) == 1


async def test_an_early_answer_that_nobody_reads():
    """CB-10: a call with an unread early response can be cancelled."""
    async with trying(answers_early, options=WIDE) as service:
        call = service.stub.Both()
        with pytest.raises(asyncio.InvalidStateError):
            await write_all(call, HUGE)
        assert not call.done()
        assert call.cancel()
        assert call.cancelled()
        assert await call.code() is CODE.CANCELLED
        with pytest.raises(asyncio.CancelledError):
            await call.read()


@pytest.mark.parametrize("texts", [["a"] * 20, HUGE], ids=["small", "large"])
async def test_reader_beside_a_writer(texts):
    """RT-8: while one task reads and another writes, both continue on the next attempt."""
    async with trying(fails(1), fails(2), options=WIDE) as service:
        call = service.stub.Both()
        reading = asyncio.create_task(finish(call))
        await asyncio.sleep(0)
        await write_all(call, texts)
        assert await reading == texts
        assert service.got[-1] == texts


@REQUEST_STREAMS
@STYLES
@pytest.mark.parametrize(("earlier", "code"), [(0, CODE.UNAVAILABLE), (0, CODE.NOT_FOUND), (1, CODE.UNAVAILABLE)])
async def test_blocked_by_flow_control(method, style, earlier, code):
    """RT-8: a writer, or a replay, that is blocked because the server does not read goes on when the attempt ends."""
    enough = threading.Event()
    behaviours = [*[fails(None)] * earlier, fails(when=enough, code=code), counts]
    async with trying(*behaviours, options=WIDE) as service:
        call = make(service.stub, method, HUGE, style)
        finishing = asyncio.create_task(finish(call))
        await until(lambda: len(service.got) == earlier + 1)
        await asyncio.wait([finishing], timeout=0.2)
        assert (call._replay._buffer.end < len(HUGE)) == (not earlier)
        enough.set()
        if code is CODE.UNAVAILABLE:
            assert await finishing == counted(method, HUGE)
            assert service.got == [HUGE] * earlier + [[], HUGE]
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="not now"):
                await finishing
            assert len(service.got) == 1


@REQUEST_STREAMS
@OTHER_STYLES
async def test_broken_connection(method, style):
    """RT-8: if the connection breaks while requests are being written, the next attempt gets all of them."""
    async with trying(fails(1, when=threading.Event()), *[counts] * 20, options=WIDE) as service:
        async with FlakyFront(upstream=("127.0.0.1", service.port)) as front:
            options = [*WIDE, ("grpc.initial_reconnect_backoff_ms", 50)]
            async with aio.insecure_channel(front.target, options=options, retry="retry: 20, delay: 50ms") as channel:
                finishing = asyncio.create_task(finish(make(EchoStub(channel), method, LARGE, style)))
                await until(lambda: service.got and service.got[0])
                await front.break_all()
                assert await finishing == counted(method, LARGE)
        assert service.got[-1] == LARGE


@REQUEST_STREAMS
async def test_questions_beside_a_failing_writer(method):
    """RT-8: the status that grpcio gives after a failed write is not reported and does not commit the call."""

    def behind_headers(requests, context):
        context.send_initial_metadata(INITIAL)
        yield from counts(requests, context)

    async with trying(fails(), fails(), behind_headers, options=WIDE) as service:
        call = make(service.stub, method, LARGE, "written")
        asking = [asyncio.create_task(question()) for question in (call.initial_metadata, call.code, call.details)]
        assert await finish(call) == counted(method, LARGE)
        metadata, code, details = await asyncio.gather(*asking)
        assert set(metadata) in (set(), set(INITIAL))  # empty if a failed attempt's were seen first
        assert (code, details) == (CODE.OK, "")


@REQUEST_STREAMS
async def test_half_close_of_a_call_that_fails(method):
    """RT-8: `done_writing()` does not raise on an attempt that fails; the attempt's status says why it failed."""
    async with FlakyFront() as front:
        await front.refuse()
        async with grpc.aio.insecure_channel(front.target) as channel:
            attempt = StreamAttempt(getattr(EchoStub(channel), method)())
            await attempt.done_writing()
            assert await attempt.code() is CODE.UNAVAILABLE
            with pytest.raises(grpc.aio.AioRpcError, match="failed to connect"):
                await attempt.wait_for_connection()
            with pytest.raises(asyncio.InvalidStateError):
                await attempt.write(b"")


async def test_serving_is_not_disturbed():
    """CH-1: cancelling a call before the end of its requests does not block the next call on the connection."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}", retry="retry: 1, delay: 10ms") as channel:
        stub = EchoStub(channel)
        call = stub.Both()
        await call.write(Message(text="a"))
        call.cancel()
        async with asyncio.timeout(30):
            assert (await stub.Unary(Message(text="b"))).text == "b"
