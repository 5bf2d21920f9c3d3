"""The connector on grpcio's C-core, against real peers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import resource
import time
from dataclasses import replace

import grpc
import psutil
import pytest
from grpc._cython import cygrpc

from grpc_backoff import ConnectError, Stage, aio
from grpc_backoff.aio.loops import LoopClock
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.decide.connections.dial_machine import READY
from grpc_backoff.decide.connections.dial_times import BEGINS_WITHIN
from grpc_backoff.engine.spares import SPARES
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing.front import (
    FlakyFront,
    settings_only,
    settings_then_close,
    silent,
)
from tests.aio.dialling import Dialler
from tests.both_apis.interceptors import for_asyncio, go_on
from tests.connectors import check_connector
from tests.echo import EchoStub, Message, serving
from tests.peers import hanging_up
from tests.sync.service import front

NO_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""A SETTINGS frame that changes nothing."""


def connector(target, *, options=(), credentials=None):
    loop = asyncio.get_running_loop()
    return Dialler(target, credentials, options, CONNECT, clock=LoopClock(loop), loop=loop)


async def test_it_passes_the_checks_of_any_connector():
    """CB-3, CB-6: the connector passes the checks for all connectors. Takes about five seconds of real time."""
    await check_connector(connector)


async def test_an_outcome_counts_until_it_is_taken():
    """CB-3: an attempt whose outcome has come is decided in every turn of the loop, until the outcome is told."""
    async with serving() as port:
        dialler = connector(f"127.0.0.1:{port}")
        dialling = asyncio.create_task(dialler.connect(20))
        await asyncio.sleep(0)
        time.sleep(BEGINS_WITHIN + 0.1)  # noqa: ASYNC251 - makes the loop late, so that the attempt is no longer young
        seen = []
        while not dialling.done():
            seen.append(dialler.attempt.decided())
            await asyncio.sleep(0)
        await dialler.close(None)
    assert seen[-1]
    assert seen == sorted(seen), "once decided, an attempt stays so"


