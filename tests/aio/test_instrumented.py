"""CH-1: OpenTelemetry's instrumentation of grpc.aio sees each call once and whole, the wait for a connection too."""

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
from tests.aio.test_drop_in_interceptors import notes
from tests.echo import EchoStub, Message, serving

QUICK = [("grpc.initial_reconnect_backoff_ms", 100)]


@pytest.fixture
def spans():
    """Return the names and codes of the spans that have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = GrpcAioInstrumentorClient()
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield lambda: [(span.name, span.attributes["rpc.grpc.status_code"]) for span in exporter.get_finished_spans()]
    finally:
        instrumentor.uninstrument()
        provider.shutdown()


@pytest.mark.parametrize("interceptors", [False, True])
async def test_one_span_each(spans, interceptors):
    """CH-1: a call that waited, one on a READY channel and one without a connection are one span each."""
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
