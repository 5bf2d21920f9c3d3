"""The threaded clients of docs/clients.md, on our channels, before and after the server restarts."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

import grpc_backoff
from grpc_backoff import AttemptFailed
from grpc_backoff.sync.channel import Channel
from tests.clients.conftest import QUICK
from tests.clients.server import until

PUBLISH = "/google.pubsub.v1.Publisher/Publish"
PULL = "/google.pubsub.v1.Subscriber/StreamingPull"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
EXISTS = "/qdrant.Collections/CollectionExists"
WAIT_FOR_READY = ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "waitForReady": True}]}))
KINDS = pytest.mark.parametrize("kind", [grpc, grpc_backoff], ids=["plain", "ours"])


def innermost(channel):
    """Return the channel beneath all interceptors."""
    while not isinstance(channel, Channel):
        channel = channel._channel
    return channel


def publishes(server):
    def publish(request):
        count = len(types.PublishRequest.deserialize(request).messages)
        return types.PublishResponse.serialize({"message_ids": [str(number) for number in range(count)]})

    server.methods[PUBLISH] = publish


@KINDS
def test_publisher(server, kind):
    """TH-1: Pub/Sub's publisher accepts our channel, and messages published during an outage arrive after it."""
    publishes(server)
    with kind.insecure_channel(server.target, QUICK) as channel:
        client = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        assert client.publish("projects/p/topics/t", b"before").result(20) == "0"
        server.kill()
        pending = [client.publish("projects/p/topics/t", b"amid") for _ in range(10)]
        time.sleep(0.3)
        server.start()
        assert len({future.result(30) for future in pending}) == 10
        assert kind is grpc or channel.connection_status().made == 2
        client.stop()


def test_streaming_pull(server):
    """TH-1: Pub/Sub's streaming pull continues after an outage and ends when it is cancelled."""

    def pulls(requests, context):
        for _ in requests:
            message = {"ack_id": "a", "message": {"data": b"hello", "message_id": str(server.calls[PULL])}}
            yield types.StreamingPullResponse.serialize({"received_messages": [message]})

    server.methods[PULL] = pulls
    with grpc_backoff.insecure_channel(server.target, QUICK) as channel:
        client = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        got = queue.Queue()
        pulling = client.subscribe("projects/p/subscriptions/s", got.put, await_callbacks_on_shutdown=False)
        assert got.get(timeout=20).message_id == "1"
        server.restart()
        while got.get(timeout=30).message_id == "1":
            pass
        assert channel.connection_status().made == 2
        pulling.cancel()
        pulling.result(20)


def test_pubsub_emulator(server, installed, monkeypatch):
    """TH-7: after `install()`, the publisher's channel to an emulator is ours."""
    publishes(server)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.target)
    client = pubsub_v1.PublisherClient()
    channel = innermost(client.transport.grpc_channel)
    assert client.publish("projects/p/topics/t", b"a").result(20) == "0"
    server.restart()
    assert client.publish("projects/p/topics/t", b"b").result(30) == "0"
    assert channel.connection_status().made == 2
    client.stop()
    channel.close()


@pytest.fixture
def spans():
    """A list with one span to export."""
    from opentelemetry.sdk.trace import TracerProvider

    span = TracerProvider().get_tracer("t").start_span("s")
    span.end()
    return [span]


def exporter(server, monkeypatch, make=None, **how):
    """Return an OTLP exporter; `make` replaces the constructor that the exporter's module imported from grpc."""
    from opentelemetry.exporter.otlp.proto.grpc import exporter as module
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    if make is not None:
        monkeypatch.setattr(module, "insecure_channel", make)
    server.methods[EXPORT] = lambda request: b""
    return OTLPSpanExporter(endpoint=f"http://{server.target}", **how)