async def test_stage_too_many_open_files():
    """CH-11: running out of file descriptors fails at the stage `tcp`, and the reason contains no trailing garbage."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as port:
        dialler = connector(f"127.0.0.1:{port}")
        with contextlib.ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 20, hard))
            with contextlib.suppress(OSError):
                while True:
                    stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            with pytest.raises(ConnectError) as caught:
                await asyncio.wait_for(dialler.connect(5.0), 10)
    assert caught.value.failure.stage is Stage.TCP
    assert caught.value.failure.reason.endswith("Too many open files")


async def test_a_connection_that_comes_and_goes_while_the_loop_is_late():
    """CB-3, CB-15: a connection that is made and lost while the loop is blocked is reported as a lost connection."""
    with front(settings_then_close()) as peer:
        dialler = connector(peer.target)
        connecting = asyncio.ensure_future(dialler.connect(5.0))
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)  # blocks the loop between the dial and the first poll
        connection = await asyncio.wait_for(connecting, 5)
        assert not connection.alive()
        await asyncio.wait_for(connection.lost(), 5)
        await dialler.close(None)


async def test_a_connection_that_comes_and_goes_before_the_first_look():
    """CB-15: a connection that is lost within a millisecond is noticed at once, and not only when a wait for it ends.

    Takes real time: on a busy machine, some of the attempts may be late, but not most of them.
    """
    took = []
    async with hanging_up() as target:
        for _ in range(5):
            dialler = connector(target)
            began = time.monotonic()
            connection = await asyncio.wait_for(dialler.connect(5.0), 5)
            took.append(time.monotonic() - began)
            await asyncio.wait_for(connection.lost(), 5)
            await dialler.close(None)
    assert sorted(took)[2] < BEGINS_WITHIN


async def test_retired_connections_end_with_their_calls():
    """CH-6: the connector closes a retired connection when its last call has ended, not earlier."""
    async with serving() as port:
        dialler = connector(f"127.0.0.1:{port}")
        connection = await dialler.connect(5.0)
        call = connection.channel.stream_stream("/echo.v1.Echo/Both")()
        connection.began(call, connection)
        await call.write(b"")
        connection.retire()
        await asyncio.sleep(0.05)
        assert await call.read() == b""
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        for _ in range(100):
            if connection.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN:
                break
            await asyncio.sleep(0.05)
        assert connection.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        await dialler.close(None)


async def test_a_redial_takes_no_new_call():
    """CB-16: once a connection was seen to end, no call enters, although the core has redialled and is READY again."""
    async with FlakyFront(settings_only) as front, asyncio.timeout(20):
        dialler = connector(front.target)
        connection = await dialler.connect(5.0)
        connection.running += 1  # as if a call ran, so that the channel is not closed
        assert connection.alive()
        await front.break_all()
        await connection.lost()
        connection.check(True)
        while connection.shown() != READY:
            await asyncio.sleep(0.005)
        assert not connection.alive()
        connection.running -= 1
        await dialler.close(None)


async def test_idle_connections_end_by_the_cores_own_rule():
    """CB-14: the core closing an idle connection counts as graceful, even if the loop sees the last call end late.

    Takes two and a half seconds of real time.
    """
    async with FlakyFront(settings_only) as front:
        loop = asyncio.get_running_loop()
        policy = replace(CONNECT, idle_timeout=2.0)
        options = [("grpc.client_idle_timeout_ms", 2000)]
        dialler = Dialler(front.target, None, options, policy, clock=LoopClock(loop), loop=loop)
        connection = await dialler.connect(5.0)
        call = connection.channel.unary_unary("/echo.v1.Echo/Unary")(b"", timeout=0.1)
        connection.began(call, connection)
        await asyncio.sleep(0.05)
        time.sleep(0.12)  # noqa: ASYNC251 - blocks the loop
        loss = await asyncio.wait_for(connection.lost(), 10)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert loss.graceful
        assert "idle" in loss.reason
        await dialler.close(None)


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70),
    reason="grpcio 1.63 asks its plugin in another way, without a list of methods that are not counted",
)
async def test_the_question_for_the_reason_is_not_counted():
    """CH-1: an observability plugin of grpcio sees the application's calls, but none that this library itself makes."""
    plugin = Plugin()
    observability = importlib.import_module("grpc._observability")
    observability.set_plugin(plugin)
    try:
        async with FlakyFront(silent) as front, aio.insecure_channel(front.target) as channel:
            await front.refuse()
            with pytest.raises(grpc.aio.AioRpcError, match="refused"):
                await EchoStub(channel).Unary(Message())
            assert plugin.methods == [b"/echo.v1.Echo/Unary"]  # RT-12: once, though it had no connection
            plugin.methods.clear()
            plugin.targets.clear()
        async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await EchoStub(channel).Unary(Message())
            assert plugin.methods == [b"/echo.v1.Echo/Unary"]
            assert plugin.targets == {f"127.0.0.1:{port}".encode()}
    finally:
        observability.set_plugin(None)


class Plugin:
    """A grpcio observability plugin that provides no tracers."""

    observability_enabled = stats_enabled = tracing_enabled = True

    def __init__(self):
        self.methods, self.targets = [], set()

    def create_client_call_tracer(self, method, target):
        """Record the method and the target. Return no tracer; grpcio logs that."""
        self.methods.append(method)
        self.targets.add(target)

    def save_registered_method(self, method):
        """Ignore the method."""

    def create_server_call_tracer_factory(self, *, xds=False):
        """Return no factory."""


