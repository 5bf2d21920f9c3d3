"""This library's channel against real servers and proxies that are killed, drained, aged, frozen and reloaded.

With GRPC_BACKOFF_REQUIRE_PEERS=1, everything happens to every server, and one that is missing is a failure; `make
interop-short` runs what is not slow, and `make interop-full` all. Otherwise those that need no compiler take part, most
of them in what is not slow. `make test` leaves this module out, because the servers need the machine for themselves.
Each case takes three to fifteen seconds of real time; `--junitxml` keeps its figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

import grpc
import grpc.aio
import pytest

from grpc_backoff import aio
from grpc_judge.runner.build import peers_required
from tests.interop_suite.servers.checks import (
    TERMS,
    Seen,
    check_always,
    check_attempts,
    check_calls,
    check_connections,
    check_none_failed,
    check_none_lost,
    check_noticed,
    check_recovered,
    check_stayed,
    check_waited,
    dropped,
    ended_by_deadline,
    reset_by_proxy,
)
from tests.interop_suite.servers.processes import AGED, GRPCIO, SERVERS, running
from tests.interop_suite.servers.traffic import PATIENCE, Traffic

pytestmark = pytest.mark.timeout(180)  # two of the slowest starts and the calls in between

BEFORE, AFTER = 1.0, 1.0  # seconds of calls before anything happens, and after they are answered again
RECOVERY = TERMS.cap + 3.0  # seconds to wait for an answer
AGE = 1.0  # seconds: servers vary it by up to a tenth (gRFC A9)
GRACE = 0.5  # seconds
RELOADS = 2
FROZEN = 6.0  # seconds
KEEPALIVE = 1.0  # seconds that a connection may be silent before a PING, and seconds until its answer

BACKOFF = [
    ("grpc.initial_reconnect_backoff_ms", round(1000 * TERMS.initial)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * TERMS.cap)),
    ("grpc.min_reconnect_backoff_ms", round(1000 * TERMS.min_connect_timeout)),
]
OWN_SUBCHANNELS = ("grpc.use_local_subchannel_pool", 1)  # plain grpcio's connections are not ours
PINGS = [
    ("grpc.keepalive_time_ms", round(1000 * KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", round(1000 * KEEPALIVE)),
    ("grpc.keepalive_permit_without_calls", 1),
]
PLAIN = [server for server in SERVERS if not server.proxy]
PROXIES = [server for server in SERVERS if server.proxy]
SHORT = [server for server in PLAIN if not server.full]  # CI's short run has these
INSTALLED = [server for server in PROXIES if not server.build]  # and these
CUTTING = [server for server in PLAIN if server.name == "tonic server"]  # with a grace, it ends calls without GOAWAY


def against(servers, quick=()):
    """Parametrise a test with these servers. It is slow with those that are not `quick`."""
    wanted = [each for each in servers if peers_required() or (not each.build and (each in quick or each is GRPCIO))]
    cases = [pytest.param(each, id=each.name, marks=[] if each in quick else [pytest.mark.slow]) for each in wanted]
    return pytest.mark.parametrize("server", cases)


@pytest.fixture
def see(tmp_path, record_property):
    """Return a function that calls a server while something happens to it, and returns what was seen of the channel.

    `happen` is awaited with the running server and the one behind it, and returns when the server was gone and back.
    """

    async def see(server, happen, *, deadline=3.0, patience=PATIENCE, options=(), settings=None, **aged):
        if server.missing and not peers_required():
            pytest.skip(f"{server.missing} is missing")
        async with contextlib.AsyncExitStack() as stack:
            behind = await stack.enter_async_context(running(GRPCIO, tmp_path)) if server.proxy else None
            upstream = behind.port if behind else None
            front = await stack.enter_async_context(
                running(server, tmp_path, upstream=upstream, settings=settings, **aged)
            )
            seen = await call_while(server, front, behind, happen, deadline, patience, [*BACKOFF, *options])
            record_property("versions", [await each.version() for each in (front, behind) if each])
        record_property("calls", len(seen.calls))
        record_property("failed", len(seen.failed))
        record_property("lost", f"{len(seen.lost)}, {len(seen.lost_by_plain)} with plain grpcio")
        record_property("recovered", seen.recovered)
        record_property("connections", seen.connections)
        record_property("attempts", len(seen.starts))
        return seen

    return see


async def call_while(server, front, behind, happen, deadline, patience, options):
    events, began = [], now()
    target = f"127.0.0.1:{front.port}"
    async with (
        aio.insecure_channel(target, options, listeners=[events.append]) as channel,
        grpc.aio.insecure_channel(target, [*options, OWN_SUBCHANNELS]) as plain,
    ):
        async with (
            Traffic(channel, server.method, deadline, patience) as traffic,
            Traffic(plain, server.method, deadline, patience) as beside,
        ):
            await traffic.answered_since(began, RECOVERY)
            await asyncio.sleep(BEFORE)
            struck = now()
            gone, back = await happen(front, behind)
            await traffic.answered_since(back, RECOVERY)
            await asyncio.sleep(AFTER)
            await traffic.answered_since(now(), RECOVERY)
            state = await ready(channel)  # an aging connection may just have ended
        return Seen(
            calls=traffic.calls,
            events=tuple(events),
            began=began,
            struck=struck,
            gone=gone,
            back=back,
            over=now(),
            state=state,
            plain=beside.calls,
        )


async def ready(channel):
    """Return the channel's state, once it is READY or has not been for half a second of calls."""
    over = now() + 0.5
    while (state := channel.get_state()) is not grpc.ChannelConnectivity.READY and now() < over:
        await asyncio.sleep(0.005)
    return state


