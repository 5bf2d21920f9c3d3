"""The connector on grpcio's C-core: what it makes of real peers."""

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
import weakref
from dataclasses import replace

import grpc
import psutil
import pytest
import trustme
from grpc._cython import cygrpc

from grpc_backoff import ConnectError, Stage, aio
from grpc_backoff.aio import core
from grpc_backoff.aio.clock import LoopClock
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
from tests.peers import peer, says, server_tls

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
    """CB-3, CB-6: the same checks that anybody's connector must pass. Takes about five seconds of real time."""
    await check_connector(connector)


async def test_stage_refused():
    """CH-11: nobody listens."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        found = await failure(front.target)
    assert found.stage is Stage.TCP
    assert "refused" in found.reason


async def test_stage_no_such_socket(tmp_path):
    """CH-11: a Unix socket that is not there, whatever words are in its path."""
    assert (await failure(f"unix:{tmp_path}/ssl-certificate.sock")).stage is Stage.TCP


async def test_stage_resolve():
    """CH-11: a name that does not exist."""
    assert (await failure("no-such-host.invalid:50051", limit=20.0)).stage is Stage.RESOLVE


@pytest.mark.parametrize("behaviour", [accept_close, http1_answer])
async def test_stage_settings(behaviour):
    """CH-11: accepted, and then no SETTINGS."""
    async with FlakyFront(behaviour) as front:
        assert (await failure(front.target)).stage is Stage.SETTINGS


async def test_stage_tls_to_plaintext():
    """CH-11: a TLS client at a plaintext port."""
    async with serving() as port:
        found = await failure(f"127.0.0.1:{port}", credentials=grpc.ssl_channel_credentials())
    assert found.stage is Stage.TLS


async def test_stage_tls_unknown_authority():
    """CH-11: a certificate that nobody vouches for."""
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
    """CH-11: a certificate of the right authority, for another host."""
    authority = trustme.CA()
    cert = authority.issue_cert("other.example")
    key = cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()
    trust = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with serving(credentials=grpc.ssl_server_credentials([key])) as port:
        found = await failure(f"127.0.0.1:{port}", credentials=trust)
    assert found.stage is Stage.TLS, found


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
async def test_stage_alpn(alpn):
    """CH-11: TLS with a server that does not agree to HTTP/2."""
    authority = trustme.CA()
    trust = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with peer(says("hold"), tls=server_tls(authority.issue_cert("127.0.0.1"), alpn=alpn)) as target:
        found = await failure(target, credentials=trust)
    assert found.stage is Stage.TLS, found


@pytest.mark.parametrize("steps", [(), (b"HTTP/1.1 400 Bad Request\r\n\r\n", 0.1), (b"x", 0.1)])
async def test_stage_of_a_unix_socket_with_tls_in_its_path(tmp_path, steps):
    """CH-11: the words of an address are not those of a failure."""
    async with peer(says(*steps), path=f"{tmp_path}/tls-handshake.sock") as target:
        assert (await failure(target)).stage is Stage.SETTINGS


async def test_stage_too_many_open_files():
    """CH-11: there is no socket to be had; and what the core says of it comes without its memory."""
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
    """CH-11: a plaintext client at a TLS port fails, with a reason."""
    cert = trustme.CA().issue_cert("127.0.0.1")
    key = cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()
    async with serving(credentials=grpc.ssl_server_credentials([key])) as port:
        assert (await failure(f"127.0.0.1:{port}")).reason


async def test_the_reason_survives_a_retry_policy():
    """CH-4: a service config that retries and waits for everything does not hide why connecting failed."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        found = await failure(front.target, options=[("grpc.service_config", RETRIES)])
    assert "refused" in found.reason


async def test_slow_failures_are_not_repeated_by_the_core():
    """CB-1: a peer that hangs up after longer than the core's own backoff sees one connection. Waits 0.8 s."""

    async def hang_up_late(visit):
        await asyncio.sleep(0.4)

    async with FlakyFront(hang_up_late) as front:
        await failure(front.target)
        await asyncio.sleep(0.4)
        assert len(front.visits) == 1


async def test_short_lives_make_it_look_for_longer():
    """CB-7: after a connection that broke at once, the next is looked at for so long that calls do not enter it.

    In real time. A busy loop may see the first connection only when it is over and take its life for shorter than it
    was; then the second is the one that is measured, and the third looked at.
    """
    async with FlakyFront(settings_then_close(0.02)) as front:
        dialler = connector(front.target)
        alive = []
        for _ in range(4):
            connection = await dialler.connect(5.0)
            alive.append(connection.alive())
            await asyncio.wait_for(connection.lost(), 5)
        assert not all(alive[1:])
        await dialler.close(None)


