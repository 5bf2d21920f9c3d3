"""A program that forks between two runs of a loop: `forking_on_loop.py PHASE TARGET`.

The phase is that of its asyncio channel. The child goes on with the parent's own loop: it uses the inherited channel,
and then a new one. The program prints the outcomes and the exit code of the child, and then checks that the channel
still works in the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc

import grpc_backoff
from grpc_backoff import aio
from tests.echo import EchoStub, Message

HANGS = 20
FAST = [("grpc.initial_reconnect_backoff_ms", 200)]


async def outcome(work):
    try:
        return await work
    except (grpc_backoff.GrpcBackoffError, grpc.aio.UsageError) as error:
        return type(error).__name__


async def unary(stub):
    return (await stub.Unary(Message(text="mine"), timeout=20)).text


async def retried(stub):
    return (await grpc_backoff.retrying(stub.Unary, "retry: 3")(Message(text="mine"), timeout=20)).text


async def up(stub):
    return (await stub.Up(iter([Message(text="mine")]), timeout=20)).text


async def down(stub):
    return [message.text async for message in stub.Down(Message(text="mine", count=1), timeout=20)]


async def child(channel, stub, waiting, target):
    """Use the inherited channel in every way, then try to create one; return the outcomes."""
    said = [await outcome(call(stub)) for call in (unary, up, down)]
    said.append(await outcome(retried(stub)))
    said.append(await outcome(channel.channel_ready()))
    said.append(await outcome(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE)))
    if waiting is not None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([waiting], timeout=5)
        said.append("ended" if waiting.done() else "waits")
    channel.connection_status()
    channel.reset_connect_backoff()
    channel.refresh_connection()
    channel.get_state()
    await asyncio.sleep(0.5)  # the timers of the parent's dials and waits would be due
    await channel.close()
    await channel.close()
    try:
        aio.insecure_channel(target)
    except grpc_backoff.ForkError:
        said.append("ForkError")
    return said


async def begin(phase, target):
    channel = aio.insecure_channel(target, FAST)
    stub, waiting = EchoStub(channel), None
    if phase == "ready":
        await unary(stub)
        await up(stub)
    else:
        await outcome(stub.Unary(Message(text="a"), timeout=0.05))
        waiting = asyncio.ensure_future(stub.Unary(Message(text="a"), timeout=20, wait_for_ready=True).code())
        await asyncio.sleep(0.05)
    return channel, stub, waiting


async def end(channel, stub, waiting):
    if waiting is None:
        assert await unary(stub) == "mine"
    else:
        waiting.cancel()
    await channel.close()


def main(phase, target):
    loop = asyncio.new_event_loop()
    begun = loop.run_until_complete(begin(phase, target))
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS)
        try:
            os.write(writes, repr(loop.run_until_complete(child(*begun, target))).encode())
        finally:
            os._exit(0)  # a normal exit would free the parent's core channels
    os.close(writes)
    status = os.waitpid(pid, 0)[1]
    print(os.read(reads, 4096).decode() or None, "|", os.waitstatus_to_exitcode(status))  # noqa: T201
    loop.run_until_complete(end(*begun))


main(*sys.argv[1:])
