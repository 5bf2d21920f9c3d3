"""A call's trace and its attempts' spans, with and without OpenTelemetry, and its identifier.

The identifier is the same in the call's events, its log records and its hooks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import subprocess
import sys
import types

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from grpc_backoff import RetryHooks, aio
from grpc_backoff.telemetry.trace import CallId, current_trace_id
from tests.aio.retry_service import CODE, Say, peer
from tests.aio.trying import CALLS, REQUEST_STREAMS, failing, finish, make, trying
from tests.both_apis.tries import fails
from tests.echo import EchoStub, Message

__all__ = ["peer"]

DOWN = Say()
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
REMOTE = trace.SpanContext(TRACE_ID, 0xB7AD6B7169203331, is_remote=True)


@pytest.fixture
def tracer():
    """A tracer of OpenTelemetry's SDK."""
    provider = TracerProvider()
    yield provider.get_tracer("test")
    provider.shutdown()


def test_the_current_span(tracer):
    """RT-11: within a span, the span's trace id is returned as 32 hexadecimal digits; outside a span, None is."""
    with tracer.start_as_current_span("outer") as span:
        expected = trace.format_trace_id(span.get_span_context().trace_id)
        assert current_trace_id() == expected
        assert len(expected) == 32
        with tracer.start_as_current_span("inner"):
            assert current_trace_id() == expected
    assert current_trace_id() is None


class _Hostile(trace.NonRecordingSpan):
    def get_span_context(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("span", "trace_id"),
    [
        # A trace that was received with a request counts, even without an SDK; leading zeros are kept.
        (trace.NonRecordingSpan(REMOTE), "0af7651916cd43dd8448eb211c80319c"),
        # The invalid span that exists in a program without tracing has no trace id.
        (trace.INVALID_SPAN, None),
        # An exception from a span is ignored; the call continues without a trace id.
        (_Hostile(REMOTE), None),
    ],
)
def test_other_spans(span, trace_id):
    """RT-11: a span from elsewhere, an invalid one and one that fails are possible, too."""
    with trace.use_span(span):
        assert current_trace_id() == trace_id


async def test_each_task_has_its_own(tracer):
    """RT-11: concurrent calls each belong to the trace of their own task."""

    async def call():
        with tracer.start_as_current_span("call") as span:
            await asyncio.sleep(0.01)
            return current_trace_id() == trace.format_trace_id(span.get_span_context().trace_id), current_trace_id()

    found = await asyncio.gather(*(call() for _ in range(10)))
    assert all(its_own for its_own, _ in found)
    assert len({trace_id for _, trace_id in found}) == 10


def test_opentelemetry_is_not_imported():
    """RT-11: looking for a trace does not import OpenTelemetry; if it has not been imported, there is no trace."""
    code = (
        "import sys\n"
        "from grpc_backoff.telemetry.trace import current_trace_id\n"
        "print(current_trace_id(), [name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None []"


@pytest.mark.parametrize("module", [None, types.ModuleType("opentelemetry.trace")], ids=["blocked", "half done"])
def test_half_imported(monkeypatch, module):
    """RT-11: if OpenTelemetry's import is blocked, or unfinished in another thread, there is no trace and no error."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    assert current_trace_id() is None


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


async def exhausted(peer, caplog, text="a", **how):
    """Make a call that fails three times; return the hook's arguments, the events and the log records."""
    told = []
    client = peer.client("retry: 2, delay: 1ms", retry_hooks=RetryHooks(on_exhausted=told.append))
    peer.service.scripts[text] = [DOWN] * 3
    unary = aio.retrying(client.stub.Unary, "retry: 2, delay: 1ms", **how) if how else client.stub.Unary
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        await failing(unary(Message(text=text)))
    records = [record for record in caplog.records if getattr(record, "method", None)]
    return told, [event for event in client.events if hasattr(event, "method")], records


async def test_made_up_for_each_call(peer, caplog):
    """RT-11: each call with a policy has its own identifier, the same in events, log records and hooks."""
    (failed,), events, records = await exhausted(peer, caplog)
    assert len(events) == len(records) == 3, "two retries, and the end"
    assert {event.call_id for event in events} == {record.operation_id for record in records} == {failed.call_id}
    assert len(failed.call_id) == 32
    assert int(failed.call_id, 16)
    (other,), _, _ = await exhausted(peer, caplog, "b")
    assert other.call_id != failed.call_id


async def test_given_by_the_caller(peer, caplog):
    """RT-11: an identifier given by the caller, such as an order number, replaces the random one."""
    (failed,), events, records = await exhausted(peer, caplog, call_id="order 17")
    told = [failed.call_id, *(event.call_id for event in events), *(record.operation_id for record in records)]
    assert set(told) == {"order 17"}


async def test_the_request_is_kept_for_hooks(peer, caplog):
    """RT-6: a hook gets the request as serialized bytes, which the record's `repr` does not show."""
    (failed,), _, _ = await exhausted(peer, caplog)
    assert Message.FromString(failed.request).text == "a"
    assert repr(failed.request) not in repr(failed)
    assert failed.code is CODE.UNAVAILABLE


@REQUEST_STREAMS
async def test_a_stream_of_requests_is_not_kept(method):
    """RT-6, RT-8: a hook gets no request if the call is request-streaming."""

    told = []
    async with trying(fails(), fails()) as service:
        target, hooks = f"127.0.0.1:{service.port}", RetryHooks(on_exhausted=told.append)
        async with aio.insecure_channel(target, retry="retry: 1, delay: 1ms", retry_hooks=hooks) as channel:
            await failing(make(EchoStub(channel), method))
    assert [failed.request for failed in told] == [None]


def test_an_identifier():
    """RT-11: an identifier has 32 hexadecimal digits, like a trace id, and is unique."""
    made = {str(CallId()) for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)


def test_an_identifier_stays():
    """RT-11: a call's identifier is created when it is first used and does not change."""
    one, other = CallId(), CallId()
    first = str(one)
    assert first == str(one) != str(other)
    assert re.fullmatch("[0-9a-f]{32}", str(one))


def test_no_seed_repeats_them():
    """RT-11: identifiers differ even if the program seeds `random`."""
    made = []
    for _ in range(2):
        random.seed(4)
        made.append(str(CallId()))
    assert made[0] != made[1]


FORKING = """
import os

from grpc_backoff.telemetry.trace import CallId

str(CallId())
for _ in range(3):
    child = os.fork()
    if child == 0:
        break
    os.waitpid(child, 0)
os.write(1, f"{str(CallId())}\\n".encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_unique_over_forks():
    """RT-11: processes forked at the same moment create different identifiers.

    The test runs in a process in which grpc's core has not started, because forking while it runs can hang.
    """
    said = subprocess.run([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert len(set(said.stdout.split())) == 4
