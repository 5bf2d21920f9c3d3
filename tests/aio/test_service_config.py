"""CH-8: what a service config says to calls that wait; parsing alone, then beside a plain channel."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from grpc_backoff import Failure, Stage, aio
from grpc_backoff.aio.service_config import MethodConfig, read_service_config
from grpc_backoff.testing.front import FlakyFront
from tests.echo import EchoStub, Message, serving

UNARY = "/echo.v1.Echo/Unary"


def options(*method_configs, **more):
    return [("grpc.service_config", json.dumps({"methodConfig": list(method_configs), **more}))]


def test_nearest_wins():
    """CH-8: the method's own entry, else its service's, else the one for all; they are not merged."""
    config = read_service_config(
        options(
            {"name": [{}], "waitForReady": True},
            {"name": [{"service": "a.B"}], "timeout": "2s"},
            {"name": [{"service": "a.B", "method": "C"}, {"service": "d.E"}], "waitForReady": False, "timeout": "1.5s"},
        )
    )
    assert config.of("/a.B/C") == MethodConfig(wait_for_ready=False, timeout=1.5)
    assert config.of("/a.B/D") == MethodConfig(timeout=2.0)
    assert config.of("/d.E/X") == MethodConfig(wait_for_ready=False, timeout=1.5)
    assert config.of("/other/C") == MethodConfig(wait_for_ready=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0.0), ("1s", 1.0), ("0.000000001s", 1e-9), ("3.500s", 3.5), ("1", None), ("-1s", None), ("1.s", None)]
    + [(value, None) for value in (1, None, True, "", "s", ["1s"], "1e3s", " 1s")],
)
def test_durations(text, seconds):
    """CH-8: `timeout` is a protobuf Duration in JSON; all else is left to the core."""
    assert read_service_config(options({"name": [{}], "timeout": text})).of(UNARY).timeout == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(None, 5, "", "{", "[]", "null", b"\xff", '"x"', "[" * 100_000),
        '{"methodConfig": 5}',
        '{"methodConfig": [5, null, {}]}',
        '{"methodConfig": [{"name": 5}, {"name": [5, {"method": "M"}], "waitForReady": 1}]}',
    ],
    ids=range(12),
)
def test_rubbish(value):
    """CH-8: whatever cannot be read says nothing; the core rejects it when it connects."""
    assert read_service_config([("grpc.service_config", value)]).of(UNARY) == MethodConfig()


def test_first_of_several():
    """CH-9: where the key stands twice the first wins, as in grpcio."""
    twice = options({"name": [{}], "timeout": "1s"}) + options({"name": [{}], "timeout": "2s"})
    assert read_service_config(twice).of(UNARY).timeout == 1.0
    assert read_service_config([]).of(UNARY) == MethodConfig()


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
        patient = call(Message(), wait_for_ready=True, timeout=0.3)
        assert await asyncio.wait_for(patient.code(), 20) is grpc.StatusCode.DEADLINE_EXCEEDED


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
