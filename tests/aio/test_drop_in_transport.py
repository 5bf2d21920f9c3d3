"""CH-8: what grpcio does below the calls goes on working: TLS, credentials, kinds of targets, balancing, keepalive."""

from __future__ import annotations

import asyncio
import gc
import weakref

import grpc
import grpc.aio
import pytest
import trustme

from tests.aio.service import Scripted
from tests.echo import EchoStub, Message, serving

AUTHORITY = trustme.CA()


def server_credentials(*, mutual=False):
    issued = AUTHORITY.issue_cert("localhost", "127.0.0.1")
    pair = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
    return grpc.ssl_server_credentials([pair], AUTHORITY.cert_pem.bytes() if mutual else None, mutual)


def client_credentials(*, mutual=False):
    if not mutual:
        return grpc.ssl_channel_credentials(AUTHORITY.cert_pem.bytes())
    issued = AUTHORITY.issue_cert("client@example.org")
    return grpc.ssl_channel_credentials(
        AUTHORITY.cert_pem.bytes(), issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
    )


class Token(grpc.AuthMetadataPlugin):
    """Adds one header, or fails."""

    def __init__(self, token):
        self.token = token

    def __call__(self, context, callback):
        error = None if self.token else RuntimeError("no token")
        callback((("authorization", self.token or ""),), error)


async def freed(plugin):
    """Give the core time to let go of the credentials of a channel, before the server is stopped.

    It frees them in a thread of its own, which waits for the interpreter if they are written in Python; and grpcio
    stops a server with the interpreter locked. Where both happen at once, neither comes to an end. The oldest grpcio
    never frees them.
    """
    for _ in range(100):
        if plugin() is None:
            return
        gc.collect()
        await asyncio.sleep(0.01)


async def test_call_credentials(kind, phase):
    """CH-8: call credentials of the call, and of the channel; what fails in them is UNAVAILABLE."""
    service = Scripted()
    async with serving(service, credentials=server_credentials()) as port:
        token = Token("channel")
        of_channel, plugin = grpc.metadata_call_credentials(token), weakref.ref(token)
        both = grpc.composite_channel_credentials(client_credentials(), of_channel)
        async with kind.secure_channel(f"127.0.0.1:{port}", both) as channel:
            if phase == "ready":
                await channel.channel_ready()
            stub = EchoStub(channel)
            await stub.Unary(Message(), credentials=grpc.metadata_call_credentials(Token("call")))
            assert {("authorization", "channel"), ("authorization", "call")} <= set(service.metadata[0])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Unary(Message(), credentials=grpc.metadata_call_credentials(Token(None)))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        del token, of_channel, both, channel, stub, caught
        await freed(plugin)