@contextlib.contextmanager
def front_in_a_thread(behaviour):
    """Serve on a loop of its own, which does not wait for the test's."""
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
    """CB-3, CB-7: the core is IDLE again when the loop looks: that is a lost connection, and no attempt without end."""
    with front_in_a_thread(settings_then_close()) as target:
        dialler = connector(target)
        connecting = asyncio.ensure_future(dialler.connect(5.0))
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)  # between the dial and the first look
        connection = await asyncio.wait_for(connecting, 5)
        assert not connection.alive()
        await asyncio.wait_for(connection.lost(), 5)
        await dialler.close(None)


@pytest.mark.parametrize("proven", [True, False])
async def test_a_proven_target_is_not_looked_at(proven):
    """CB-7: calls may enter a connection to a proven target at once; its end is heard of as ever."""
    async with FlakyFront(settings_only) as front:
        dialler = connector(front.target)
        connection = await dialler.connect(5.0, proven=proven)
        assert (connection.core._watched is grpc.ChannelConnectivity.READY) is not proven
        lost = asyncio.ensure_future(connection.lost())
        await asyncio.sleep(0.1)
        assert connection.core._watched is grpc.ChannelConnectivity.READY
        await front.break_all()
        assert not (await asyncio.wait_for(lost, 5)).graceful
        await dialler.close(None)


async def test_a_short_life_outweighs_the_proof():
    """CB-7: behind a connection that broke young the next is looked at, whatever was before."""
    async with FlakyFront(settings_only) as front:
        dialler = connector(front.target)
        dialler.note_life(0.05)
        connection = await dialler.connect(5.0, proven=True)
        assert connection.core._watched is grpc.ChannelConnectivity.READY
        await dialler.close(None)


async def test_retired_connections_end_with_their_calls():
    """CH-6: a retired connection closes when its last call has ended, not before."""
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


async def test_idle_connections_end_by_the_cores_own_rule():
    """CB-14: the core ends what nobody uses; that is a graceful end, also where we heard late of the last call's.

    Takes two seconds and a half of real time.
    """
    async with FlakyFront(settings_only) as front:
        loop = asyncio.get_running_loop()
        policy = replace(CONNECT, idle_timeout=2.0)
        options = [("grpc.client_idle_timeout_ms", 2000)]
        dialler = core.CoreConnector(front.target, None, options, None, policy, LoopClock(loop), loop)
        connection = await dialler.connect(5.0)
        call = connection.channel.unary_unary("/echo.v1.Echo/Unary")(b"", timeout=0.1)
        connection.began(call, connection)
        await asyncio.sleep(0.05)
        time.sleep(0.12)  # noqa: ASYNC251 - the loop is late
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
    """CH-1: a plugin of grpcio's own, as its OpenTelemetry one is, sees the program's calls and no others."""
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
    finally:
        observability.set_plugin(None)


class Plugin:
    """What grpcio asks for a tracer of each call, and does not get."""

    observability_enabled = stats_enabled = tracing_enabled = True

    def __init__(self):
        self.methods = []

    def create_client_call_tracer(self, method, target):
        """Note for which call it would be; grpcio logs that it got none."""
        self.methods.append(method)

    def save_registered_method(self, method):
        """Take no note of it."""

    def create_server_call_tracer_factory(self, *, xds=False):
        """Have none."""


@pytest.mark.parametrize("interceptors", [[], [PassOn()]])
async def test_channelz_shows_channels_that_connect(interceptors):
    """CH-1: neither the channel that keeps grpcio's poller alive nor the front of the interceptors is to be seen."""
    async with serving() as port:
        target = f"127.0.0.1:{port}"
        async with aio.insecure_channel(target, interceptors=interceptors) as channel:
            await EchoStub(channel).Unary(Message())
            shown = json.loads(cygrpc.channelz_get_top_channels(0)).get("channel", [])
            seen = [each["data"]["target"].rpartition("/")[2] for each in shown]
            assert seen.count(target) == 1
            assert "127.0.0.1:0" not in seen


async def test_what_grpcio_starts_is_kept_while_somebody_needs_it():
    """CB-10: channels made one behind the other keep grpcio's threads; with the last of them nothing stays."""
    first, second = core.Polling.shared(), core.Polling.shared()
    assert first is second
    kept = weakref.ref(first)
    del first, second
    assert kept() is None
    assert core.Polling.shared() is not None
