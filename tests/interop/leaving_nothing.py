"""A program that uses channels on 200 event loops, `leaving_nothing.py USE TARGET`, and prints what is left.

Garbage collection is off throughout.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import weakref

import grpc

from grpc_backoff import aio
from tests.echo import EchoStub, Message

REFUSED = "127.0.0.1:1"


async def idle(_channel, _target):
    """Make no call."""


async def ready(channel, _target):
    await EchoStub(channel).Unary(Message(text="x"))


async def streaming(channel, _target):
    call = EchoStub(channel).Both()
    await call.write(Message(text="x"))
    await call.read()


async def waiting(channel, _target):
    calls = [asyncio.ensure_future(EchoStub(channel).Unary(Message(), wait_for_ready=each)) for each in (False, True)]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()


async def outlasting(channel, _target):
    await channel.channel_ready()
    await EchoStub(channel).Unary(Message(text="x"), wait_for_ready=True)


async def failing(channel, _target):
    try:
        await EchoStub(channel).Unary(Message(text="x"))
    except grpc.aio.AioRpcError:
        return
    raise AssertionError("nobody listens there")


async def watching(channel, _target):
    watcher = asyncio.ensure_future(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE))
    await channel.channel_ready()
    await watcher


async def suspecting(channel, target):
    await ready(channel, target)


USES = {use.__name__: use for use in (idle, ready, streaming, waiting, outlasting, failing, watching, suspecting)}


async def use_once(use, target, refs):
    # SH-5: otherwise the next loop's channel to this target would wait for INITIAL_BACKOFF.
    options = [("grpc.initial_reconnect_backoff_ms", 1)]
    if use is suspecting:
        options.append(("grpc_backoff.quiet_after", 30))
    channel = aio.insecure_channel(REFUSED if use is failing else target, options)
    refs[:] = [
        weakref.ref(channel),
        *map(weakref.ref, (channel._pool, channel._pool.rules.only, channel._pool.rules.only._connector)),
    ]
    await use(channel, target)
    await channel.close()


def loops(use, target):
    """Use a channel on each of 200 loops and count the log records, objects and threads that remain."""
    records, left, refs = [], 0, []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger().addHandler(handler)
    for _ in range(200):
        asyncio.run(use_once(use, target, refs))
        left += sum(ref() is not None for ref in refs)
    # When grpcio's poller thread ends, grpcio does not wait for its last instructions.
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join(timeout=10)
    said = [record.getMessage() for record in records]
    print({"records": said, "left": left, "threads": threading.active_count()})  # noqa: T201 - the test reads it


if __name__ == "__main__":
    gc.disable()
    loops(USES[sys.argv[1]], sys.argv[2])