@pytest.mark.parametrize("interceptors", [[], for_asyncio(go_on)])
async def test_channelz_shows_channels_that_connect(interceptors):
    """CH-1: channelz shows only channels that connect, not the internal one that keeps grpcio's poller alive."""

    def seen():
        shown = json.loads(cygrpc.channelz_get_top_channels(0)).get("channel", [])
        return [each["data"]["target"].rpartition("/")[2] for each in shown]

    async with serving() as port:
        target = f"127.0.0.1:{port}"
        while target in seen():  # the core may not have closed the channel of another test yet that used the same port
            await asyncio.sleep(0.01)
        async with aio.insecure_channel(target, interceptors=interceptors) as channel:
            await EchoStub(channel).Unary(Message())
            assert seen().count(target) == 1
            assert "127.0.0.1:0" not in seen()


async def first_bytes(kind, options):
    """Return the first bytes that a client sends to a server at an IPv4 address, and that address."""
    sent = asyncio.get_running_loop().create_future()

    async def listen(visit):
        visit.writer.write(NO_SETTINGS)
        data = b""
        while b"/echo.v1.Echo/Unary" not in data:
            data += await visit.reader.read(65536)
        sent.set_result(data)

    async with FlakyFront(listen) as front, kind.insecure_channel(front.target, options) as channel:
        call = EchoStub(channel).Unary(Message(), timeout=20)
        data = await asyncio.wait_for(sent, 20)
        call.cancel()
        return data, front.target


@pytest.mark.parametrize("kind", [grpc.aio, aio])
async def test_the_authority_of_an_address(kind):
    """CH-8: for an IPv4 address, the authority of calls is the target unless an option sets another, as in grpcio."""
    data, target = await first_bytes(kind, [])
    assert target.encode() in data
    data, target = await first_bytes(kind, [("grpc.default_authority", "orders.test")])
    assert b"orders.test" in data
    assert target.encode() not in data


@pytest.mark.parametrize("kind", [grpc.aio, aio])
@pytest.mark.parametrize("spared", ["", "127.0.0.0/8", "127.0.0.1"])
async def test_the_proxy_of_an_address(kind, spared, monkeypatch):
    """CH-8: the environment's proxy is used for an IPv4 address unless `no_proxy` or a channel option excludes it."""
    for name in ("grpc_proxy", "https_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    asked = asyncio.get_running_loop().create_future()

    async def gateway(visit):
        line = await visit.reader.readuntil(b"\r\n")
        if not asked.done():
            asked.set_result(line)
        visit.writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")

    async with serving() as port, FlakyFront(gateway) as proxy:
        target = f"127.0.0.1:{port}"
        monkeypatch.setenv("http_proxy", f"http://{proxy.target}")
        monkeypatch.setenv("no_proxy", spared)
        if spared:
            async with kind.insecure_channel(target) as channel:
                assert (await EchoStub(channel).Unary(Message(text="x"), timeout=20)).text == "x"
        else:
            async with kind.insecure_channel(target) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await EchoStub(channel).Unary(Message(text="x"), timeout=20)
            assert (await asyncio.wait_for(asked, 20)).startswith(f"CONNECT {target} HTTP/1.".encode())
        async with kind.insecure_channel(target, [("grpc.enable_http_proxy", 0)]) as channel:
            assert (await EchoStub(channel).Unary(Message(text="x"), timeout=20)).text == "x"


@pytest.mark.parametrize("late", [False, True])
async def test_a_spare_channel(monkeypatch, late):
    """SH-8: a channel is kept, unless it has been closed before the machine hears that it may be kept.

    So it is if a listener closes it within a step, in a task that starts eagerly.
    """
    monkeypatch.setattr(dial_times, "SPARE_FOR", 20.0)
    async with serving() as port:
        first, second = (connector(f"127.0.0.1:{port}") for _ in range(2))
        first.core.familiar = second.core.familiar = True
        connection = await first.connect(20)
        channel, connection.served = connection.channel, True
        connection._stepping = late
        await connection.close(None)
        connection._stepping = False
        connection._drain()
        later = await second.connect(20)
        assert (later.channel is channel) is not late
        assert not SPARES.avoids(connection._spare_key.arguments), "the server has not ended it"
        await EchoStub(later.channel).Unary(Message(text="a"), timeout=20)
        await second.close(None)
        SPARES.close()
