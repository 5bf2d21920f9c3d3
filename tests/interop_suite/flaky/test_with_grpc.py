"""The server as gRPC's own client sees it: working behaviours serve calls, and failing ones fail as intended."""

from __future__ import annotations

import asyncio
import contextlib
import re
import textwrap
import time
from collections import Counter

import grpc
import grpc.aio
import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from h2.errors import ErrorCodes

import grpc_judge.flaky
from grpc_judge import flaky
from grpc_judge.clients.grpclib_aio.__main__ import Bytes
from grpc_judge.timeline import Ending
from tests.echo import EchoStub, Message
from tests.interop_suite.flaky.clients import ROOT, TLS, WITHIN

FAST = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
SHORT = [("grpc.min_reconnect_backoff_ms", 1000)]  # the time limit of an attempt


@contextlib.asynccontextmanager
async def calling(script, *, tls=False, options=()):
    """Yield a server that plays this script, and a unary method on a channel to it."""
    async with flaky.FlakyServer(script, TLS if tls else None) as server:
        if tls:
            made = grpc.aio.secure_channel(server.target, grpc.ssl_channel_credentials(ROOT), [*options, *FAST])
        else:
            made = grpc.aio.insecure_channel(server.target, [*options, *FAST])
        async with made as channel:
            yield server, channel.unary_unary("/any.v1.Service/Method")


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(call, WITHIN)
    return caught.value


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("size", [0, 1, 16_000, 70_000, 4 * 1024 * 1024])
async def test_messages_of_all_sizes(tls, size):
    """IO-3: a unary call gets its own message back, even if that takes many frames and flow-control windows."""
    async with calling(flaky.Working(), tls=tls) as (_, method):
        payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert await method(payload, timeout=WITHIN) == payload


async def test_a_message_too_large():
    """IO-3: a message above 4 MiB fails with RESOURCE_EXHAUSTED, as on gRPC's servers; the connection stays usable."""
    async with calling(flaky.Working()) as (server, method):
        error = await failure(method(bytes(4 * 1024 * 1024 + 1)))
        assert (error.code(), error.details()) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "the request is larger than 4 MiB",
        )
        assert await method(b"small", timeout=WITHIN) == b"small"
        (visit,) = server.timeline().visits
        assert [request.outcome for request in visit.requests] == ["refused", "ok"]


async def test_a_compressed_message():
    """IO-3: the answer to a compressed request names the same compression."""
    async with calling(flaky.Working()) as (_, method):
        answer = await method(bytes(100_000), timeout=WITHIN, compression=grpc.Compression.Gzip)
        assert answer == bytes(100_000)


async def test_many_calls_at_once():
    """IO-3: 500 concurrent calls on one connection each get their own answer."""
    async with calling(flaky.Working(latency=0.05)) as (server, method):
        payloads = [b"%d" % number * number for number in range(500)]
        assert await asyncio.gather(*(method(payload, timeout=WITHIN) for payload in payloads)) == payloads
        (visit,) = server.timeline().visits
        assert Counter(request.outcome for request in visit.requests) == {"ok": 500}


