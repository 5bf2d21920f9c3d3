"""The threaded clients of docs/clients.md, on our channels, before and after the server restarts."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time

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
from tests.clients.place import in_thread, until

PUBLISH = "/google.pubsub.v1.Publisher/Publish"
PULL = "/google.pubsub.v1.Subscriber/StreamingPull"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
EXISTS = "/qdrant.Collections/CollectionExists"
MILVUS = "/milvus.proto.milvus.MilvusService/"
WAIT_FOR_READY = ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "waitForReady": True}]}))
KINDS = pytest.mark.parametrize("kind", [grpc, grpc_backoff], ids=["plain", "ours"])


def innermost(channel):
    """Return the channel beneath all interceptors."""
    while not isinstance(channel, Channel):
        channel = channel._channel
    return channel


def publishes(place):
    def publish(request):
        count = len(types.PublishRequest.deserialize(request).messages)
        return types.PublishResponse.serialize({"message_ids": [str(number) for number in range(count)]})

    place.methods[PUBLISH] = publish


@KINDS
def test_publisher(place, kind):
    """TH-1: Pub/Sub's publisher accepts our channel, and messages published during an outage arrive after it."""
    publishes(place)
    with kind.insecure_channel(place.target, QUICK) as channel:
        client = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        assert client.publish("projects/p/topics/t", b"before").result(20) == "0"
        place.kill()
        pending = [client.publish("projects/p/topics/t", b"amid") for _ in range(10)]
        time.sleep(0.3)
        place.start()
        assert len({future.result(30) for future in pending}) == 10
        assert kind is grpc or channel.connection_status().made == 2
        client.stop()


def test_streaming_pull(place):
    """TH-1: Pub/Sub's streaming pull continues after an outage and ends when it is cancelled."""

    def pulls(requests, context):
        for _ in requests:
            message = {"ack_id": "a", "message": {"data": b"hello", "message_id": str(place.calls[PULL])}}
            yield types.StreamingPullResponse.serialize({"received_messages": [message]})

    place.methods[PULL] = pulls
    with grpc_backoff.insecure_channel(place.target, QUICK) as channel:
        client = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        got = queue.Queue()
        pulling = client.subscribe("projects/p/subscriptions/s", got.put, await_callbacks_on_shutdown=False)
        assert got.get(timeout=20).message_id == "1"
        place.restart()
        while got.get(timeout=30).message_id == "1":
            pass
        assert channel.connection_status().made == 2
        pulling.cancel()
        pulling.result(20)


def test_pubsub_emulator(place, installed, monkeypatch):
    """TH-7: after `install()`, the publisher's channel to an emulator is ours."""
    publishes(place)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", place.target)
    client = pubsub_v1.PublisherClient()
    channel = innermost(client.transport.grpc_channel)
    assert client.publish("projects/p/topics/t", b"a").result(20) == "0"
    place.restart()
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


def exporter(place, monkeypatch, make=None, **how):
    """Return an OTLP exporter; `make` replaces the constructor that the exporter's module imported from grpc."""
    from opentelemetry.exporter.otlp.proto.grpc import exporter as module
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    if make is not None:
        monkeypatch.setattr(module, "insecure_channel", make)
    place.methods[EXPORT] = lambda request: b""
    return OTLPSpanExporter(endpoint=f"http://{place.target}", **how)


def test_otlp_is_back_within_one_gap(place, monkeypatch, spans):
    """TH-1: spans exported during an outage arrive with the first or second attempt to connect after it."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    options = (WAIT_FOR_READY, *QUICK)
    exports = exporter(place, monkeypatch, grpc_backoff.insecure_channel, channel_options=options, timeout=60)
    assert exports.export(spans) is SpanExportResult.SUCCESS
    place.kill()
    heard = []
    exports._channel.add_listener(heard.append)
    exported = in_thread(lambda: exports.export(spans))
    until(lambda: exports._channel.connection_status().attempt >= 3)
    place.start()
    heard.clear()
    assert exported() is SpanExportResult.SUCCESS
    # One attempt may have been refused before the server listened, and its failure reported only now.
    assert len([event for event in heard if isinstance(event, AttemptFailed)]) <= 1
    exports.shutdown()


@KINDS
@pytest.mark.parametrize("options", [(), (WAIT_FOR_READY,)], ids=["as-it-is", "wait-for-ready"])
def test_otlp_shutdown(place, monkeypatch, spans, kind, options):
    """CB-10: while the server is down, `shutdown` returns long before the timeout and makes a running export fail."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    exports = exporter(place, monkeypatch, kind.insecure_channel, channel_options=options, timeout=60)
    assert exports.export(spans) is SpanExportResult.SUCCESS
    place.kill()
    exported = in_thread(lambda: exports.export(spans))
    time.sleep(0.5)
    began = time.monotonic()
    exports.shutdown()
    assert time.monotonic() - began < 10  # usually much less than a second
    assert exported() is SpanExportResult.FAILURE


def test_otlp_installed(place):
    """TH-7: an exporter whose module is imported after `install()` uses one of our channels."""
    place.methods[EXPORT] = lambda request: b""
    done = subprocess.run(
        [sys.executable, "-c", OTLP, place.target], stdout=subprocess.PIPE, text=True, timeout=60, check=True
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


def test_qdrant(place, installed):
    """TH-7: after `install()`, qdrant-client's threaded client uses our channel behind its interceptor."""
    from qdrant_client import QdrantClient
    from qdrant_client import grpc as protocol

    found = protocol.CollectionExistsResponse(result=protocol.CollectionExists(exists=True))
    place.methods[EXISTS] = lambda request: found.SerializeToString()
    client = QdrantClient(
        host="localhost", grpc_port=place.port, prefer_grpc=True, pool_size=1, check_compatibility=False
    )
    assert client.collection_exists("c")
    channel = innermost(client._client._grpc_channel_pool[0])
    place.restart()
    grpc.channel_ready_future(channel).result(20)
    assert client.collection_exists("c")
    assert channel.connection_status().made == 2
    client.close()


@pytest.mark.parametrize("way", ["installed", "handed over"])
def test_pymilvus(place, way, request):
    """TH-1, TH-7: pymilvus' handler waits for our channel to be ready, and its calls work after an outage."""
    from pymilvus.client.grpc_handler import GrpcHandler
    from pymilvus.grpc_gen import common_pb2, milvus_pb2

    connected = milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=7)
    shown = milvus_pb2.ShowCollectionsResponse(status=common_pb2.Status(), collection_names=["c"])
    place.methods[f"{MILVUS}Connect"] = lambda request: connected.SerializeToString()
    place.methods[f"{MILVUS}ShowCollections"] = lambda request: shown.SerializeToString()
    how = {}
    if way == "installed":
        request.getfixturevalue("installed")
    else:
        how = {"channel": grpc_backoff.insecure_channel(place.target, QUICK)}
    handler = GrpcHandler(uri=f"http://{place.target}", user="u", password="p", **how)
    handler._wait_for_channel_ready(20)
    channel = handler._channel
    assert type(channel) is Channel
    assert handler.list_collections() == ["c"]
    assert place.metadata[f"{MILVUS}ShowCollections"]["identifier"] == "7"
    place.restart()
    assert handler.list_collections(timeout=20) == ["c"]
    assert channel.connection_status().made == 2
    handler.close()
