"""Cuts a subscription's stream again and again, and checks that no item is lost and none is read twice (SB-1).

    python -m benchmarks.subscriptions --cuts 1000 [--threads]

A server behind a proxy streams numbers from the one that a request asks for. Each cut is drawn at random: the server
stops and comes back on its port, sends nothing until the deadline, or ends the stream, without an error or with
one; or the proxy resets all connections. The program reads until all cuts are made.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter

import grpc
import grpc.aio

import grpc_backoff
from grpc_backoff import Gap, aio
from grpc_backoff.testing.front import FlakyFront, healthy
from tests.echo import Message, services

CUTS = ("kill", "freeze", "end", "fail", "proxy")
HOW = "delay: 5ms, backoff: exponential, max_delay: 50ms, jitter: full"
CONNECT = [("grpc.initial_reconnect_backoff_ms", 5), ("grpc.max_reconnect_backoff_ms", 20)]


class Numbers(services.EchoServicer):
    """Streams numbers from the request's count on, until it is told how to end."""

    def __init__(self):
        self.how = asyncio.get_running_loop().create_future()
        self.frozen = False
        self.opens = 0

    async def Down(self, request, context):  # noqa: N802
        self.opens += 1
        self.frozen = False
        number = request.count
        how = self.how
        while not how.done():
            if not self.frozen:
                yield Message(count=number)
                number += 1
            await asyncio.sleep(0.001)
        if how.result() is not None:
            await context.abort(how.result(), "as told")

    def end(self, code=None):
        self.how.set_result(code)
        self.how = asyncio.get_running_loop().create_future()


class Chaos:
    """The server, and the ways to cut its streams."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.numbers = Numbers()
        self.port = 0
        self.made = Counter()

    async def start(self):
        self.server = grpc.aio.server()
        services.add_EchoServicer_to_server(self.numbers, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def cut(self, front):
        kind = self.rng.choice(CUTS)
        self.made[kind] += 1
        match kind:
            case "kill":
                await self.server.stop(None)
                await self.start()
            case "freeze":
                self.numbers.frozen = True  # until the stream's deadline has passed, and another one is opened
            case "end":
                self.numbers.end()
            case "fail":
                self.numbers.end(self.rng.choice([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL]))
            case "proxy":
                await front.break_all()


@contextlib.asynccontextmanager
async def _reading(target, *, threads):
    """Yield a coroutine function that returns the next item of a subscription of either API."""
    how = {
        "resume": lambda last, _: Message(count=last.count + 1),
        "policy": HOW,
        "gaps": True,
        "timeout": 0.5,
    }
    if threads:
        with (
            grpc_backoff.insecure_channel(target, options=CONNECT) as channel,
            grpc_backoff.subscribe(services.EchoStub(channel).Down, Message(count=0), **how) as numbers,
        ):
            yield lambda: asyncio.to_thread(next, numbers)
    else:
        async with (
            aio.insecure_channel(target, options=CONNECT) as channel,
            aio.subscribe(services.EchoStub(channel).Down, Message(count=0), **how) as numbers,
        ):
            yield numbers.__anext__


async def run(cuts, seed=1, *, threads=False):
    """Make this many cuts; return the numbers read, the gaps, the cuts by kind, and how many streams were opened."""
    chaos = Chaos(seed)
    await chaos.start()
    read, gaps = [], []
    try:
        async with (
            FlakyFront(healthy, upstream=("127.0.0.1", chaos.port)) as front,
            _reading(front.target, threads=threads) as following,
        ):
            cutting = asyncio.create_task(_cut(chaos, front, cuts, read))
            while not cutting.done():
                item = await following()
                if isinstance(item, Gap):
                    gaps.append(item)
                else:
                    read.append(item.count)
            await cutting
    finally:
        await chaos.server.stop(None)
    return read, gaps, chaos.made, chaos.numbers.opens


async def _cut(chaos, front, cuts, read):
    for _ in range(cuts):
        opens, until = chaos.numbers.opens, time.monotonic() + 20
        await chaos.cut(front)
        before = None
        while (before is None or len(read) < before + 3) and time.monotonic() < until:
            await asyncio.sleep(0.002)
            if before is None and chaos.numbers.opens > opens:
                before = len(read)


def main():
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", action="store_true", help="read with the threaded API")
    given = parser.parse_args()
    read, gaps, made, opens = asyncio.run(run(given.cuts, given.seed, threads=given.threads))
    lost, twice = len(set(range(read[-1] + 1)) - set(read)), len(read) - len(set(read))
    print(f"cuts: {dict(made)}")
    print(f"read {len(read)}, lost {lost}, read twice {twice}, gaps {len(gaps)}, streams {opens}")
    print(f"longest gap {max(gap.lasted for gap in gaps):.2f} s")
    sys.exit(lost or twice or read != sorted(read))


if __name__ == "__main__":
    main()
