"""google-cloud-pubsub's asyncio transports, on channels of ours that they are given or create after `install()`."""

from __future__ import annotations

import asyncio
import json

import pytest
from google.api_core import exceptions
from google.api_core.retry import AsyncRetry, if_exception_type
from google.auth.credentials import AnonymousCredentials
from google.oauth2.credentials import Credentials
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from grpc_backoff import aio
from tests.certificates import client_credentials, server_credentials
from tests.clients.conftest import QUICK
from tests.clients.server import Server

PUBLISH = "/google.pubsub.v1.Publisher/Publish"
PULL = "/google.pubsub.v1.Subscriber/StreamingPull"
TOPIC = "projects/p/topics/t"
MESSAGES = [types.PubsubMessage(data=b"hello")]
SOON = AsyncRetry(if_exception_type(exceptions.ServiceUnavailable), initial=0.05, maximum=0.1, timeout=20)
WAIT_FOR_READY = json.dumps({"methodConfig": [{"name": [{}], "waitForReady": True}]})


def publishes(server):
    server.methods[PUBLISH] = lambda request: types.PublishResponse.serialize(
        {"message_ids": [str(len(types.PublishRequest.deserialize(request).messages))]}
    )


async def publish(client, **how):
    return list((await client.publish(topic=TOPIC, messages=MESSAGES, **how)).message_ids)


async def published_after_a_start(server, client):
    """Publish while the server is down; return the result once it is up."""
    publishing = asyncio.create_task(publish(client, retry=None))
    await asyncio.sleep(0.3)
    assert not publishing.done()
    await asyncio.to_thread(server.start)
    return await publishing


async def test_publisher(server, channel):
    """CH-1: the publisher accepts our channel, adds its interceptor, and works after the server restarts."""
    publishes(server)
    client = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
    (logging,) = channel._unary_unary_interceptors
    assert type(logging).__name__ == "_LoggingClientAIOInterceptor"
    assert await publish(client) == ["1"]
    await asyncio.to_thread(server.restart)
    assert await publish(client, retry=SOON) == ["1"]
    assert channel.connection_status().made == 2
    assert "x-goog-request-params" in server.metadata[PUBLISH]


async def test_its_interceptor_runs(server, channel, caplog):
    """CH-1: the interceptor that the transport has added to our channel's list logs each call."""
    publishes(server)
    client = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
    caplog.set_level("DEBUG", logger="google.pubsub_v1")
    await publish(client)
    assert [record.message for record in caplog.records if "Publish" in record.message]


async def test_wait_for_ready_by_service_config(server):
    """CH-3: `waitForReady` in a service config makes GAPIC's methods wait, although these take no such argument."""
    publishes(server)
    await asyncio.to_thread(server.kill)
    options = [*QUICK, ("grpc.service_config", WAIT_FOR_READY)]
    async with aio.insecure_channel(server.target, options=options) as channel:
        client = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
        assert await published_after_a_start(server, client) == ["1"]


async def test_streaming_pull(server, channel):
    """CH-1: a streaming pull fails when the server stops, and a new one works once the server is back."""

    def pulls(requests, context):
        for _ in requests:
            yield types.StreamingPullResponse.serialize({"received_messages": [{"ack_id": "a"}]})

    server.methods[PULL] = pulls
    client = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
    ended = asyncio.Event()

    async def requests():
        yield types.StreamingPullRequest(subscription="projects/p/subscriptions/s", stream_ack_deadline_seconds=10)
        await ended.wait()

    first = await client.streaming_pull(requests=requests())
    assert (await anext(aiter(first))).received_messages[0].ack_id == "a"
    await asyncio.to_thread(server.restart)
    with pytest.raises(exceptions.ServiceUnavailable):
        async for _ in first:
            pass
    async with asyncio.timeout(20):
        await channel.channel_ready()
    second = await client.streaming_pull(requests=requests())
    assert (await anext(aiter(second))).received_messages[0].ack_id == "a"
    ended.set()


@pytest.fixture
def secure_server():
    """A running server with TLS."""
    server = Server(server_credentials())
    server.start()
    yield server
    server.kill()


async def test_installed(secure_server, installed):
    """CH-8: after `install()`, google-api-core creates our channels, with its credentials; they survive a restart."""
    publishes(secure_server)
    transport = PublisherGrpcAsyncIOTransport(
        host=secure_server.target,
        credentials=Credentials("a-token"),
        ssl_channel_credentials=client_credentials(),
    )
    assert type(transport.grpc_channel) is aio.Channel
    async with PublisherAsyncClient(transport=transport) as client:
        assert await publish(client) == ["1"]
        await asyncio.to_thread(secure_server.restart)
        assert await publish(client, retry=SOON) == ["1"]
        assert secure_server.metadata[PUBLISH]["authorization"] == "Bearer a-token"
        assert transport.grpc_channel.connection_status().made == 2


async def test_a_channel_with_options(secure_server, installed):
    """CH-9: after `install()`, the transport's `create_channel` returns ours, with options such as a service config."""
    publishes(secure_server)
    await asyncio.to_thread(secure_server.kill)
    channel = PublisherGrpcAsyncIOTransport.create_channel(
        secure_server.target,
        credentials=AnonymousCredentials(),
        ssl_credentials=client_credentials(),
        options=[("grpc.service_config", WAIT_FOR_READY)],
    )
    assert type(channel) is aio.Channel
    async with PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel)) as client:
        assert await published_after_a_start(secure_server, client) == ["1"]
