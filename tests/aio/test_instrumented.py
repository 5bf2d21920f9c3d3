"""CH-1: OpenTelemetry's instrumentation of grpc.aio sees each call once, including all of its waits and attempts."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from grpc_backoff import aio
from grpc_backoff.testing.front import FlakyFront
from tests.aio.trying import ANSWERS, CALLS, CODE, METHODS, failing, finish, make, trying
from tests.both_apis.interceptors import notes
from tests.both_apis.tries import fails, hangs
from tests.echo import EchoStub, Message, serving

QUICK = [("grpc.initial_reconnect_backoff_ms", 100)]


@pytest.fixture
def exporter():
    """Instrument grpc.aio; yield the exporter, which keeps the finished spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = GrpcAioInstrumentorClient()
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield exporter
    finally:
        instrumentor.uninstrument()
        provider.shutdown()


@pytest.fixture
def spans(exporter):
    """Return a function that returns the names and status codes of the finished spans."""
    return lambda: [(span.name, span.attributes["rpc.grpc.status_code"]) for span in exporter.get_finished_spans()]


@pytest.mark.parametrize("interceptors", [False, True])
async def test_one_span_each(spans, interceptors):
    """CH-1: a call has one span, whether it waited, found the channel READY or had no connection."""
    noted = []
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        await front.refuse()
        chosen = notes(noted, "mine") if interceptors else None
        async with aio.insecure_channel(front.target, options=QUICK, interceptors=chosen) as channel:
            stub = EchoStub(channel)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Unary(Message())
            waits = stub.Unary(Message(), wait_for_ready=True)
            await asyncio.sleep(0.05)
            await front.listen()
            async with asyncio.timeout(30):
                await waits
                await stub.Unary(Message())
                assert [response async for response in stub.Down(Message(count=1))]
    unary = "/echo.v1.Echo/Unary"
    assert spans() == [(unary, 14), (unary, 0), (unary, 0), ("/echo.v1.Echo/Down", 0)]
    assert len(noted) == (4 if interceptors else 0)


# Except for stream-unary calls whose requests are written: on plain channels, too, the instrumentation blocks those
# writes until the response arrives.
@pytest.mark.parametrize(("method", "style"), [way for way in CALLS.args[1] if way != ("Up", "written")])
async def test_a_retried_call_is_one_span(exporter, spans, method, style):
    """CH-1: the span of a retried call has the final status, includes the waits, and is the parent of every attempt."""
    retry = "retry: 3, delay: 50ms, jitter: none"
    async with trying(fails(), fails(1), retry=retry) as service:
        assert await finish(make(service.stub, method, style=style)) == ANSWERS[method]
        await asyncio.sleep(0.1)  # before 1.8x, grpcio closes no channel while its writer awaits a code
    assert spans() == [(f"/echo.v1.Echo/{method}", 0)]
    (span,) = exporter.get_finished_spans()
    assert span.end_time - span.start_time >= 95e6  # nanoseconds; two waits of 50 ms
    own = [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]
    assert [metadata["traceparent"].split("-")[1:3] for metadata in service.metadata] == [own] * 3


@METHODS
@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.NOT_FOUND])
async def test_a_retried_call_that_fails_is_one_span(spans, method, code):
    """RT-6: a retried call that fails has one span, with the final status."""
    async with trying(fails(), fails(code=code), retry="retry: 1, delay: 10ms") as service:
        await failing(make(service.stub, method))
        assert len(service.got) == 2
    assert spans() == [(f"/echo.v1.Echo/{method}", code.value[0])]


@METHODS
@pytest.mark.parametrize("retry", [None, "retry: 3, delay: 10ms", "hedge: 20s, attempts: 2"])
@pytest.mark.usefixtures("exporter")
async def test_a_call_that_its_task_gives_up(method, retry):
    """CH-1: the server is told when a task gives up a call, though its tracer waits for the call's status then.

    On plain channels, such a call with one response runs to its end at the server.
    """
    async with trying(hangs, retry=retry) as service:
        task = asyncio.create_task(finish(make(service.stub, method)))
        async with asyncio.timeout(30):
            while not service.got:
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait([task])
            while not service.ended:
                await asyncio.sleep(0.02)
        assert task.cancelled()
        assert (len(service.got), service.ended) == (1, 1)
