"""HTTP proxies: grpcio's core tunnels through them, and each attempt connects to the proxy again."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff import AttemptFailed, aio
from grpc_backoff.testing.front import FlakyFront, healthy
from tests.echo import EchoStub, Message, serving


async def connect_proxy(visit):
    """Answer CONNECT, then relay everything, as a forward proxy does."""
    head = await visit.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"CONNECT orders.test:50051 ")
    visit.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await healthy(visit)


async def bad_gateway(visit):
    """Answer CONNECT like a proxy that cannot reach the server."""
    await visit.reader.readuntil(b"\r\n\r\n")
    visit.writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
    await visit.writer.drain()


@pytest.fixture(autouse=True)
def no_proxy_from_outside(monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


async def test_http_proxy():
    """CH-8: a proxy's failure fails the attempt, as any other error does; a working proxy is transparent."""
    failed = asyncio.Event()

    def heard(event):
        if isinstance(event, AttemptFailed):
            failed.set()

    async with serving() as port, FlakyFront(bad_gateway, upstream=("127.0.0.1", port)) as proxy:
        options = [("grpc.http_proxy", f"http://{proxy.target}"), ("grpc.initial_reconnect_backoff_ms", 100)]
        async with aio.insecure_channel("orders.test:50051", options, listeners=[heard]) as channel:
            call = EchoStub(channel).Unary(Message(text="x"), wait_for_ready=True, timeout=30)
            await asyncio.wait_for(failed.wait(), 20)
            proxy.behaviour = connect_proxy
            assert (await call).text == "x"
