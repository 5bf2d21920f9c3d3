"""RT-8: retries of calls whose requests are written or come from an asynchronous iterator: what they buffer and allow.

`tests/both_apis/test_replay.py` covers what both APIs do. The waits between attempts are a few milliseconds of real
time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import grpc
import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_backoff import aio
from tests.aio.trying import (
    ANSWERS,
    BUFFER,
    CALLS,
    CODE,
    REQUEST_STREAMS,
    RESPONSE_STREAMS,
    STYLES,
    failing,
    finish,
    make,
    retrying,
    trying,
    until,
)
from tests.both_apis.tries import fails
from tests.echo import Message
from tests.sync.service import INITIAL

MIXED = pytest.raises(grpc.aio.UsageError, match="may not be mixed")
LATER = "retry: 1, delay: 60s"


async def test_headers_that_were_seen():
    """RT-8: awaiting an attempt's initial metadata commits a call with a stream of requests and one response."""
    shown = threading.Event()
    async with trying(fails(headers=INITIAL, when=shown)) as service:
        call = make(service.stub, "Up")
        assert set(INITIAL) <= set(await call.initial_metadata())
        shown.set()
        error = await failing(call)
        assert type(error) is grpc.aio.AioRpcError
        assert error.code() is CODE.UNAVAILABLE
        assert len(service.got) == 1


@pytest.mark.parametrize("read", [False, True])
async def test_ping_pong(read):
    """RT-8: a call that alternates writes and reads is retried until its first response."""
    async with trying(fails(1), fails(1)) as service:
        call = service.stub.Both()
        responses = None if read else aiter(call)
        for text in "abc":
            await call.write(Message(text=text))
            assert (await (call.read() if read else anext(responses))).text == text
        await call.done_writing()
        assert await call.code() is CODE.OK
        assert service.got == [["a"], ["a"], ["a", "b", "c"]]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.sampled_from([0, 1, 10, 5_000, 70_000]), max_size=8),
    failures=st.lists(st.integers(0, 8) | st.none(), max_size=3),
    method=st.sampled_from(["Up", "Both"]),
    style=st.sampled_from(["written", "async iterator"]),
    read=st.booleans(),
)
async def test_replay(sizes, failures, method, style, read):
    """RT-8: for any requests and failures, the attempt that succeeds gets every request once, in order."""
    texts = [f"{number}" + "x" * size for number, size in enumerate(sizes)]
    async with trying(*map(fails, failures), options=[(BUFFER, 1 << 20)]) as service:
        answer = await finish(make(service.stub, method, texts, style), read=read)
        assert answer == ("".join(texts) if method == "Up" else texts)
        assert service.got[-1] == texts
        assert len(service.got) == len(failures) + 1
        for got, after in zip(service.got, failures, strict=False):
            assert got == texts[:after]


def kept(call):
    """Return the size in bytes of the requests that a call still buffers."""
    return 0 if call._replay is None else sum(map(len, call._replay._buffer._kept))


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70),
    reason="grpcio 1.63 keeps the callbacks of a finished call, which refer to the call, until the collector runs",
)
@REQUEST_STREAMS
@STYLES
@pytest.mark.parametrize("failures", [0, 1, 4], ids=["answered", "answered at the second attempt", "exhausted"])
async def test_nothing_is_left_to_the_collector(method, style, failures):
    """CB-10: a finished call, its attempts and errors are freed without the garbage collector. Waits for up to 5 s."""
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
    """Finish a call; return weak references to the call, its last attempt and its errors."""
    try:
        await finish(call)
    except aio.RetriesExhaustedError as error:
        return [weakref.ref(call), weakref.ref(call.attempt), weakref.ref(error), weakref.ref(error.__cause__)]
    return [weakref.ref(call), weakref.ref(call.attempt)]


def takes_everything(requests, _context):
    yield next(requests)
    for _ in requests:
        pass


@pytest.mark.parametrize("read", [False, True])
async def test_a_long_stream_takes_no_memory(read):
    """RT-8: a stream's first response discards what was sent; afterwards it never buffers more than two requests."""
    request, most = Message(text="x" * 16_384), 0
    async with trying(takes_everything) as service:
        call = service.stub.Both()
        await call.write(request)
        assert kept(call) > 16_384
        await (call.read() if read else anext(aiter(call)))
        assert kept(call) == 0
        for _ in range(1000):
            await call.write(request)
            most = max(most, kept(call))
            service.got[0].clear()
        await call.done_writing()
        assert await call.code() is CODE.OK
    assert most <= 2 * 16_384


