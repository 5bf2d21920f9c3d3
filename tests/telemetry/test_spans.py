"""Attempts as spans, with OpenTelemetry's SDK and a real server."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from grpc_backoff import aio
from tests.aio.trying import CALLS, finish, make, trying
from tests.both_apis.tries import fails


@pytest.fixture
def spans(monkeypatch):
    """Return the exporter of a program that traces with OpenTelemetry's SDK."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def attempts(spans):
    return [span for span in spans.get_finished_spans() if span.name.startswith("Attempt.")]


@CALLS
async def test_each_attempt_is_a_span(spans, method, style):
    """RT-11: an attempt is a child of the call's span, and the wait between attempts is an event in it (gRFC A72)."""
    async with trying(fails()) as service:
        with trace.get_tracer("test").start_as_current_span("call") as call:
            await finish(make(service.stub, method, style=style))
    first, second = attempts(spans)
    assert {first.name, second.name} == {f"Attempt.echo.v1.Echo/{method}"}
    assert [dict(each.attributes)["previous-rpc-attempts"] for each in (first, second)] == [0, 1]
    assert {first.parent.span_id, second.parent.span_id} == {call.get_span_context().span_id}
    assert [each.status.status_code for each in (first, second)] == [trace.StatusCode.ERROR, trace.StatusCode.UNSET]
    assert first.status.description == "UNAVAILABLE"
    (wait,) = call.events
    assert (wait.name, wait.attributes["delay"], wait.attributes["code"]) == ("Retry backoff", 0.01, "UNAVAILABLE")
    assert first.end_time <= second.start_time


async def test_a_wait_for_a_connection(spans):
    """RT-7, RT-11: an attempt's span includes its wait for a connection, with an event at the end of the wait."""
    async with trying() as service:
        with trace.get_tracer("test").start_as_current_span("call"):
            await finish(make(service.stub, "Unary"))
            await finish(make(service.stub, "Unary"))
    first, second = attempts(spans)
    assert [event.name for event in first.events] == ["Delayed LB pick complete"]
    assert not second.events


async def test_a_cancelled_call(spans):
    """CH-1, RT-11: cancelling a call ends the span of its attempt."""
    async with trying() as service:
        with trace.get_tracer("test").start_as_current_span("call"):
            assert make(service.stub, "Unary").cancel()
    (attempt,) = attempts(spans)
    assert attempt.status.description == "CANCELLED"


@pytest.mark.parametrize("ready", [False, True])
async def test_a_call_that_grpc_rejects(spans, ready):
    """RT-11: if grpc rejects a call before it sends anything, there is no attempt, and so no span of one."""
    async with trying() as service:
        if ready:
            await service.channel.channel_ready()
        with trace.get_tracer("test").start_as_current_span("call"), pytest.raises(KeyError):
            await finish(make(service.stub, "Unary", compression=99))
    assert attempts(spans) == []


async def test_no_span_without_a_recording_one(spans):
    """RT-11: no spans are recorded if the caller has no recording span, or if the call has no policy."""
    async with trying() as service:
        await finish(make(service.stub, "Unary"))
        async with aio.insecure_channel(f"127.0.0.1:{service.port}") as channel:
            with trace.get_tracer("test").start_as_current_span("call"):
                await finish(make(type(service.stub)(channel), "Unary"))
    assert attempts(spans) == []


async def test_a_tracer_that_raises_fails_no_call(spans, monkeypatch):
    """CH-11, RT-11: an exception from OpenTelemetry does not fail the call."""

    def broken(*_args, **_kwargs):
        raise RuntimeError("no tracer")

    async with trying(fails()) as service:
        with trace.get_tracer("test").start_as_current_span("call"):
            monkeypatch.setattr(trace, "get_tracer", broken)
            assert await finish(make(service.stub, "Unary")) == "ab"
