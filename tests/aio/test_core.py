"""The connector on grpcio's C-core, against real peers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import queue
import resource
import threading
import time
from dataclasses import replace

import grpc
import psutil
import pytest
import trustme
from grpc._cython import cygrpc

from grpc_backoff import ConnectError, Stage, aio
from grpc_backoff.aio import core
from grpc_backoff.aio.clock import LoopClock
from grpc_backoff.core.limits import BEGINS_WITHIN
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.testing.checks import check_connector
from grpc_backoff.testing.front import (
    FlakyFront,
    accept_close,
    http1_answer,
    settings_only,
    settings_then_close,
    silent,
)
from tests.echo import EchoStub, Message, serving
from tests.peers import hanging_up, peer, says, server_tls

RETRIES = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "waitForReady": True,
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "5s",
                    "maxBackoff": "5s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)


NO_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""A SETTINGS frame that changes nothing."""


class PassOn(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, details, request):
        return await continuation(details, request)


def connector(target, *, options=(), credentials=None):
    loop = asyncio.get_running_loop()
    return core.CoreConnector(target, credentials, options, None, CONNECT, LoopClock(loop), loop)


async def failure(target, *, limit=5.0, **how):
    dialler = connector(target, **how)
    with pytest.raises(ConnectError) as caught:
        await asyncio.wait_for(dialler.connect(limit), 10)
    await dialler.close(None)
    return caught.value.failure


async def test_it_passes_the_checks_of_any_connector():
    """CB-3, CB-6: the connector passes the checks for all connectors. Takes about five seconds of real time."""
    await check_connector(connector)


async def test_an_outcome_counts_until_it_is_taken():
    """CB-3: an attempt whose outcome has come is decided in every turn of the loop, until `connect` returns."""
    async with serving() as port:
        dialler = connector(f"127.0.0.1:{port}")
        dialling = asyncio.create_task(dialler.connect(20))
        await asyncio.sleep(0)
        time.sleep(BEGINS_WITHIN + 0.1)  # noqa: ASYNC251 - makes the loop late, so that the attempt is no longer young
        seen = []
        while not dialling.done():
            seen.append(dialler.decided())
            await asyncio.sleep(0)
        await dialler.close(None)
    assert seen[-1]
    assert seen == sorted(seen), "once decided, an attempt stays so"


async def test_stage_refused():
    """CH-11: a refused connection fails at the stage `tcp`."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        found = await failure(front.target)
    assert found.stage is Stage.TCP
    assert "refused" in found.reason


async def test_stage_no_such_socket(tmp_path):
    """CH-11: a Unix socket that does not exist fails at the stage `tcp`, even if its path mentions certificates."""
    assert (await failure(f"unix:{tmp_path}/ssl-certificate.sock")).stage is Stage.TCP


async def test_stage_resolve():
    """CH-11: a host name that does not exist fails at the stage `resolve`."""
    assert (await failure("no-such-host.invalid:50051", limit=20.0)).stage is Stage.RESOLVE


@pytest.mark.parametrize("behaviour", [accept_close, http1_answer])
async def test_stage_settings(behaviour):
    """CH-11: a peer that accepts the connection but sends no SETTINGS fails at the stage `settings`."""
    async with FlakyFront(behaviour) as front:
        assert (await failure(front.target)).stage is Stage.SETTINGS


async def test_stage_tls_to_plaintext():
    """CH-11: a TLS client on a plaintext port fails at the stage `tls`."""
    async with serving() as port:
        found = await failure(f"127.0.0.1:{port}", credentials=grpc.ssl_channel_credentials())
    assert found.stage is Stage.TLS


async def test_stage_tls_unknown_authority():
    """CH-11: a certificate from an unknown authority fails at the stage `tls`; a trusted authority's is accepted."""
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    key = cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()
    async with serving(credentials=grpc.ssl_server_credentials([key])) as port:
        wrong = grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())
        assert (await failure(f"127.0.0.1:{port}", credentials=wrong)).stage is Stage.TLS
        right = connector(f"127.0.0.1:{port}", credentials=grpc.ssl_channel_credentials(authority.cert_pem.bytes()))
        assert (await right.connect(5.0)).alive()
        await right.close(None)


async def test_stage_hostname():
    """CH-11: a certificate from a trusted authority for another host fails at the stage `tls`."""
    authority = trustme.CA()
    cert = authority.issue_cert("other.example")
    key = cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()
    trust = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with serving(credentials=grpc.ssl_server_credentials([key])) as port:
        found = await failure(f"127.0.0.1:{port}", credentials=trust)
    assert found.stage is Stage.TLS, found


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
async def test_stage_alpn(alpn):
    """CH-11: a TLS server that does not negotiate HTTP/2 fails at the stage `tls`."""
    authority = trustme.CA()
    trust = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with peer(says("hold"), tls=server_tls(authority.issue_cert("127.0.0.1"), alpn=alpn)) as target:
        found = await failure(target, credentials=trust)
    assert found.stage is Stage.TLS, found


