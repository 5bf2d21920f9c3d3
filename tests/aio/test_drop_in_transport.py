"""CH-8: what grpcio does below the calls goes on working: TLS, credentials, kinds of targets, balancing, keepalive."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref

import grpc
import grpc.aio
import pytest
import trustme

from tests.aio.service import Scripted
from tests.echo import Echo, EchoStub, Message, serving

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


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls(kind, mutual):
    """CH-8: TLS, and mutual TLS."""
    async with (
        serving(credentials=server_credentials(mutual=mutual)) as port,
        kind.secure_channel(f"127.0.0.1:{port}", client_credentials(mutual=mutual)) as channel,
    ):
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


async def test_tls_that_fails(kind):
    """CH-8: a certificate of nobody's, or none where one is asked for, is UNAVAILABLE."""
    async with serving(credentials=server_credentials(mutual=True)) as port:
        for credentials in (client_credentials(), grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())):
            async with kind.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await EchoStub(channel).Unary(Message())
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


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


async def test_unix_socket(kind, tmp_path):
    """CH-8: Unix sockets, absolute ones too."""
    path = tmp_path / "socket"
    async with serving(address=f"unix:{path}"):
        for target in (f"unix:{path}", f"unix://{path}"):
            async with kind.insecure_channel(target) as channel:
                assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


@pytest.mark.parametrize("target", ["ipv4:127.0.0.1:{}", "dns:localhost:{}", "dns:///127.0.0.1:{}", "localhost:{}"])
async def test_targets(kind, target):
    """CH-8: the usual kinds of names."""
    async with serving() as port, kind.insecure_channel(target.format(port)) as channel:
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


async def test_ipv6(kind):
    """CH-8: ipv6 too, where the machine has it."""
    try:
        async with serving(address="[::1]:0") as port, kind.insecure_channel(f"ipv6:[::1]:{port}") as channel:
            assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"
    except RuntimeError:
        pytest.skip("no IPv6 here")


@pytest.mark.parametrize(
    "option",
    [
        ("grpc.lb_policy_name", "round_robin"),
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ],
)
async def test_round_robin(kind, option):
    """CH-8: calls spread over two servers."""
    first, second = Echo(), Echo()
    async with (
        serving(first) as one,
        serving(second) as two,
        kind.insecure_channel(f"ipv4:127.0.0.1:{one},127.0.0.1:{two}", options=[option]) as channel,
    ):
        stub = EchoStub(channel)
        while not (first.executed and second.executed):
            await stub.Unary(Message(text="a"))


async def test_options_of_grpc(kind, phase, server):
    """CH-9: options that are grpcio's own are taken."""
    options = [
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.primary_user_agent", "mine"),
        ("grpc.enable_retries", 0),
    ]
    async with kind.insecure_channel(server.target, options=options) as channel:
        if phase == "ready":
            await channel.channel_ready()
        await EchoStub(channel).Unary(Message())
    assert dict(server.metadata[0])["user-agent"].startswith("mine")
