"""A program that forks with an asyncio channel in a given phase: `forking.py PHASE TARGET`.

The child uses the inherited channel and then a new one. The program prints the outcomes and the child's exit code. It
then checks that the parent's channel still works.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc

import grpc_backoff
from grpc_backoff import aio
from tests.echo import EchoStub, Message

HANGS = 20
SETTLES_WITHIN = 1.1
"""How long grpcio's core takes to shut down after the last channel was closed, in seconds, and a bit more."""
FAST = [("grpc.initial_reconnect_backoff_ms", 200)]


async def outcome(work):
    try:
        return await work
    except (grpc_backoff.GrpcBackoffError, grpc.aio.UsageError) as error:
        return type(error).__name__


async def new(target):
    async with aio.insecure_channel(target, FAST) as channel:
        return (await EchoStub(channel).Unary(Message(text="new"), timeout=10)).text


async def use(channel, target):
    """Call each method of the inherited channel, then make a call on a new channel; return the outcomes."""
    said = [
        await outcome(called(channel)),
        await outcome(channel.channel_ready()),
        await outcome(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE)),
    ]
    channel.connection_status()
    channel.reset_connect_backoff()
    channel.get_state()
    await channel.close()
    await channel.close()
    return said, await outcome(new(target))


async def called(channel):
    return (await EchoStub(channel).Unary(Message(text="mine"), timeout=20)).text


def child(tell, channel, target):
    signal.alarm(HANGS)
    asyncio.set_event_loop(None)
    tell.put(asyncio.run(use(channel, target)))
    os._exit(0)  # a normal exit would free the parent's core channels


async def main(phase, target):
    channel = aio.insecure_channel("127.0.0.1:1" if phase == "backoff" else target, FAST)
    if phase == "backoff":
        await outcome(called(channel))
    if phase in ("ready", "closing", "closed"):
        await called(channel)
    if phase in ("closing", "closed"):
        await channel.close()
        return channel, None
    context = multiprocessing.get_context("fork")
    tell = context.SimpleQueue()
    process = context.Process(target=child, args=(tell, channel, target))
    process.start()
    await asyncio.to_thread(process.join)
    print(repr((*tell.get(), process.exitcode)))  # noqa: T201
    assert phase != "ready" or await called(channel) == "mine"
    await channel.close()
    return None


def closed(channel, target):
    context = multiprocessing.get_context("fork")
    tell = context.SimpleQueue()
    process = context.Process(target=child, args=(tell, channel, target))
    process.start()
    process.join()
    print(repr((*tell.get(), process.exitcode)))  # noqa: T201


if __name__ == "__main__":
    before = asyncio.run(main(*sys.argv[1:]))
    if before is not None:
        if sys.argv[1] == "closed":
            time.sleep(SETTLES_WITHIN)
        closed(before[0], sys.argv[2])
