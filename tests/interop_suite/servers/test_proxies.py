"""Calls through real proxies that end connections and streams, beside plain grpcio's, on both APIs.

Nothing is wrong with the servers behind these proxies, so plain grpcio loses no call, and neither may this library's
channel. INITIAL_BACKOFF is longer than the calls' deadlines: a channel that backs off from a proxy loses calls, however
busy the machine is. The modes of running are those of `test_servers.py`. `--junitxml` keeps the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import aio
from grpc_judge.runner.build import peers_required
from tests.both_apis.api import AsyncioApi, ThreadedApi, backoff_ms
from tests.proxies import PROXIES, Process, running, unused_port
from tests.proxies.calling import Load, call_with_tasks, call_with_threads
from tests.proxies.process import UNTIL_INPUT_ENDS

pytestmark = pytest.mark.timeout(180)

DEADLINE = 3.0
OPTIONS = [*backoff_ms(10_000, 20_000), ("grpc.use_local_subchannel_pool", 1)]
QUIET = 1.0  # seconds of silence after which a proxy ends a connection or a stream
IN_CI = ("nginx as it is", "envoy, 20 requests")  # of those that limit requests
MODULES = {
    "asyncio": {"plain": grpc.aio, "ours": aio},
    "threads": {"plain": grpc, "ours": grpc_backoff},
}

# Envoy says that it drains with each response, and does so for as long as these tests last.
DRAINING = ["--drain-strategy", "immediate", "--drain-time-s", "600"]


def envoy(**options):
    """Return settings of Envoy's connections."""
    return {"manager": {"common_http_protocol_options": options}}


LIMITED = {
    "nginx as it is": ("nginx", {}, Load(64, DEADLINE, 15, 3000)),
    "nginx, 100 requests": ("nginx", {"server": "keepalive_requests 100;"}, Load(1, DEADLINE, 15, 450)),
    "nginx, 20 requests": ("nginx", {"server": "keepalive_requests 20;"}, Load(8, DEADLINE, 15, 400)),
    "nginx, 1 request": ("nginx", {"server": "keepalive_timeout 0;"}, Load(1, DEADLINE, 15, 30)),
    "envoy, 20 requests": ("envoy", envoy(max_requests_per_connection=20), Load(4, DEADLINE, 15, 400)),
}
IDLE = {
    "envoy": envoy(idle_timeout=f"{QUIET}s"),
    "nginx": {"server": f"keepalive_timeout {QUIET:g}s;"},
    "haproxy": {"frontend": f"timeout client {QUIET:g}s"},
    "nghttpx": {"lines": f"frontend-http2-read-timeout={QUIET:g}s"},
    "apache2": {"lines": f"KeepAliveTimeout {QUIET:g}"},
    "caddy": {"servers": f"timeouts {{\nidle {QUIET:g}s\n}}"},
}
CUTTING = {
    "envoy": {"manager": {"stream_idle_timeout": f"{QUIET}s"}},
    "nginx": {"location": f"grpc_read_timeout {QUIET:g}s;"},
    "haproxy": {"backend": f"timeout server {QUIET:g}s"},
    "nghttpx": {"lines": f"stream-read-timeout={QUIET:g}s"},
}


def with_tasks(kind):
    """Return the asyncio API."""
    return AsyncioApi(kind, asyncio.new_event_loop)


def against(cases, quick=()):
    """Parametrise a test with these cases, whose names begin with a proxy's. It is slow with those not `quick`."""
    wanted = [each for each in cases if peers_required() or not PROXIES[each.partition(",")[0].split()[0]].build]
    marked = [pytest.param(each, marks=[] if each in quick else [pytest.mark.slow]) for each in wanted]
    return pytest.mark.parametrize("case", marked)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """Run an echo server in a process of its own; return its port."""
    port = unused_port()
    command = [*UNTIL_INPUT_ENDS, sys.executable, "-m", "tests.echo", str(port)]
    server = Process("echo server", command, port, tmp_path_factory.mktemp("echo"))
    try:
        server.start()
        yield port
    finally:
        server.kill()


@pytest.fixture(params=MODULES)
def both(request, record_property):
    """Return a function that makes calls with plain grpcio and with ours; it returns how they ended for each.

    `front` is a context manager that runs the proxy, which each of them has for itself.
    """

    def both(name, upstream, settings, load, ready=lambda front: None):
        if PROXIES[name].missing and not peers_required():
            pytest.skip(f"{PROXIES[name].missing} is missing")
        seen = {}
        for kind, module in MODULES[request.param].items():
            with running(name, upstream, **settings) as front:
                ready(front)
                seen[kind] = made(module, front.target, load)
                connections = front.connections() if PROXIES[name].connections else None
            record_property(kind, f"{seen[kind].answered} answered, {connections} connections, {dict(seen[kind].lost)}")
        return seen["plain"], seen["ours"]

    return both


def made(module, target, load):
    """Make the calls on a channel of this module."""
    if module in (grpc, grpc_backoff):
        with contextlib.closing(module.insecure_channel(target, OPTIONS)) as channel:
            return call_with_threads(channel, load)

    async def make():
        async with module.insecure_channel(target, OPTIONS) as channel:
            return await call_with_tasks(channel, load)

    return asyncio.run(make())


def check_lost(plain, ours):
    """Check that ours lost no call more than plain grpcio did, and that calls were made."""
    assert plain.answered, f"plain grpcio's calls were not answered: {plain.lost}"
    assert ours.lost.total() <= plain.lost.total(), f"ours: {ours.lost}; plain grpcio: {plain.lost}"


@against(LIMITED, quick=IN_CI)
def test_requests_limited(case, upstream, both):
    """CB-7: a proxy that ends each connection gracefully after some requests is dialled at once; no call is lost."""
    name, settings, load = LIMITED[case]
    check_lost(*both(name, upstream, settings, load))


@against(["envoy"], quick=["envoy"])
@pytest.mark.parametrize("callers", [1, 4])
def test_draining(case, upstream, callers, both):
    """CB-7: a proxy that drains sends GOAWAY with each response, and is dialled for each; no call is lost."""
    load = Load(callers, DEADLINE, 15, 200)
    check_lost(*both(case, upstream, {"arguments": DRAINING}, load, lambda front: front.post("/healthcheck/fail")))


@against(IDLE)
def test_idle_closed(case, upstream, both):
    """CB-7: a proxy that ends connections without calls is dialled again for the next call; no call is lost."""
    load = Load(4, DEADLINE, 6.0, pause=1.5 * QUIET)  # a call just as the proxy hangs up could be lost by any client
    check_lost(*both(case, upstream, IDLE[case], load))


@against(CUTTING, quick=CUTTING)
@pytest.mark.parametrize("make", [with_tasks, ThreadedApi], ids=["asyncio", "threads"])
def test_stream_cut(case, upstream, make):
    """CH-1: a stream that is silent for too long is cut by the proxy as with plain grpcio; no other call is lost."""
    if PROXIES[case].missing and not peers_required():
        pytest.skip(f"{PROXIES[case].missing} is missing")
    ended = {}
    for kind in ("plain", "ours"):
        api = make(kind)
        with (
            contextlib.closing(api),
            running(case, upstream, **CUTTING[case]) as front,
            api.channel(front.target, OPTIONS) as channel,
        ):
            over = threading.Event()
            silent = channel.begin("Both", iter(["a", over]))
            assert silent.read() == "a"
            while not silent.done():
                assert channel.unary(timeout=DEADLINE) == "a"
            ended[kind] = silent.outcome().code
            over.set()
    assert ended["ours"] is ended["plain"] is not grpc.StatusCode.OK
