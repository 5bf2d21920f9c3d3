"""RT-8: retried calls of all four arities against a real server that fails at every point of them.

The pauses between attempts are real time, of some milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref

import grpc
import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_backoff import aio
from tests.aio.service import INITIAL, fails
from tests.aio.trying import (
    ANSWERS,
    BUFFER,
    CALLS,
    CODE,
    METHODS,
    REQUEST_STREAMS,
    RESPONSE_STREAMS,
    STYLES,
    failing,
    finish,
    make,
    trying,
)
from tests.echo import Message


@METHODS
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("headers", [(), INITIAL], ids=["in front of headers", "behind headers"])
async def test_failure_in_front_of_the_answer(method, tls, headers):
    """RT-8: what fails before a response has come is tried again, also where nobody had looked at its headers."""
    async with trying(fails(headers=headers), fails(1, headers=headers), tls=tls) as service:
        call = make(service.stub, method)
        assert await finish(call) == ANSWERS[method]
        assert await call.code() is CODE.OK
        assert service.previous == [None, "1", "2"]
        assert "".join(service.got[-1]) == "ab"


@METHODS
async def test_exhausted(method):
    """RT-6: when no attempts are left, every arity ends with the last error and the account."""
    async with trying(*[fails()] * 4) as service:
        call = make(service.stub, method)
        error = await failing(call)
        assert isinstance(error, aio.RetriesExhaustedError)
        assert error.attempts == 4
        assert "not now; gave up: no attempts are left (4 attempts in " in error.details()
        assert await call.code() is error.code() is CODE.UNAVAILABLE
        assert len(service.got) == 4


@pytest.mark.parametrize("method", ["Down", "Up", "Both"])
async def test_headers_that_were_seen(method):
    """RT-8: who has awaited an attempt's initial metadata is bound to it. grpc shows a unary call's at its end only."""
    shown = asyncio.Event()
    async with trying(fails(headers=INITIAL, when=shown)) as service:
        call = make(service.stub, method)
        assert set(INITIAL) <= set(await call.initial_metadata())
        shown.set()
        error = await failing(call)
        assert type(error) is grpc.aio.AioRpcError
        assert error.code() is CODE.UNAVAILABLE
        assert len(service.got) == 1


@RESPONSE_STREAMS
@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
async def test_failure_behind_the_first_answer(method, read, tls):
    """RT-8: a response that has reached the caller ends the retries; it is there once, and then the error."""
    async with trying(fails(), fails(1, answers=1), tls=tls) as service:
        call = make(service.stub, method)
        responses = None if read else aiter(call)
        assert (await (call.read() if read else anext(responses))).text == "answer 0"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call.read() if read else anext(responses))
        assert type(caught.value) is grpc.aio.AioRpcError
        assert caught.value.code() is await call.code() is CODE.UNAVAILABLE
        assert len(service.got) == 2
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


@REQUEST_STREAMS
@STYLES
@pytest.mark.parametrize("size", [1, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("after", [0, 1, 5, 9])
async def test_failure_while_requests_are_written(method, style, size, after):
    """RT-8: an attempt that ends under the writer's hands is followed by one that gets every request from the first."""
    texts = [f"{number} " + "x" * size for number in range(10)]
    async with trying(fails(after), fails(after + 1)) as service:
        answer = await finish(make(service.stub, method, texts, style))
        assert answer == ("".join(texts) if method == "Up" else texts)
        assert service.got[-1] == texts
        assert [got == texts[: len(got)] for got in service.got] == [True] * 3


@REQUEST_STREAMS
@STYLES
async def test_failure_after_half_close(method, style):
    """RT-8: an attempt that has got everything is followed by one that gets everything, and the end of it."""
    async with trying(fails(None), fails(None)) as service:
        assert await finish(make(service.stub, method, style=style)) == ANSWERS[method]
        assert service.got == [["a", "b"]] * 3


@REQUEST_STREAMS
async def test_no_requests_at_all(method):
    """RT-8: a stream that is closed empty is so in each attempt."""
    async with trying(fails(None)) as service:
        assert await finish(make(service.stub, method, (), "written")) == ("" if method == "Up" else [])
        assert service.got == [[], []]


@pytest.mark.parametrize("read", [False, True])
async def test_ping_pong(read):
    """RT-8: a dialogue is tried again until its first answer."""
    async with trying(fails(1), fails(1)) as service:
        call = service.stub.Both()
        responses = None if read else aiter(call)
        for text in "abc":
            await call.write(Message(text=text))
            assert (await (call.read() if read else anext(responses))).text == text
        await call.done_writing()
        assert await call.code() is CODE.OK
        assert service.got == [["a"], ["a"], ["a", "b", "c"]]


async def answers_once_then_fails(requests, context):
    yield await anext(requests)
    await anext(requests)
    await context.abort(CODE.UNAVAILABLE, "not now")