@pytest.mark.parametrize("steps", [(), (b"HTTP/1.1 400 Bad Request\r\n\r\n", 0.1), (b"x", 0.1)])
async def test_stage_of_a_unix_socket_with_tls_in_its_path(tmp_path, steps):
    """CH-11: words in the target's own address do not change the stage that is reported for a failure."""
    async with peer(says(*steps), path=f"{tmp_path}/tls-handshake.sock") as target:
        assert (await failure(target)).stage is Stage.SETTINGS


async def test_stage_too_many_open_files():
    """CH-11: running out of file descriptors fails at the stage `tcp`, and the reason contains no trailing garbage."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as port:
        with contextlib.ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 20, hard))
            with contextlib.suppress(OSError):
                while True:
                    stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            found = await failure(f"127.0.0.1:{port}")
    assert found.stage is Stage.TCP
    assert found.reason.endswith("Too many open files")


async def test_plaintext_to_tls():
    """CH-11: a plaintext client on a TLS port fails, and the failure gives a reason."""
    cert = trustme.CA().issue_cert("127.0.0.1")
    key = cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()
    async with serving(credentials=grpc.ssl_server_credentials([key])) as port:
        assert (await failure(f"127.0.0.1:{port}")).reason


async def test_the_reason_survives_a_retry_policy():
    """CH-4: the failure's reason is correct even if a service config makes all calls wait and retry."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        found = await failure(front.target, options=[("grpc.service_config", RETRIES)])
    assert "refused" in found.reason


async def test_slow_failures_are_not_repeated_by_the_core():
    """CB-1: a peer that hangs up only after the core's own backoff is still dialled just once. Waits 0.8 s."""

    async def hang_up_late(visit):
        await asyncio.sleep(0.4)

    async with FlakyFront(hang_up_late) as front:
        await failure(front.target)
        await asyncio.sleep(0.4)
        assert len(front.visits) == 1


@contextlib.contextmanager
def front_in_a_thread(behaviour):
    """Run a front on an event loop in a separate thread, so it does not depend on the test's loop."""
    targets, over = queue.SimpleQueue(), threading.Event()

    async def serve():
        async with FlakyFront(behaviour) as front:
            targets.put(front.target)
            while not over.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield targets.get(timeout=10)
    finally:
        over.set()
        thread.join()


async def test_a_connection_that_comes_and_goes_while_the_loop_is_late():
    """CB-3, CB-15: a connection that is made and lost while the loop is blocked is reported as a lost connection."""
    with front_in_a_thread(settings_then_close()) as target:
        dialler = connector(target)
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
        call = connection.core.channel.stream_stream("/echo.v1.Echo/Both")()
        connection.core.began(call, connection)
        await call.write(b"")
        connection.retire()
        await asyncio.sleep(0.05)
        assert await call.read() == b""
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        for _ in range(100):
            if connection.core.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN:
                break
            await asyncio.sleep(0.05)
        assert connection.core.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        await dialler.close(None)


async def test_idle_connections_end_by_the_cores_own_rule():
    """CB-14: the core closing an idle connection counts as graceful, even if the loop sees the last call end late.

    Takes two and a half seconds of real time.
    """
    async with FlakyFront(settings_only) as front:
        loop = asyncio.get_running_loop()
        policy = replace(CONNECT, idle_timeout=2.0)
        options = [("grpc.client_idle_timeout_ms", 2000)]
        dialler = core.CoreConnector(front.target, None, options, None, policy, LoopClock(loop), loop)
        connection = await dialler.connect(5.0)
        call = connection.core.channel.unary_unary("/echo.v1.Echo/Unary")(b"", timeout=0.1)
        connection.core.began(call, connection)
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
            assert plugin.methods == []
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


@pytest.mark.parametrize("interceptors", [[], [PassOn()]])
async def test_channelz_shows_channels_that_connect(interceptors):
    """CH-1: channelz shows only channels that connect, not the internal one that keeps grpcio's poller alive."""
    async with serving() as port:
        target = f"127.0.0.1:{port}"
        async with aio.insecure_channel(target, interceptors=interceptors) as channel:
            await EchoStub(channel).Unary(Message())
            shown = json.loads(cygrpc.channelz_get_top_channels(0)).get("channel", [])
            seen = [each["data"]["target"].rpartition("/")[2] for each in shown]
            assert seen.count(target) == 1
            assert "127.0.0.1:0" not in seen


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
