"""TH-7: `install` replaces grpc's threaded constructors, even if other libraries replace them too."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.grpc import GrpcInstrumentorClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import grpc_backoff
from grpc_backoff.sync.grpcio import is_grpcios_own
from tests.echo import EchoStub, Message

NAMES = ("insecure_channel", "secure_channel")


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Restore grpc's constructors after each test."""
    for name in NAMES:
        monkeypatch.setattr(grpc, name, getattr(grpc, name))
    yield
    grpc_backoff.uninstall()


class Notes(grpc.UnaryUnaryClientInterceptor):
    def __init__(self, noted, name):
        self.noted, self.name = noted, name

    def intercept_unary_unary(self, continuation, details, request):
        self.noted.append(self.name)
        return continuation(details, request)


def wrap(noted, name):
    """Wrap grpc's constructors, as tracing libraries do."""

    def wrapper(beneath):
        return lambda *args, **kwargs: grpc.intercept_channel(beneath(*args, **kwargs), Notes(noted, name))

    for each in NAMES:
        setattr(grpc, each, wrapper(getattr(grpc, each)))


def call(target):
    with grpc.insecure_channel(target) as channel:
        assert EchoStub(channel).Unary(Message(text="a"), timeout=20).text == "a"
        return channel


def innermost(channel):
    while hasattr(channel, "_interceptor"):
        channel = channel._channel
    return channel


def test_installed(server):
    """TH-7: after `install`, grpc's constructors return our channels, and after `uninstall`, grpc's own."""
    grpc_backoff.install()
    grpc_backoff.install()
    assert type(call(server.target)) is grpc_backoff.Channel
    credentials = grpc.ssl_channel_credentials()
    with grpc.secure_channel(server.target, credentials, None, None) as channel:
        assert type(channel) is grpc_backoff.Channel
    grpc_backoff.uninstall()
    assert is_grpcios_own(call(server.target))


def test_for_a_while(server):
    """TH-7: `installed` replaces the constructors until the end of its block."""
    with grpc_backoff.installed():
        assert type(call(server.target)) is grpc_backoff.Channel
    assert is_grpcios_own(call(server.target))


@pytest.mark.parametrize("first", ["before", "after"])
def test_among_others(server, first):
    """TH-7: a wrapper added before or after `install` sees each call once, on our channel."""
    noted = []
    if first == "before":
        wrap(noted, "one")
        wrap(noted, "two")
        grpc_backoff.install()
    else:
        wrap(noted, "one")
        grpc_backoff.install()
        wrap(noted, "two")
    channel = call(server.target)
    assert sorted(noted) == ["one", "two"]
    assert type(innermost(channel)) is grpc_backoff.Channel
    grpc_backoff.uninstall()
    noted.clear()
    assert is_grpcios_own(innermost(call(server.target)))
    assert sorted(noted) == ["one", "two"]


def test_what_nobody_knows(server):
    """TH-7: after `install`, our channel is returned even if the replaced constructor makes unknown objects."""
    grpc.insecure_channel = lambda *_args, **_kwargs: object()
    grpc_backoff.install()
    assert type(call(server.target)) is grpc_backoff.Channel


@pytest.mark.parametrize("first", [True, False])
def test_opentelemetry(server, first, monkeypatch):
    """TH-7: OpenTelemetry's instrumentation, set up before or after `install`, records one span per call."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the instrumentor uses only the global provider
    instrumentor = GrpcInstrumentorClient()
    if first:
        instrumentor.instrument()
    grpc_backoff.install()
    if not first:
        instrumentor.instrument()
    try:
        call(server.target)
    finally:
        instrumentor.uninstrument()
    assert [span.name for span in exporter.get_finished_spans()] == ["/echo.v1.Echo/Unary"]
