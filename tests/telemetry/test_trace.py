"""Finding the trace that a call belongs to, with and without OpenTelemetry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import types

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from grpc_backoff.telemetry.trace import current_trace_id

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
