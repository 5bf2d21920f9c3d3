"""A traced program: `python traced.py API TRACER ORDER MAKER TARGET` makes five calls and prints their traces.

API is asyncio or threads. TRACER is opentelemetry, sentry or ddtrace. ORDER says whether the tracer is set up before
or after `grpc_backoff.install()`; `alone` means without `install()`. MAKER is grpc or ours: the module whose
constructor the program calls.
"""

from __future__ import annotations

import asyncio
import json
import sys

import grpc.aio

import grpc_backoff
from grpc_backoff import aio

METHODS = ["/traced/Ask"] * 3 + ["/traced/Watch"] * 2


def opentelemetry():
    from opentelemetry import trace
    from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorClient, GrpcInstrumentorClient
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    GrpcAioInstrumentorClient().instrument(tracer_provider=provider)
    trace.set_tracer_provider(provider)  # the threaded instrumentor uses only the global provider
    GrpcInstrumentorClient().instrument()
    return lambda: [span.name for span in exporter.get_finished_spans()]


def sentry():
    import sentry_sdk
    from sentry_sdk.integrations.grpc import GRPCIntegration
    from sentry_sdk.transport import Transport

    events = []

    class Keeps(Transport):
        def capture_envelope(self, envelope):
            events.append(envelope.get_transaction_event())

    sentry_sdk.init(
        "http://key@127.0.0.1:1/1",
        transport=Keeps,
        traces_sample_rate=1.0,
        default_integrations=False,
        integrations=[GRPCIntegration()],
    )
    transaction = sentry_sdk.start_transaction(name="all")
    transaction.__enter__()

    def traced():
        transaction.__exit__(None, None, None)
        (event,) = filter(None, events)
        return [span["data"]["method"] for span in event["spans"] if span["op"] == "grpc.client"]

    return traced


def ddtrace():
    import ddtrace
    from ddtrace.trace import TraceFilter, tracer

    names = []

    class Keeps(TraceFilter):
        def process_trace(self, trace):
            names.extend(span.resource for span in trace)

    tracer.configure(trace_processors=[Keeps()])
    ddtrace.patch(grpc=True)

    def traced():
        tracer.flush()
        return names

    return traced


async def call(maker, target):
    make = grpc.aio.insecure_channel if maker == "grpc" else aio.insecure_channel
    async with make(target) as channel:
        for method in METHODS:
            if method.endswith("Ask"):
                await channel.unary_unary(method)(b"")
            else:
                assert [response async for response in channel.unary_stream(method)(b"")] == [b""]
    return type(channel) is aio.Channel


def call_in_threads(maker, target):
    make = grpc.insecure_channel if maker == "grpc" else grpc_backoff.insecure_channel
    with make(target) as channel:
        for number, method in enumerate(METHODS):
            if not method.endswith("Ask"):
                assert list(channel.unary_stream(method)(b"")) == [b""]
            elif number == 0:
                channel.unary_unary(method).future(b"").result()
            else:
                channel.unary_unary(method)(b"")
    while not isinstance(channel, grpc_backoff.Channel):
        channel = channel._channel
    return True


def main(api, tracer, order, maker, target):
    if order == "after":
        grpc_backoff.install()
    traced = {"opentelemetry": opentelemetry, "sentry": sentry, "ddtrace": ddtrace}[tracer]()
    if order == "before":
        grpc_backoff.install()
    ours = asyncio.run(call(maker, target)) if api == "asyncio" else call_in_threads(maker, target)
    sys.stdout.write(json.dumps({"ours": ours, "traced": sorted(traced())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