def test_otlp_is_back_within_one_gap(server, monkeypatch, spans):
    """TH-1: spans exported during an outage arrive with the first or second attempt to connect after it."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    options = (WAIT_FOR_READY, *QUICK)
    exports = exporter(server, monkeypatch, grpc_backoff.insecure_channel, channel_options=options, timeout=60)
    assert exports.export(spans) is SpanExportResult.SUCCESS
    server.kill()
    heard = []
    exports._channel.add_listener(heard.append)
    exported = ThreadPoolExecutor(1).submit(exports.export, spans)
    until(lambda: exports._channel.connection_status().attempt >= 3)
    server.start()
    heard.clear()
    assert exported.result(20) is SpanExportResult.SUCCESS
    # One attempt may have been refused before the server listened, and its failure reported only now.
    assert len([event for event in heard if isinstance(event, AttemptFailed)]) <= 1
    exports.shutdown()


@KINDS
@pytest.mark.parametrize("options", [(), (WAIT_FOR_READY,)], ids=["as-it-is", "wait-for-ready"])
def test_otlp_shutdown(server, monkeypatch, spans, kind, options):
    """CB-10: while the server is down, `shutdown` returns long before the timeout and makes a running export fail."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    exports = exporter(server, monkeypatch, kind.insecure_channel, channel_options=options, timeout=60)
    assert exports.export(spans) is SpanExportResult.SUCCESS
    server.kill()
    exported = ThreadPoolExecutor(1).submit(exports.export, spans)
    time.sleep(0.5)
    began = time.monotonic()
    exports.shutdown()
    assert time.monotonic() - began < 10  # usually much less than a second
    assert exported.result(20) is SpanExportResult.FAILURE


def test_otlp_installed(server):
    """TH-7: an exporter whose module is imported after `install()` uses one of our channels."""
    server.methods[EXPORT] = lambda request: b""
    done = subprocess.run(
        [sys.executable, "-c", OTLP, server.target], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["SpanExportResult.SUCCESS", "grpc_backoff.sync.channel"]


OTLP = """
import sys
import grpc_backoff
grpc_backoff.install()
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
span = TracerProvider().get_tracer("t").start_span("s")
span.end()
exporter = OTLPSpanExporter(endpoint=f"http://{sys.argv[1]}")
print(exporter.export([span]), type(exporter._channel).__module__)
exporter.shutdown()
"""


def test_qdrant(server, installed):
    """TH-7: after `install()`, qdrant-client's threaded client uses our channel behind its interceptor."""
    from qdrant_client import QdrantClient
    from qdrant_client import grpc as protocol

    found = protocol.CollectionExistsResponse(result=protocol.CollectionExists(exists=True))
    server.methods[EXISTS] = lambda request: found.SerializeToString()
    client = QdrantClient(
        host="localhost", grpc_port=server.port, prefer_grpc=True, pool_size=1, check_compatibility=False
    )
    assert client.collection_exists("c")
    channel = innermost(client._client._grpc_channel_pool[0])
    server.restart()
    grpc.channel_ready_future(channel).result(20)
    assert client.collection_exists("c")
    assert channel.connection_status().made == 2
    client.close()


@pytest.mark.parametrize("way", ["installed", "handed over"])
def test_pymilvus(server, way, request):
    """TH-1, TH-7: pymilvus' handler waits for our channel to be ready, and its calls work after an outage."""
    from pymilvus.client.grpc_handler import GrpcHandler

    from tests.clients.test_pymilvus import SHOW, serve

    serve(server)
    how = {}
    if way == "installed":
        request.getfixturevalue("installed")
    else:
        how = {"channel": grpc_backoff.insecure_channel(server.target, QUICK)}
    handler = GrpcHandler(uri=f"http://{server.target}", user="u", password="p", **how)
    handler._wait_for_channel_ready(20)
    channel = handler._channel
    assert type(channel) is Channel
    assert handler.list_collections() == ["c"]
    assert server.metadata[SHOW]["identifier"] == "7"
    server.restart()
    assert handler.list_collections(timeout=20) == ["c"]
    assert channel.connection_status().made == 2
    handler.close()


def test_xai(server, installed):
    """TH-7: after `install()`, xai-sdk's threaded client uses our channel behind its interceptors."""
    from xai_sdk import Client
    from xai_sdk.proto import models_pb2

    found = models_pb2.ListLanguageModelsResponse(models=[{"name": "m"}])
    server.methods["/xai_api.Models/ListLanguageModels"] = lambda request: found.SerializeToString()
    client = Client(api_key="k", api_host=server.target, use_insecure_channel=True, timeout=20)
    channel = innermost(client._api_channel)
    assert [model.name for model in client.models.list_language_models()] == ["m"]
    server.restart()
    assert [model.name for model in client.models.list_language_models()] == ["m"]
    assert channel.connection_status().made == 2
    client.close()