def without_context(loop, work):
    """Make a task, as factories do that were written for Python 3.10."""
    return asyncio.Task(work, loop=loop)


@pytest.mark.parametrize("factory", [getattr(asyncio, "eager_task_factory", None), without_context])
@CALLS
async def test_task_factories(method, style, factory):
    """RT-8: retries work on an event loop that starts tasks eagerly, or whose task factory knows no `context`."""
    if factory is None:
        pytest.skip("tasks start eagerly from Python 3.12 on")
    loop = asyncio.get_running_loop()
    if factory is without_context and not isinstance(loop, asyncio.BaseEventLoop):
        pytest.skip("uvloop gives every task factory a `context`")
    loop.set_task_factory(factory)
    async with asyncio.timeout(20), trying(fails(), fails(1)) as service:
        assert await finish(make(service.stub, method, style=style)) == ANSWERS[method]


# Reading and writing over several attempts; `test_drop_in_calls.py` compares other calls with grpc's own.


@RESPONSE_STREAMS
async def test_read_past_the_end(method):
    """CH-1: after a call has ended, each `read()` returns EOF or raises the error, even after iteration."""
    async with trying() as service:
        call = make(service.stub, method)
        assert [response.text async for response in call]
        for _ in range(2):
            assert await call.read() is grpc.aio.EOF
    async with trying(fails(), fails(), retry="retry: 1, delay: 10ms") as service:
        call = make(service.stub, method)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match=r"gave up: .* \(2 attempts in "):
                await call.read()


@RESPONSE_STREAMS
async def test_iteration_that_is_left(method):
    """CH-1: a new iteration continues where the previous one was left by `break`, even in a later attempt."""
    async with trying(fails(1), fails(1)) as service:
        call = make(service.stub, method)
        async for response in call:
            first = response.text
            break
        rest = [response.text async for response in call]
        assert [first, *rest] == (["a", "b"] if method == "Both" else ["ab"])


@REQUEST_STREAMS
async def test_writing_beside_an_iterator(method):
    """CH-1: `write()` on a call with a request iterator raises UsageError, during attempts and between them."""
    async with trying(fails(), retry=LATER) as service:
        call = make(service.stub, method)
        for _ in range(2):
            with MIXED:
                await call.write(Message())
            with MIXED:
                await call.done_writing()
            await until(lambda: retrying(service))
        call.cancel()


@REQUEST_STREAMS
async def test_writing_in_a_pause(method):
    """RT-8: a write between two attempts waits for the next attempt."""
    async with trying(fails(), retry="retry: 1, delay: 500ms, jitter: none") as service:
        call = getattr(service.stub, method)()
        await until(lambda: retrying(service))
        writing = asyncio.create_task(call.write(Message(text="a")))
        await asyncio.sleep(0.05)
        assert not writing.done()
        await writing
        await call.done_writing()
        await call.done_writing()
        with pytest.raises(asyncio.InvalidStateError, match="half closed"):
            await call.write(Message(text="b"))
        assert (await call).text == "a" if method == "Up" else (await call.read()).text == "a"
        assert service.got == [[], ["a"]]


async def write_on(call):
    while True:
        await call.write(Message(text="a"))


@REQUEST_STREAMS
async def test_writing_to_a_call_that_is_given_up(method):
    """RT-6: a write that waits for another attempt raises the call's error if no further attempt is made."""
    async with trying(fails(), fails(), retry="retry: 1, delay: 200ms, jitter: none") as service:
        call = getattr(service.stub, method)()
        await until(lambda: retrying(service))
        writing = asyncio.create_task(write_on(call))
        assert await call.code() is CODE.UNAVAILABLE
        await asyncio.wait([writing])
        assert isinstance(writing.exception(), grpc.aio.AioRpcError | asyncio.InvalidStateError)
        with pytest.raises(asyncio.InvalidStateError, match="already finished"):
            await call.write(Message(text="b"))
        await call.done_writing()


async def test_two_writers():
    """RT-8: concurrent writes by several tasks are sent one after another; with plain grpc, the call would fail."""
    async with trying(fails(3)) as service:
        call = service.stub.Up()
        await asyncio.gather(*(call.write(Message(text=f"{number}")) for number in range(10)))
        await call.done_writing()
        assert (await call).count == 10
        assert service.got[-1] == [f"{number}" for number in range(10)]
