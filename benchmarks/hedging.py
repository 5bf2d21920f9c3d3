"""Measures hedged calls beside plain ones, on the same servers (HG-1 to HG-3).

    python -m benchmarks.hedging

Three measurements: 1.5 % of all calls are slow by a second; one of three servers hangs; and what a call costs that is
answered before the delay, beside one with a retry policy. Latencies are in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time

import grpc
import grpc.aio

from grpc_backoff import aio
from tests.echo import Message, services

HEDGE = "hedge: 50ms, attempts: 3"
PAUSE, LIMIT = 0.002, 5.0
ONE_IN = 66  # 1.5 %


class Slow(services.EchoServicer):
    """Answers at once, except every `one_in`-th call, which takes a second more, and all calls if it hangs."""

    def __init__(self, one_in=0, *, hangs=False):
        self.count = 0
        self._one_in, self._hangs = one_in, hangs

    async def Unary(self, request, _context):  # noqa: N802
        self.count += 1
        if self._hangs:
            await asyncio.sleep(3600)
        if self._one_in and self.count % self._one_in == 0:
            await asyncio.sleep(1)
        return request


@contextlib.asynccontextmanager
async def serving(*servicers):
    """Run a server for each servicer; yield the target that names them all."""
    servers, ports = [], []
    for servicer in servicers:
        server = grpc.aio.server()
        services.add_EchoServicer_to_server(servicer, server)
        ports.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    try:
        yield f"ipv4:{','.join(ports)}"
    finally:
        for server in servers:
            await server.stop(None)


async def latencies(channel, calls):
    """Start a call every few milliseconds; return how long each took, sorted, in seconds."""
    stub = services.EchoStub(channel)

    async def one():
        began = time.perf_counter()
        with contextlib.suppress(grpc.aio.AioRpcError):  # of a server that hangs
            await stub.Unary(Message(text="a"), timeout=LIMIT)
        return time.perf_counter() - began

    running = []
    for _ in range(calls):
        running.append(asyncio.ensure_future(one()))
        await asyncio.sleep(PAUSE)
    return sorted(await asyncio.gather(*running))


def shares(times):
    """Return the median and the 99th percentile in milliseconds."""
    return {"p50": round(times[len(times) // 2] * 1e3, 2), "p99": round(times[len(times) * 99 // 100] * 1e3, 2)}


async def compare(servicers, calls):
    """Measure plain and hedged calls on fresh servers; return the figures of each, with its requests for each call."""
    options = [("grpc.lb_policy_name", "round_robin")]
    found = {}
    for name, retry in (("plain", None), ("hedged", HEDGE)):
        places = servicers()
        async with serving(*places) as target:
            made = grpc.aio.insecure_channel(target, options)
            async with made if retry is None else aio.insecure_channel(target, options, retry=retry) as channel:
                await latencies(channel, 60)
                before = sum(place.count for place in places)
                times = await latencies(channel, calls)
                sent = sum(place.count for place in places) - before
        found[name] = shares(times) | {"requests": round(sent / calls, 4)}
    return found


async def cost(calls):
    """Return microseconds for each call answered at once, retried and hedged, as the least of alternating rounds."""
    async with serving(Slow()) as target, contextlib.AsyncExitStack() as stack:
        stubs = {
            name: services.EchoStub(await stack.enter_async_context(aio.insecure_channel(target, retry=retry)))
            for name, retry in (("no policy", None), ("retry", "standard"), ("hedge", "hedge: 10s, attempts: 3"))
        }
        least = dict.fromkeys(stubs, float("inf"))
        for _ in range(7):
            for name, stub in stubs.items():
                began = time.perf_counter()
                for _ in range(calls):
                    await stub.Unary(Message(text="a"))
                least[name] = min(least[name], (time.perf_counter() - began) / calls)
        return {name: round(seconds * 1e6, 1) for name, seconds in least.items()}


async def run(calls):
    """Return all measurements."""
    return {
        "1.5 % slow by 1 s": await compare(lambda: [Slow(ONE_IN)], calls),
        "one of three servers hangs": await compare(lambda: [Slow(), Slow(), Slow(hangs=True)], calls),
        "microseconds for each call": await cost(max(calls // 10, 20)),
    }


def main(arguments=None):
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=4000)
    json.dump(asyncio.run(run(parser.parse_args(arguments).calls)), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