async def test_ping_pong_that_fails_behind_an_answer():
    """RT-8: a dialogue that fails after its first answer fails."""
    async with trying(answers_once_then_fails) as service:
        call = service.stub.Both()
        await call.write(Message(text="a"))
        assert (await call.read()).text == "a"
        await call.write(Message(text="b"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is CODE.UNAVAILABLE
        assert service.got == [["a", "b"]]
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(Message(text="c"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.sampled_from([0, 1, 10, 5_000, 70_000]), max_size=8),
    failures=st.lists(st.integers(0, 8) | st.none(), max_size=3),
    method=st.sampled_from(["Up", "Both"]),
    style=st.sampled_from(["written", "async iterator", "iterator"]),
    read=st.booleans(),
)
async def test_replay(sizes, failures, method, style, read):
    """RT-8: whatever is sent, and wherever attempts fail: the one that succeeds gets every request, in order, once."""
    texts = [f"{number}" + "x" * size for number, size in enumerate(sizes)]
    async with trying(*map(fails, failures), options=[(BUFFER, 1 << 20)]) as service:
        answer = await finish(make(service.stub, method, texts, style), read=read)
        assert answer == ("".join(texts) if method == "Up" else texts)
        assert service.got[-1] == texts
        assert len(service.got) == len(failures) + 1
        for got, after in zip(service.got, failures, strict=False):
            assert got == texts[:after]


def request_of(size):
    """Return a serialized request of so many bytes."""
    data = next(
        data for text in range(size - 10, size) if len(data := Message(text="x" * text).SerializeToString()) == size
    )
    assert len(data) == size
    return data


@REQUEST_STREAMS
@pytest.mark.parametrize("options", [[], [(BUFFER, 1000)]], ids=["default", "small"])
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("pieces", [1, 4])
async def test_replay_limit(method, options, over, pieces):
    """RT-8: requests of 256 KiB, or what the option says, are sent again; with one byte more they are not."""
    limit = options[0][1] if options else 262_144
    requests = [request_of(limit // pieces)] * (pieces - 1) + [request_of(limit // pieces + over)]
    async with trying(fails(None), options=options) as service:
        arity = service.channel.stream_unary if method == "Up" else service.channel.stream_stream
        call = arity(f"/echo.v1.Echo/{method}", None, Message.FromString)(requests)
        if over:
            error = await failing(call)
            assert type(error) is grpc.aio.AioRpcError
            assert error.code() is CODE.UNAVAILABLE
        else:
            await finish(call)
        assert [len(got) for got in service.got] == [pieces] * (1 if over else 2)


@REQUEST_STREAMS
async def test_limit_passed_between_two_tries(method):
    """RT-8: a request that passes the limit while no attempt runs is the next one's, which is the last."""
    async with trying(
        fails(), fails(None), options=[(BUFFER, 1000)], retry="retry: 3, delay: 200ms, jitter: none"
    ) as service:
        call = getattr(service.stub, method)()
        await call.write(Message(text="a"))
        await service.until(lambda service: service.ended == 1)
        await asyncio.sleep(0.05)
        await call.write(Message(text="b" * 2000))
        await call.done_writing()
        assert type(await failing(call)) is grpc.aio.AioRpcError
        assert service.got[1:] == [["a", "b" * 2000]]


@REQUEST_STREAMS
async def test_endless_stream(method):
    """RT-8: past the limit requests are forgotten as they are sent; the rest of the stream is not held back."""
    texts = [f"{number}" + "x" * 500 for number in range(50)]
    async with trying(fails(1), options=[(BUFFER, 10_000)]) as service:
        call = getattr(service.stub, method)()
        for text in texts[:5]:
            await call.write(Message(text=text))
        await service.until(lambda service: len(service.got) == 2)
        for text in texts[5:]:
            await call.write(Message(text=text))
        await call.done_writing()
        assert await finish(call) == ("".join(texts) if method == "Up" else texts)
        assert service.got[1] == texts
        assert kept(call) == 0


def kept(call):
    """Return how many bytes of requests a call still has."""
    return 0 if call._replay is None else sum(map(len, call._replay._buffer._kept))


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70),
    reason="with grpcio 1.63 a retried request stream waits for the collector; not found out yet why",
)
@REQUEST_STREAMS
@STYLES
@pytest.mark.parametrize("failures", [0, 1, 4], ids=["answered", "answered at the second attempt", "exhausted"])
async def test_nothing_is_left_to_the_collector(method, style, failures):
    """CB-10: a call goes with the last reference to it, and so do its attempts and errors. Waits for up to 5 s."""
    async with trying(*[fails()] * failures) as service:
        await service.channel.channel_ready()
        gc.collect()
        gc.disable()
        try:
            left = await ended(make(service.stub, method, style=style))
            for _ in range(500):
                if not any(one() for one in left):
                    break
                await asyncio.sleep(0.01)
            assert [one() for one in left if one()] == []
        finally:
            gc.enable()


async def ended(call):
    """Return weak references to a call that has ended, to its attempt and to its error."""
    try:
        await finish(call)
    except aio.RetriesExhaustedError as error:
        return [weakref.ref(call), weakref.ref(call.attempt), weakref.ref(error), weakref.ref(error.__cause__)]
    return [weakref.ref(call), weakref.ref(call.attempt)]


@pytest.mark.parametrize("read", [False, True])
async def test_released_by_the_first_answer(read):
    """RT-8: with the first answer the requests that were sent are forgotten, not only when the next one is written."""
    async with trying() as service:
        call = service.stub.Both()
        await call.write(Message(text="x" * 100_000))
        assert kept(call) > 100_000
        await (call.read() if read else anext(aiter(call)))
        assert kept(call) == 0
        call.cancel()


async def takes_everything(requests, context):
    yield await anext(requests)
    async for _ in requests:
        pass


async def test_a_long_stream_takes_no_memory():
    """RT-8: of 100 MiB that are written behind the first answer no more than one request is ever kept."""
    request, most = Message(text="x" * 16_384), 0
    async with trying(takes_everything) as service:
        call = service.stub.Both()
        await call.write(request)
        await call.read()
        for _ in range(6400):
            await call.write(request)
            most = max(most, kept(call))
            service.got[0].clear()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
    assert most <= 2 * 16_384


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start eagerly from Python 3.12 on")
@CALLS
async def test_eager_tasks(method, style):
    """RT-8: attempts that begin in tasks that start at once."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with asyncio.timeout(20), trying(fails(), fails(1)) as service:
        assert await finish(make(service.stub, method, style=style)) == ANSWERS[method]
