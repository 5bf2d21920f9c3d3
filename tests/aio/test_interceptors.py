"""CH-1: interceptors of a user's own stand in front of retried calls: they see a call once, with all its attempts."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallRetried, aio
from grpc_backoff.calls.events import Reason
from tests.aio.service import Tries, fails, hangs
from tests.aio.test_drop_in_interceptors import notes
from tests.aio.trying import ANSWERS, CALLS, CODE, METHODS, RETRY, failing, finish, make
from tests.echo import EchoStub, Message, serving

UNARY, DOWN = "/echo.v1.Echo/Unary", "/echo.v1.Echo/Down"


def every_arity(function):
    """Return interceptors of all four kinds that do what an asynchronous function of grpc's three arguments does."""

    class UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, client_call_details, request):
            return await function(continuation, client_call_details, request)

    class UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(self, continuation, client_call_details, request):
            return await function(continuation, client_call_details, request)

    class StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
        async def intercept_stream_unary(self, continuation, client_call_details, request_iterator):
            return await function(continuation, client_call_details, request_iterator)

    class StreamStream(grpc.aio.StreamStreamClientInterceptor):
        async def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
            return await function(continuation, client_call_details, request_iterator)

    return [UnaryUnary(), UnaryStream(), StreamUnary(), StreamStream()]


@contextlib.asynccontextmanager
async def intercepting(interceptors, *behaviours, retry=RETRY):
    """Run a server whose attempts go so, and a channel to it with these interceptors; yield service and stub."""
    service = Tries(*behaviours)
    service.events = []
    async with (
        serving(service) as port,
        aio.insecure_channel(
            f"127.0.0.1:{port}", interceptors=interceptors, retry=retry, listeners=[service.events.append]
        ) as channel,
    ):
        service.channel = channel
        yield service, EchoStub(channel)


@CALLS
async def test_a_call_is_seen_once(method, style):
    """CH-1: each interceptor runs once, what it adds is on every attempt, and the waits are within its call."""
    noted, seen = [], []

    async def watches(continuation, details, request):
        began = time.monotonic()
        call = await continuation(details, request)
        call.add_done_callback(lambda _: seen.append(time.monotonic() - began))
        return call

    retry = "retry: 3, delay: 50ms, jitter: none"
    chain = [*notes(noted, "one", "two"), *every_arity(watches)]
    async with intercepting(chain, fails(), fails(1), retry=retry) as (service, stub):
        call = make(stub, method, style=style, metadata=(("own", "x"),))
        assert await finish(call) == ANSWERS[method]
        assert await call.code() is CODE.OK
    assert [name for name, _ in noted] == ["one", "two"]
    assert len(seen) == 1
    assert seen[0] >= 0.095
    assert [metadata["own"] for metadata in service.metadata] == ["x"] * 3
    assert [metadata["through"] for metadata in service.metadata] == ["two"] * 3
    assert service.previous == [None, "1", "2"]


@METHODS
async def test_the_end_is_what_they_see(method):
    """RT-6: an interceptor that asks for the code gets that of the last attempt; the caller gets the account."""
    seen = []

    async def asks(continuation, details, request):
        call = await continuation(details, request)
        seen.append(await call.code())
        return call

    async with intercepting(every_arity(asks), *[fails()] * 4) as (service, stub):
        error = await failing(make(stub, method))
        assert isinstance(error, aio.RetriesExhaustedError)
        assert (error.attempts, error.reason) == (4, Reason.ATTEMPTS)
    assert seen == [CODE.UNAVAILABLE]
    assert len(service.got) == 4


@pytest.mark.parametrize("named", [UNARY.encode(), UNARY])
async def test_another_method(named):
    """BP-2: a call that an interceptor sends to another method is retried as that is."""

    async def elsewhere(continuation, details, request):
        return await continuation(details._replace(method=named), request)

    chain = every_arity(elsewhere)
    for retried, tries in (("echo.v1.Echo/Unary", 2), ("echo.v1.Echo/Nowhere", 1)):
        async with intercepting(chain, fails(), retry={retried: RETRY}) as (service, _):
            call = service.channel.unary_unary("/echo.v1.Echo/Nowhere", Message.SerializeToString, Message.FromString)(
                Message(text="a")
            )
            if tries == 1:
                assert type(await failing(call)) is grpc.aio.AioRpcError
            else:
                assert await finish(call) == "a"
            assert len(service.got) == tries


@METHODS
async def test_another_timeout(method):
    """RT-7: the timeout that an interceptor sets bounds the call as a whole."""

    async def shortens(continuation, details, request):
        assert details.timeout == 60
        return await continuation(details._replace(timeout=0.4), request)

    async with intercepting(every_arity(shortens), fails(), hangs) as (service, stub):
        error = await failing(make(stub, method, timeout=60))
        assert error.code() is CODE.DEADLINE_EXCEEDED
        assert len(service.got) == 2


@METHODS
async def test_a_retrying_interceptor(method):
    """RT-1: an interceptor that retries by itself makes new calls, each with all its attempts: they multiply."""

    async def insists(continuation, details, request):
        for _ in range(3):
            call = await continuation(details, request)
            if await call.code() is CODE.OK:
                break
        return call

    retry = "retry: 1, delay: 10ms"
    async with intercepting(every_arity(insists), *[fails()] * 6, retry=retry) as (service, stub):
        await failing(make(stub, method, style="iterator"))
    assert service.previous == [None, "1"] * 3


@CALLS
async def test_cancel_between_two_tries(method, style):
    """CH-1: cancelling goes through interceptors, also while nothing is under way."""
    async with intercepting(notes([], "one"), fails(), retry="retry: 3, delay: 60s") as (service, stub):
        call = make(stub, method, style=style)
        finishing = asyncio.create_task(finish(call))
        await service.until(lambda service: any(isinstance(event, CallRetried) for event in service.events))
        assert call.cancel()
        with pytest.raises((asyncio.CancelledError, asyncio.InvalidStateError)):  # the latter by grpc's own writer
            await finishing
        assert call.cancelled()
        assert len(service.got) == 1


@pytest.mark.parametrize("method", ["Down", "Both"])
async def test_failure_behind_the_first_answer(method):
    """RT-8: what an interceptor hands on of the responses is what the caller has seen, and binds the call."""

    async def reads(continuation, details, request):
        return await continuation(details, request)

    async with intercepting(every_arity(reads), fails(), fails(1, answers=1)) as (service, stub):
        responses = aiter(make(stub, method))
        assert (await anext(responses)).text == "answer 0"
        with pytest.raises(grpc.aio.AioRpcError, match="not now"):
            await anext(responses)
        assert len(service.got) == 2
