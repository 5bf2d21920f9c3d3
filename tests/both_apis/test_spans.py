"""RT-11: spans of attempts that wait for a connection, or find none. `tests/telemetry/test_trace.py` has the rest."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.both_apis.api import RETRY
from tests.sync.service import until


@pytest.fixture
def spans(monkeypatch):
    """Return the exporter of a program in which a recording span is current in every thread."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    caller = provider.get_tracer("test").start_span("call")
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_current_span", lambda *_: caller)
    yield exporter
    provider.shutdown()


def test_a_wait_for_a_connection(ours, way, server, spans):
    """RT-11: an attempt's span includes its wait for a connection, with an event at the end of the wait."""
    with ours.channel(server.target, retry=RETRY) as channel:
        for number in (1, 2):
            assert channel.begin(way).outcome().code is grpc.StatusCode.OK
            until(lambda number=number: len(spans.get_finished_spans()) == number)
    first, second = [[event.name for event in span.events] for span in spans.get_finished_spans()]
    assert (first, second) == (["Delayed LB pick complete"], [])


def test_without_a_connection(ours, way, nowhere, spans):
    """RT-11: an attempt that gets no connection has a span too."""
    with ours.channel(nowhere.target, retry=RETRY) as channel:
        assert channel.begin(way).outcome().code is grpc.StatusCode.UNAVAILABLE
        until(lambda: len(spans.get_finished_spans()) == 4)
    found = [(span.attributes["previous-rpc-attempts"], span.status.description) for span in spans.get_finished_spans()]
    assert found == [(number, "UNAVAILABLE") for number in range(4)]
