"""Counts what becomes of calls on channels with several connections: `python -m benchmarks.pool WHAT`.

Each run prints a line of JSON for each subject: both APIs, of plain grpc and of this library.

`kills`     round_robin over three servers, of which one is killed and started again, under 200 calls a second
`rollout`   ten servers behind a name are replaced one by one, under load; needs root, for a hosts file of its own
`drains`    three servers of `grpc.aio` are drained and restarted in turn, under load of clients that watch the health,
            and of others
`burst`     300 calls at once to a server that allows 100 for each connection, beside three plain channels, in turns;
            the server has a process of its own
`replacements` replaces a connection 1,000 times, under calls and open streams: none may be lost or repeated
`returns`   20 names have no addresses for a minute, a tenth of a long outage: how soon the channels are back, and their
            attempts meanwhile, with and without `resolve_every`; needs root
`rotations` the server comes back with a certificate of another CA again and again, under calls that wait
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc

import grpc_backoff
from benchmarks.apart import Served, serving
from benchmarks.load import load, subjects, tell, together
from grpc_backoff.server import drain
from tests.both_apis.relay import relay
from tests.both_apis.test_pool import replace_under_load
from tests.both_apis.test_rotation import Issuer
from tests.echo import services
from tests.sync.service import Echo, dialled, place

_FAST = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
_ROUND_ROBIN = ("grpc.lb_policy_name", "round_robin")
_POLICY = "retry: 3, delay: 50ms, jitter: full, codes: UNAVAILABLE, CANCELLED"
"""For calls that a server cancels as it stops (grpc/grpc#41785)."""
_NAME, _HOSTS = "orders.test", "BENCHMARK_HOSTS"
_STREAMS = 100
_NAMES = 20
_HOLDS = "for two seconds"


class _Counting(Echo):
    """Counts calls, and remembers when the first and the last one came."""

    def __init__(self, takes: float = 0.0) -> None:
        super().__init__()
        self.count, self.first, self.last = 0, 0.0, 0.0
        self._takes = takes

    def Unary(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the name and arguments are grpc's
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.count += 1
        time.sleep(self._takes if request.text != _HOLDS else 2.0)
        return request


def _kills(times: int) -> None:
    for api in subjects():
        with contextlib.ExitStack() as stack:
            counted = [_Counting() for _ in range(3)]
            servers = [stack.enter_context(place(each)) for each in counted]
            target = "ipv4:" + ",".join(server.target for server in servers)
            channel = stack.enter_context(api.channel(target, [*_FAST, _ROUND_ROBIN]))
            channel.ready()
            time.sleep(0.5)
            uneven, failed, kills = 0, list[tuple[float, float, str]](), list[tuple[float, float]]()
            with load(channel, failed=failed) as codes:
                for _ in range(times):
                    began = time.monotonic()
                    servers[1].kill()
                    kills.append((began, time.monotonic()))
                    time.sleep(0.5)
                    servers[1].start()
                    time.sleep(1.2)  # one gap
                    before = [each.count for each in counted]
                    time.sleep(1.5)
                    got = [each.count - count for each, count in zip(counted, before, strict=True)]
                    uneven += max(got) > 1.1 * min(got)
        tell("pool", "kills", api, times=times, calls=codes, uneven_after_a_gap=uneven, failed=_beside(failed, kills))


def _beside(failed: list[tuple[float, float, str]], kills: list[tuple[float, float]]) -> list[str]:
    """Say of each failed call when it began and ended, in milliseconds after the last kill began to stop the server."""
    told = []
    for began, ended, details in failed:
        kill, killed = max(each for each in kills if each[0] <= ended)
        times = (f"{(at - kill) * 1000:.1f}" for at in (began, ended, killed))
        told.append("began {}, ended {}, server stopped {}: ".format(*times) + details)
    return told


def _rollout(servers: int) -> None:
    if _HOSTS not in os.environ:
        _with_hosts()
        return
    for options in ([_ROUND_ROBIN], []):
        for api in subjects():
            _roll(api, options, servers)


def _with_hosts() -> None:
    """Run this program again, with a hosts file that it may change, and a network without name servers and others."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = pathlib.Path(folder) / "hosts"
        hosts.write_text(pathlib.Path("/etc/hosts").read_text())
        servers = pathlib.Path(folder) / "resolv.conf"
        servers.write_text("nameserver 127.0.0.1\n")  # where there is none, so that other names fail at once
        mounts = f"mount --bind {hosts} /etc/hosts && mount --bind {servers} /etc/resolv.conf"
        run = f"{mounts} && ip link set lo up && exec {sys.executable} -m benchmarks.pool " + " ".join(sys.argv[1:])
        subprocess.run(
            ["unshare", "--mount", "--net", "sh", "-c", run], check=True, env={**os.environ, _HOSTS: str(hosts)}
        )


def _roll(api: Any, options: list[Any], times: int) -> None:
    hosts, places = pathlib.Path("/etc/hosts"), list[tuple[str, _Counting, grpc.Server]]()
    others = [line for line in hosts.read_text().splitlines() if _NAME not in line]
    port = 0

    def start(number: int) -> None:
        nonlocal port
        address, counted = f"127.0.1.{number}", _Counting()
        server = grpc.server(ThreadPoolExecutor(16))
        services.add_EchoServicer_to_server(counted, server)
        port = server.add_insecure_port(f"{address}:{port}")
        server.start()
        places.append((address, counted, server))

    def name(current: list[tuple[str, _Counting, grpc.Server]]) -> None:
        hosts.write_text("\n".join([*others, *(f"{address} {_NAME}" for address, _, _ in current), ""]))

    for number in range(1, times + 1):
        start(number)
    name(places)
    waits, late = list[float](), 0
    with api.channel(
        f"{_NAME}:{port}", [*_FAST, *options, *([("grpc_backoff.resolve_every", 2)] * api.ours)]
    ) as channel:
        channel.ready()
        with load(channel) as codes:
            time.sleep(2.5)
            for number in range(times):
                start(times + 1 + number)
                name(places[number + 1 :])
                named = time.monotonic()
                time.sleep(3.0)
                new, gone = places[-1][1], places[number]
                waits.append(new.first - named if new.first else 99.0)
                count = gone[1].count
                time.sleep(0.5)
                late += gone[1].count > count
                gone[2].stop(5)
    for _, _, server in places:
        server.stop(0)
    name([])
    told: dict[str, object] = {"servers": times, "calls": codes, "called_3_s_after_they_left": late}
    if options:  # with pick_first, a new server gets calls only if the connection moves to it
        told |= {"new_ones_called_within_3_s": sum(wait <= 3.0 for wait in waits), "longest_wait": round(max(waits), 2)}
    tell("pool", "rollout", api, policy="round_robin" if options else "pick_first", **told)


class _Answering(Echo):
    async def Unary(self, request: Any, context: Any) -> Any:  # type: ignore[override]  # noqa: ARG002, N802 - as above
        await asyncio.sleep(0.002)
        return request


class _Drained:
    """A server of `grpc.aio` that can be drained and started again on its port."""

    def __init__(self) -> None:
        self.port = 0

    async def start(self) -> None:
        self._server, self._health = grpc.aio.server(), health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        services.add_EchoServicer_to_server(_Answering(), self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def restart(self) -> None:
        await drain(self._server, self._health, unready=2, grace=3)
        await self.start()

    async def stop(self) -> None:
        await self._server.stop(None)


def _drains(times: int) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(60)

    servers = [_Drained() for _ in range(3)]
    for server in servers:
        do(server.start())
    around, watched = {"loadBalancingConfig": [{"round_robin": {}}]}, {"healthCheckConfig": {"serviceName": ""}}
    with contextlib.ExitStack() as stack:
        balancer = stack.enter_context(relay(servers[1].port))
        several = "ipv4:" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
        counts = []
        for policy, target, config in (
            ("round_robin", several, {**around, **watched}),
            ("pick_first", balancer.target, watched),
            ("round_robin, unwatched", several, around),
        ):
            for api in together(stack):
                options = [("grpc.service_config", json.dumps(config))]
                own = [] if api.ours else [("grpc.use_local_subchannel_pool", 1)]
                channel = stack.enter_context(api.channel(target, options + own))
                channel.ready()
                counts.append((policy, api, stack.enter_context(load(channel, pause=0.04))))
        time.sleep(2)
        for number in range(times):
            balancer.turn(servers[(number + 1) % 3].port)  # a balancer that knows which server is about to stop
            do(servers[number % 3].restart())
            time.sleep(0.6)
    for policy, api, codes in counts:
        tell("pool", "drains", api, policy=policy, restarts=times, calls=codes)
    for server in servers:
        do(server.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _returns(seconds: int) -> None:
    if _HOSTS not in os.environ:
        _with_hosts()
        return
    hosts = pathlib.Path("/etc/hosts")
    others = hosts.read_text()
    every = [("grpc_backoff.resolve_every", 1)]
    for api in subjects("ours"):
        hosts.write_text(others)
        logs = dict[tuple[int, bool], dict[str, list[Any]]]()
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(place(up=False))
            for row in itertools.product((12_000, 1_000), (False, True)):
                cap, looks = row
                options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", cap)]
                # Rows have names of their own, because a channel that connects is news for others of its name (LV-4).
                group = len(logs)
                for number in range(_NAMES):
                    name = f"{number}.{group}.{_NAME}"
                    log = logs.setdefault(row, {})[name] = list[Any]()
                    target = f"{name}:{server.port}"
                    channel = stack.enter_context(api.channel(target, options + every * looks, listeners=[log.append]))
                    channel.begin(wait_for_ready=True, timeout=seconds + 60)
            time.sleep(seconds)
            early = [each for some in logs.values() for log in some.values() for each in _connected(log)]
            assert not early, f"something else than the server was reached: {early}"
            server.start()
            back = time.monotonic()
            hosts.write_text(others + "".join(f"127.0.0.1 {name}\n" for some in logs.values() for name in some))
            time.sleep(20)
        for (cap, looks), some in logs.items():
            starts = [each for log in some.values() for each in log if isinstance(each, grpc_backoff.AttemptStarted)]
            made = [each.at - back for log in some.values() for each in _connected(log)]
            figures = {"connected": len(made), "mean": round(sum(made) / len(made), 2), "longest": round(max(made), 2)}
            tried = sum(each.at < back for each in starts) / _NAMES
            tell("pool", "returns", api, cap=cap / 1000, resolve_every=int(looks), attempts_while_down=tried, **figures)
    hosts.write_text(others)


def _connected(log: list[Any]) -> list[grpc_backoff.Connected]:
    return [each for each in log if isinstance(each, grpc_backoff.Connected)]


@contextlib.asynccontextmanager
async def _serve_narrow() -> AsyncIterator[Served]:
    """Run a server that allows 100 streams for each connection, and answers each call after 50 ms."""
    server = grpc.server(ThreadPoolExecutor(400), options=[("grpc.max_concurrent_streams", _STREAMS)])
    services.add_EchoServicer_to_server(_Counting(0.05), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Served(f"127.0.0.1:{port}")
    server.stop(0)


def _burst(rounds: int) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    wide = [("grpc_backoff.max_connections", 4), ("grpc_backoff.streams_per_connection", _STREAMS)]
    took: dict[Any, list[float]] = {}
    codes: dict[Any, Counter[str]] = {}
    with serving(_serve_narrow) as server, contextlib.ExitStack() as stack:
        sets = [
            (api, [stack.enter_context(api.channel(server.target, wide if api.ours else own)) for _ in range(count)])
            for api in together(stack)
            for count in [1 if api.ours else 3]
        ]
        for api, channels in sets:
            for channel in channels:
                channel.ready()
            if api.ours:
                _open_all(channels[0], _way(api))
        for _ in range(rounds):
            for api, channels in sets:
                began = time.perf_counter()
                calls = [channels[number % len(channels)].begin(_way(api), timeout=30) for number in range(300)]
                codes.setdefault(api, Counter()).update(call.outcome().code.name for call in calls)
                took.setdefault(api, []).append(time.perf_counter() - began)
                time.sleep(0.5)
        for api, channels in sets:
            median = round(statistics.median(took[api]), 3)
            tell("pool", "burst", api, channels=len(channels), calls=codes[api], median=median)


def _way(api: Any) -> str:
    return "Unary" if api.name == "asyncio" else "Unary.future"


def _open_all(channel: Any, way: str) -> None:
    """Hold calls until four connections serve."""
    held, deadline = list[Any](), time.monotonic() + 20
    while [each.role.value for each in channel.own.connection_status().connections].count("serving") < 4:
        assert time.monotonic() < deadline, "the connections were not opened"
        held += [channel.begin(way, [_HOLDS], timeout=30) for _ in range(20)]
        time.sleep(0.05)
    for call in held:
        call.outcome()


def _rotations(times: int) -> None:
    for api in subjects("ours"):
        with tempfile.TemporaryDirectory() as folder:
            issuer = Issuer(pathlib.Path(folder))
            issuer.write()
            failed = list[Any]()

            def hear(event: object, failed: list[Any] = failed) -> None:
                if isinstance(event, grpc_backoff.AttemptFailed):
                    failed.append(event)

            with place(_Counting(), issuer.server()) as server:
                files, listening = issuer.files(), 0
                how = {"credentials": files, "listeners": [hear], "retry": _POLICY}
                with api.channel(server.target, _FAST, **how) as channel:
                    channel.ready()
                    with load(channel, wait_for_ready=True) as codes:
                        for _ in range(times):
                            issuer.renew()
                            issuer.write()
                            server.kill(1)
                            server.credentials = issuer.server()
                            server.start()
                            since = time.monotonic()
                            channel.unary(timeout=20, wait_for_ready=True)
                            listening += sum(event.at - event.took >= since for event in failed)
                            failed.clear()
            left = len(dialled())
        tell(
            "pool",
            "rotations",
            api,
            times=times,
            calls=codes,
            attempts_failed_while_listening=listening,
            channels_left=left,
        )


def _replacements(times: int) -> None:
    for api in subjects("ours"):
        codes = {code.name: number for code, number in replace_under_load(api, times).items()}
        tell("pool", "replacements", api, times=times, calls=codes)


_WHAT = {
    "kills": (_kills, 20),
    "rollout": (_rollout, 10),
    "drains": (_drains, 100),
    "burst": (_burst, 20),
    "returns": (_returns, 60),
    "replacements": (_replacements, 1000),
    "rotations": (_rotations, 100),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pool", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=_WHAT)
    parser.add_argument(
        "--times",
        type=int,
        help="default: 20 kills, 10 servers, 100 drains, 20 bursts, 60 s, 1,000 replacements, 100 rotations",
    )
    chosen = parser.parse_args()
    function, times = _WHAT[chosen.what]
    function(chosen.times or times)


if __name__ == "__main__":
    main()