async def test_calls_that_are_given_up():
    """IO-3: a call that exceeds its deadline counts as reset, and other calls continue. Waits 0.3 s."""
    async with calling(flaky.Working(latency=0.3)) as (server, method):
        kept = method(b"kept")
        assert (await failure(method(b"late", timeout=0.1))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await asyncio.wait_for(kept, WITHIN) == b"kept"
        (visit,) = server.timeline().visits
        assert sorted(request.outcome for request in visit.requests) == ["ok", "reset"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (flaky.ResetAfterHeaders(), grpc.StatusCode.INTERNAL),
        (flaky.ResetDuringData(code=ErrorCodes.CANCEL), grpc.StatusCode.CANCELLED),
        (flaky.ResetAfterData(code=ErrorCodes.REFUSED_STREAM), grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_calls_that_are_reset(script, code):
    """IO-3: a reset call fails with the status for its error code, and the connection stays open."""
    async with calling(script, options=[("grpc.enable_retries", 0)]) as (server, method):
        for _ in range(2):
            assert (await failure(method(b"hello"))).code() is code
        assert len(server.timeline().visits) == 1


@pytest.mark.parametrize(
    ("script", "tls", "why"),
    [
        (flaky.Refuse(), False, "refused"),
        (flaky.AcceptClose(), False, "Socket closed|closed|reset|Broken pipe"),
        (flaky.AcceptReset(), False, "reset|closed|Broken pipe"),
        (flaky.Http1Answer(), False, "HTTP|http"),
        (flaky.TlsGarbage(), True, "(?i)ssl|handshak|tls"),
        (flaky.Http1Answer(), True, "(?i)alpn|handshak|peer"),
        (flaky.Silent(), False, "SETTINGS"),
        (flaky.Silent(tls=False), True, "(?i)handshak|timeout|timed out|deadline"),
    ],
)
async def test_connections_that_fail(script, tls, why):
    """IO-3: failing connections never become READY, and grpc's error says why. Waits a second for those that hang."""
    async with calling(script, tls=tls, options=SHORT) as (_, method):
        error = await failure(method(b"hello", timeout=WITHIN))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert re.search(why, error.details()), error.details()


@pytest.mark.parametrize("script", [flaky.SlowSettings(0.3), flaky.Trickle(0.3), flaky.PingFlood(), flaky.MaxStreams()])
async def test_connections_that_are_odd_and_work(script):
    """IO-3: concurrent calls succeed on connections with slow SETTINGS, floods of PINGs or few streams. Waits 0.3 s."""
    async with calling(script) as (server, method):
        answers = await asyncio.gather(*(method(b"%d" % number, timeout=WITHIN) for number in range(20)))
        assert answers == [b"%d" % number for number in range(20)]
        (visit,) = server.timeline().visits
        assert {request.outcome for request in visit.requests} == {"ok"}


async def test_no_streams_at_all():
    """IO-3: with a limit of 0 streams, a client connects, but its calls exceed their deadlines. Waits 0.5 s."""
    async with calling(flaky.MaxStreams(0)) as (server, method):
        assert (await failure(method(b"hello", timeout=0.5))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        (visit,) = server.timeline().visits
        assert visit.settings_sent is not None
        assert visit.requests == ()


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
async def test_a_rolling_restart_loses_no_call(tls):
    """IO-3: 20 workers lose no call in 2 s, although their connection is replaced every 0.2 s."""
    script = flaky.RollingRestart(after=0.2, latency=0.01)
    done = Counter()
    async with calling(script, tls=tls) as (server, method):
        end = time.monotonic() + 2

        async def work(worker):
            while time.monotonic() < end:
                words = b"%d-%d" % (worker, done[worker])
                assert await method(words, timeout=WITHIN) == words
                done[worker] += 1

        await asyncio.gather(*(work(worker) for worker in range(20)))
        visits = server.timeline().visits
        assert len(visits) >= 4
        outcomes = Counter(request.outcome for visit in visits for request in visit.requests)
        assert outcomes.pop("ok") == sum(done.values())
        assert set(outcomes) <= {"refused"}, "which grpc makes again on the next connection"


async def test_an_outage_and_recovery():
    """IO-3: a client recovers from a realistic outage: a kill, refusals and three failed connections. Waits 1.2 s."""
    script = [
        flaky.Step(flaky.Working(), until=0.3),
        flaky.Step(flaky.Refuse(kill=True), until=0.8),
        *(flaky.Step(each, times=1) for each in (flaky.AcceptClose(), flaky.AcceptReset(), flaky.Silent())),
        flaky.Working(),
    ]
    async with calling(script, options=SHORT) as (server, method):
        assert await method(b"before", timeout=WITHIN) == b"before"
        async with asyncio.timeout(WITHIN):
            await server.wait_for(ended=1)
        async with asyncio.timeout(WITHIN):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):  # sent before the client noticed the loss
                    assert await method(b"after", wait_for_ready=True) == b"after"
                    break
        timeline = server.timeline()
        names = [visit.behaviour for visit in timeline.visits]
        assert names == ["working", "accept_close", "accept_reset", "silent", "working"]
        assert [visit.ending for visit in timeline.visits[:3]] == [Ending.CLOSED, Ending.CLOSED, Ending.RESET]
        (window,) = timeline.refusing
        assert 0.3 <= window.begin <= window.end <= timeline.visits[1].accepted


async def test_grpclib():
    """IO-3: grpclib, which shares no code with grpc, is served as well, even during a rolling restart."""
    async with flaky.FlakyServer([flaky.Step(flaky.RollingRestart(after=0.1), times=1), flaky.Working()]) as server:
        channel = Channel("127.0.0.1", server.port, codec=Bytes())
        method = UnaryUnaryMethod(channel, "/any.v1.Service/Method", bytes, bytes)
        assert await method(b"hello", timeout=WITHIN) == b"hello"
        async with asyncio.timeout(WITHIN):
            await server.wait_for(ended=1)
        large = bytes(300_000)
        assert await method(large, timeout=WITHIN) == large
        assert len(server.timeline().visits) == 2
        channel.close()


async def test_the_example():
    """IO-3: the example in the package's docstring works. Takes three seconds, because of grpc's own backoff."""
    shown = textwrap.dedent(grpc_judge.flaky.__doc__.partition("::\n\n")[2].partition("\n\n`grpc_judge")[0])
    names = vars(grpc_judge.flaky) | {"grpc": grpc, "EchoStub": EchoStub, "Message": Message, "print": print}
    exec("async def example():\n" + textwrap.indent(shown, "    ") + "\n    return reply, server.timeline()", names)
    reply, timeline = await asyncio.wait_for(names["example"](), WITHIN)
    assert reply.text == "hello"
    assert [visit.behaviour for visit in timeline.visits] == ["accept_close", "slow_settings"]
    (window,) = timeline.refusing
    assert 1.4 <= window.end <= timeline.visits[1].accepted