def now():
    return asyncio.get_running_loop().time()


async def away(seconds, come_back):
    gone = now()
    await asyncio.sleep(seconds)
    await come_back()
    return gone, now()


async def frozen(front, _):
    await front.freeze()
    return await away(FROZEN, front.thaw)


@against(SERVERS, quick=SHORT)
async def test_killed(server, see):
    """CH-2, CH-3, CH-7, CB-4, CB-5, CB-7: a server is killed with SIGKILL and started again on its port."""

    async def happen(front, _):
        await front.kill()
        return await away(1.5, front.start)

    seen = await see(server, happen)
    check_always(seen)
    check_waited(seen)
    check_recovered(seen)


@against([server for server in SERVERS if server.drain], quick=SHORT)
async def test_drained(server, see):
    """CH-2, CH-3, CH-6, CH-7, CB-4, CB-5, CB-7: a server shuts down gracefully and is started again on its port."""

    async def happen(front, _):
        await front.drain()
        return await away(1.0, front.start)

    seen = await see(server, happen)
    if server.graceful:
        check_always(seen)
        check_none_lost(seen)
    else:
        check_always(seen, excused=dropped)
    check_waited(seen)
    check_recovered(seen)


@against([server for server in SERVERS if server.ages])
async def test_aged(server, see):
    """CH-2, CH-3, CH-6, CB-5, CB-7: a server ends each connection at an age, but lets running calls continue."""
    seen = await see(server, growing_old, max_age_ms=round(1000 * AGE), settings=AGED.get(server.name))
    check_always(seen, connections=most_connections(seen, AGE))
    check_none_failed(seen)


@against(CUTTING)
async def test_aged_with_grace(server, see):
    """CH-3, CB-5, CB-7: a server cuts each connection at an age and a grace, with the calls of any client."""
    seen = await see(server, growing_old, max_age_ms=round(1000 * AGE), grace_ms=round(1000 * GRACE))
    check_calls(seen, dropped)
    check_attempts(seen)
    check_connections(seen, most_connections(seen, AGE + GRACE))


async def growing_old(*_):
    await asyncio.sleep(5.0)
    return now(), now()


def most_connections(seen, age):
    return 1 + math.floor((seen.over - seen.began) / (0.9 * age - TERMS.tolerance))


@against(SERVERS)
async def test_frozen(server, see):
    """CH-2, CH-3, CH-7, CB-4, CB-5, CB-7: a server is stopped with SIGSTOP and resumed; the channel sets keepalive."""
    seen = await see(server, frozen, deadline=1.0, patience=1.0, options=PINGS)
    check_always(seen, excused=ended_by_deadline)
    check_recovered(seen)


@against(SERVERS)
async def test_frozen_pinged(server, see):
    """CH-2, CH-3, CH-7, CH-8, CB-4, CB-5, CB-7: a server is frozen; the channel also sets the timeout of PINGs."""
    options = [*PINGS, ("grpc.http2.ping_timeout_ms", round(1000 * KEEPALIVE))]
    seen = await see(server, frozen, deadline=1.0, patience=1.0, options=options)
    check_always(seen, excused=ended_by_deadline)
    check_recovered(seen)
    check_noticed(seen, within=2 * KEEPALIVE)


@against([server for server in PROXIES if server.reload], quick=INSTALLED)
async def test_reloaded(server, see):
    """CH-2, CH-3, CH-6, CB-5, CB-7: a proxy reloads its configuration twice."""

    async def happen(front, _):
        for _ in range(RELOADS):
            front.reload()
            await asyncio.sleep(2.0)
        return now(), now()

    seen = await see(server, happen)
    # Apache accepts connections while it reloads, and serves none for a second. So any client loses calls, and the
    # connection after one that answered none is a trial, which one more connection replaces (CB-16).
    idle = server.name == "apache2"
    check_always(seen, connections=1 + (3 if idle else 1) * RELOADS)
    if not idle:
        check_none_failed(seen)


@against(PROXIES, quick=INSTALLED)
async def test_upstream_down(server, see):
    """CH-2, CH-3, CH-7, CB-4, CB-5, CB-7: the server behind a proxy is killed and started again; the proxy runs on."""

    async def happen(_, behind):
        await behind.kill()
        return await away(4.5, behind.start)

    seen = await see(server, happen, deadline=8.0)
    check_always(seen, connections=1, excused=reset_by_proxy)
    if server.name != "nghttpx":  # it has a backoff of its own, of 1.6^n seconds
        check_recovered(seen)
    check_stayed(seen)
