"""The other client libraries in docs/clients.md: after `install()`, the channel that each one creates is ours."""

from __future__ import annotations

import asyncio
import http.server
import threading
import warnings
from functools import partial

import pytest

from grpc_backoff import aio
from tests.clients.conftest import QUICK


def answers(server, method, response):
    """Make the server answer a method with this protobuf message."""
    server.methods[method] = lambda request: response.SerializeToString()


def streams(server, method, response):
    answers(server, method, response)
    server.methods[method].streams = True


async def used(server, call, channel):
    """Make a call, restart the server, and make another call on the restored connection."""
    await call()
    assert type(channel()) is aio.Channel
    await asyncio.to_thread(server.restart)
    async with asyncio.timeout(20):
        await channel().channel_ready()
    await call()
    assert channel().connection_status().made == 2


async def test_firestore(server, installed, monkeypatch):
    """CH-1: the AsyncClient of google-cloud-firestore works on our channel with an emulator."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.target)
    from google.cloud.firestore_v1 import AsyncClient
    from google.cloud.firestore_v1.types import BatchGetDocumentsResponse

    name = "projects/p/databases/(default)/documents/c/d"
    response = BatchGetDocumentsResponse(missing=name, read_time={"seconds": 1})
    streams(server, "/google.firestore.v1.Firestore/BatchGetDocuments", type(response).pb(response))
    client = AsyncClient(project="p")

    async def call():
        assert not (await client.document("c/d").get(retry=None)).exists

    await used(server, call, lambda: client._firestore_api.transport.grpc_channel)
    await client._firestore_api.transport.close()


async def test_qdrant(server, installed):
    """CH-1: qdrant-client's AsyncQdrantClient, which adds an interceptor, works on our channel."""
    from qdrant_client import AsyncQdrantClient
    from qdrant_client import grpc as protocol

    found = protocol.CollectionExistsResponse(result=protocol.CollectionExists(exists=True))
    answers(server, "/qdrant.Collections/CollectionExists", found)
    client = AsyncQdrantClient(
        host="localhost", grpc_port=server.port, prefer_grpc=True, pool_size=1, check_compatibility=False
    )

    async def call():
        assert await client.collection_exists("c")

    await used(server, call, lambda: client._client._grpc_channel_pool[0])
    await client.close()


async def test_aetcd(server, installed):
    """CH-1: aetcd, which imports the constructors' names from `grpc.aio`, works on our channel."""
    import aetcd
    from aetcd.rpc import RangeResponse

    answers(server, "/etcdserverpb.KV/Range", RangeResponse())
    async with aetcd.Client(host="localhost", port=server.port) as client:

        async def call():
            assert await client.get(b"k") is None

        await used(server, call, lambda: client.channel)


@pytest.mark.parametrize("way", ["installed", "handed over"])
async def test_pyzeebe(server, way, request):
    """CH-1: pyzeebe's own functions for creating channels return ours, and it accepts one of ours as an argument."""
    from pyzeebe import ZeebeClient, create_insecure_channel
    from pyzeebe.proto.gateway_pb2 import TopologyResponse

    answers(server, "/gateway_protocol.Gateway/Topology", TopologyResponse(clusterSize=1))
    if way == "installed":
        request.getfixturevalue("installed")
        channel = create_insecure_channel(grpc_address=server.target)
    else:
        channel = aio.insecure_channel(server.target, options=QUICK)
    client = ZeebeClient(channel)

    async def call():
        assert (await client.topology()).cluster_size == 1

    await used(server, call, lambda: channel)
    await channel.close()


async def test_xai(server, installed):
    """CH-1: xai-sdk's asyncio client, with interceptors and retries in a service config, works on our channel."""
    from xai_sdk import AsyncClient
    from xai_sdk.proto import models_pb2

    answers(server, "/xai_api.Models/ListLanguageModels", models_pb2.ListLanguageModelsResponse(models=[{"name": "m"}]))
    client = AsyncClient(api_key="k", api_host=server.target, use_insecure_channel=True)

    async def call():
        assert [model.name for model in await client.models.list_language_models()] == ["m"]

    await used(server, call, lambda: client._api_channel)
    await client.close()


class Web(http.server.BaseHTTPRequestHandler):
    """Answers every GET request as a healthy service would."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"version": "1.30.0"}')

    def log_message(self, *args):
        pass


@pytest.fixture
def web():
    """An HTTP server next to the gRPC server; yields its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
        yield server.server_port
        server.shutdown()


async def test_dapr(server, installed, web, monkeypatch):
    """CH-1: dapr's asyncio client, which checks the sidecar's health over HTTP, works on our channel."""
    from dapr.aio.clients import DaprClient
    from dapr.conf import settings
    from dapr.proto import api_v1

    monkeypatch.setattr(settings, "DAPR_HTTP_PORT", web)
    answers(server, "/dapr.proto.runtime.v1.Dapr/GetState", api_v1.GetStateResponse(data=b"v"))
    async with DaprClient(server.target) as client:

        async def call():
            assert (await client.get_state("s", "k")).data == b"v"

        await used(server, call, lambda: client._channel)


async def test_weaviate(server, installed, web):
    """CH-1: weaviate-client's asyncio client, which also uses HTTP, works on our channel."""
    with warnings.catch_warnings():  # importing it sets filters for the whole process
        import weaviate
        from weaviate.proto.v1 import search_get_pb2

    answers(server, "/weaviate.v1.Weaviate/Search", search_get_pb2.SearchReply())
    client = weaviate.use_async_with_custom(
        "127.0.0.1", web, False, "localhost", server.port, False, skip_init_checks=True
    )
    async with client:

        async def call():
            assert not (await client.collections.use("C").query.fetch_objects()).objects

        await used(server, call, lambda: client._connection._grpc_channel)
