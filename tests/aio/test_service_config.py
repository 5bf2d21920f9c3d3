"""CH-8: what a service config says to calls that wait, beside a plain channel."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from grpc_backoff import Failure, Stage, aio
from grpc_backoff.config import service_config
from grpc_backoff.config.service_config import read_json
from grpc_backoff.testing.front import FlakyFront
from tests.echo import EchoStub, Message, serving


def options(*method_configs, **more):
    return [("grpc.service_config", json.dumps({"methodConfig": list(method_configs), **more}))]


async def test_read_once(monkeypatch):
    """CH-8, RT-10: a channel reads its service config once, for the calls that wait and for those that are retried."""
    read = []
    monkeypatch.setattr(service_config, "read_json", lambda text: read.append(text) or read_json(text))
    chosen = options({"name": [{}], "waitForReady": True})
    async with aio.insecure_channel("127.0.0.1:1", options=chosen) as channel:
        EchoStub(channel)

    assert read == [chosen[0][1]]


@pytest.mark.parametrize("name", [{}, {"service": "echo.v1.Echo"}, {"service": "echo.v1.Echo", "method": "Unary"}])
async def test_wait_for_ready(kind, name):
    """CH-8: with `waitForReady` a call that does not say otherwise waits for the server."""
    chosen = [*options({"name": [name], "waitForReady": True}), ("grpc.initial_reconnect_backoff_ms", 100)]
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        await front.refuse()
        async with kind.insecure_channel(front.target, options=chosen) as channel:
            stub = EchoStub(channel)
            waits = stub.Unary(Message(text="waited"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Unary(Message(), wait_for_ready=False)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert not waits.done()
            await front.listen()
            async with asyncio.timeout(30):
                assert (await waits).text == "waited"


@pytest.mark.parametrize("method", ["Unary", "Down"])
async def test_a_name_that_does_not_resolve(kind, method):
    """CH-3: a config holds once the name was resolved; until then a call waits at its caller's wish alone."""
    chosen = options({"name": [{}], "waitForReady": True})
    async with kind.insecure_channel("dns:///no-such-host.invalid:50051", options=chosen) as channel:
        call = getattr(EchoStub(channel), method)
        for _ in range(2):  # before the first failure, and after it
            assert await asyncio.wait_for(call(Message(), timeout=30).code(), 20) is grpc.StatusCode.UNAVAILABLE
        waiting = call(Message(), wait_for_ready=True, timeout=0.3)
        assert await asyncio.wait_for(waiting.code(), 20) is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_name_that_no_longer_resolves():
    """CH-3: a name that was resolved once leaves the config in force, whatever the resolver says later."""
    chosen = options({"name": [{}], "waitForReady": True})
    tcp, resolve = Failure(Stage.TCP, "refused"), Failure(Stage.RESOLVE, "no such name")
    async with FlakyFront() as front:
        await front.refuse()
        async with aio.insecure_channel(front.target, options=chosen) as channel:
            call = EchoStub(channel).Unary(Message())
            failures, manager = [resolve, tcp], channel._pending.manager
            channel._pending.manager = SimpleNamespace(status=lambda: SimpleNamespace(last_error=failures.pop()))
            channel._pending.fail()
            channel._pending.fail()
            assert not call.done()
            channel._pending.manager = manager
            call.cancel()


async def test_other_methods_do_not_wait(kind):
    """CH-8: the entry of one method says nothing to another."""
    chosen = options({"name": [{"service": "echo.v1.Echo", "method": "Down"}], "waitForReady": True})
    async with FlakyFront() as front:
        await front.refuse()
        async with kind.insecure_channel(front.target, options=chosen) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await EchoStub(channel).Unary(Message())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("own", [None, 60, 0.2])
async def test_timeout_bounds_the_wait(kind, own):
    """CH-8: the smaller of the config's timeout and the call's own covers the wait; the own alone is shown."""
    chosen = options({"name": [{}], "waitForReady": True, "timeout": "0.3s"})
    async with FlakyFront() as front:
        await front.refuse()
        async with kind.insecure_channel(front.target, options=chosen) as channel:
            call = EchoStub(channel).Unary(Message(), timeout=own)
            assert (call.time_remaining() is None) == (own is None)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async with asyncio.timeout(20):
                    await call
    # How long it took is not asked: grpc's core counts a config's timeout from up to two seconds before the call.
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_timeout_bounds_the_call(channel_with_timeout):
    """CH-8: what is left after the wait bounds the call."""
    call = EchoStub(channel_with_timeout).Unary(Message(text="hang"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(20):
            await call
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert call.time_remaining() is None


@pytest.fixture
async def channel_with_timeout(kind, phase, server):
    async with kind.insecure_channel(server.target, options=options({"name": [{}], "timeout": "0.5s"})) as channel:
        if phase == "ready":
            await channel.channel_ready()
        yield channel
