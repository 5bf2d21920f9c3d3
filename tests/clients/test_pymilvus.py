"""The asyncio handler of pymilvus, which creates its own channel and appends interceptors to the channel's list."""

from __future__ import annotations

import asyncio
import base64

import pytest
from pymilvus.client.async_grpc_handler import AsyncGrpcHandler
from pymilvus.exceptions import MilvusException
from pymilvus.grpc_gen import common_pb2, milvus_pb2

from grpc_backoff import aio
from tests.clients.conftest import QUICK

CONNECT = "/milvus.proto.milvus.MilvusService/Connect"
SHOW = "/milvus.proto.milvus.MilvusService/ShowCollections"


def serve(server):
    connected = milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=7)
    shown = milvus_pb2.ShowCollectionsResponse(status=common_pb2.Status(), collection_names=["c"])
    server.methods[CONNECT] = lambda request: connected.SerializeToString()
    server.methods[SHOW] = lambda request: shown.SerializeToString()


async def uses(handler, server):
    """Use the handler, restart the server, and use the handler again."""
    await handler.ensure_channel_ready()
    assert await handler.list_collections() == ["c"]
    assert server.metadata[SHOW]["identifier"] == "7"
    await asyncio.to_thread(server.kill)
    with pytest.raises(MilvusException):
        await handler.list_collections(retry_times=1, timeout=0.5)
    await asyncio.sleep(0.3)
    await asyncio.to_thread(server.start)
    async with asyncio.timeout(20):
        await handler._async_channel.channel_ready()
    assert await handler.list_collections() == ["c"]
    assert server.metadata[SHOW]["identifier"] == "7"
    assert handler._async_channel.connection_status().made == 2


async def test_handed_over(server, channel):
    """CH-1: the handler accepts our channel, and its interceptors add their headers to every call."""
    serve(server)
    handler = AsyncGrpcHandler(uri=f"http://{server.target}", channel=channel, user="u", password="p")
    await uses(handler, server)
    assert base64.b64decode(server.metadata[SHOW]["authorization"]) == b"u:p"
    assert len(channel._unary_unary_interceptors) == 2
    await handler.close()


async def test_installed(server, installed):
    """CH-1: after `install()`, the handler's first channel and the one on which it reconnects are both ours."""
    serve(server)
    handler = AsyncGrpcHandler(uri=f"http://{server.target}", token="t")
    assert type(handler._async_channel) is aio.Channel
    await uses(handler, server)
    before = handler._async_channel
    await handler.reconnect()
    assert type(handler._async_channel) is aio.Channel
    assert handler._async_channel is not before
    assert await handler.list_collections() == ["c"]
    assert base64.b64decode(server.metadata[SHOW]["authorization"]) == b"t"
    await handler.close()


async def test_its_own_options(server, installed):
    """CH-9: the handler's own options reach grpcio, and its `grpc_options` may include options of ours."""
    serve(server)
    handler = AsyncGrpcHandler(uri=f"http://{server.target}", grpc_options={"grpc_backoff.jitter": 0.5, **dict(QUICK)})
    assert handler._async_channel.policy.backoff.jitter.fraction == 0.5
    await handler.ensure_channel_ready()
    await handler.close()
