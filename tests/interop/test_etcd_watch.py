"""Subscriptions to the Watch of a real etcd, with cuts and compactions, and the page's advice about it.

It needs Debian's package etcd-server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

import grpc_backoff
from grpc_backoff import Gap, aio
from grpc_backoff.testing.front import FlakyFront, healthy
from grpc_judge.runner.process import free_port
from tests import programs

pytestmark = [
    pytest.mark.etcd,
    pytest.mark.skipif(
        shutil.which("etcd") is None and not os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS"),
        reason="etcd is not installed (Debian package etcd-server)",
    ),
]

FAST = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]


class Etcd:
    def __init__(self, folder):
        self.client, self.peer, self.folder = free_port(), free_port(), folder

    async def start(self):
        client, peer = f"http://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
        self.process = await programs.start(
            "etcd",
            *("--name", "one", "--data-dir", str(self.folder)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"one={peer}", "--logger", "zap", "--log-level", "error"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
        )

    async def kill(self):
        await programs.killed(self.process)


sys.path.append(str(Path(__file__).with_name("protos")))  # protoc finds the file here
pb = grpc.protos("etcd_watch.proto")

QUICK = "delay: 5ms, backoff: exponential, max_delay: 50ms, jitter: full"
BATCH = 1000
"""How many revisions etcd puts into one response for a watch that lags behind."""


def from_(revision):
    """Return the request to watch every key that begins with k."""
    return pb.Watch(create_request=pb.Create(key=b"k", range_end=b"l", start_revision=revision))


def behind(last, request):
    """Return the next request as the page says: behind the last event, not behind the response's header."""
    return from_(last.events[-1].kv.mod_revision + 1) if last.events else request


class Keys:
    """etcd's unary methods, called without the front."""

    def __init__(self, channel):
        self._channel = channel

    async def __call__(self, name, request):
        make = type(request).SerializeToString
        method = self._channel.unary_unary(f"/etcdserverpb.KV/{name}", make, pb.Answer.FromString)
        return (await method(request, wait_for_ready=True, timeout=60)).header.revision

    async def put(self, number):
        return await self("Put", pb.Put(key=b"k%d" % number, value=b"x"))

    async def put_many(self, count):
        """Put this many keys and return the last revision; 50 at a time."""
        for at in range(0, count, 50):
            last = max(await asyncio.gather(*(self.put(number) for number in range(at, min(at + 50, count)))))
        return last


@contextlib.asynccontextmanager
async def running(folder):
    """Run etcd behind a front; yield etcd, the front and the unary methods."""
    etcd = Etcd(folder)
    await etcd.start()
    try:
        async with (
            FlakyFront(healthy, upstream=("127.0.0.1", etcd.client)) as front,
            aio.insecure_channel(f"127.0.0.1:{etcd.client}", options=FAST) as channel,
        ):
            keys = Keys(channel)
            await keys("Range", pb.Range(key=b"k"))
            yield etcd, front, keys
    finally:
        await etcd.kill()


@contextlib.asynccontextmanager
async def reading(api, target, revision, **how):
    """Yield a function that returns the subscription's next item."""
    how = {"resume": behind, "policy": QUICK} | how
    names = "/etcdserverpb.Watch/Watch", pb.Watch.SerializeToString, pb.Watched.FromString
    if api == "asyncio":
        async with (
            aio.insecure_channel(target, options=FAST) as channel,
            aio.subscribe(channel.stream_stream(*names), from_(revision), **how) as items,
        ):
            yield items.__anext__
    else:
        with (
            grpc_backoff.insecure_channel(target, options=FAST) as channel,
            grpc_backoff.subscribe(channel.stream_stream(*names), from_(revision), **how) as items,
        ):
            yield lambda: asyncio.to_thread(next, items)


def revisions(response):
    return [event.kv.mod_revision for event in response.events]


both = pytest.mark.parametrize("api", ["asyncio", "threads"])


@both
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_no_revision_lost(api, tmp_path):
    """SB-1: over 20 cuts and a SIGKILL of etcd under writes, each revision is read exactly once, in order.

    A put that the SIGKILL cuts may be done or not; etcd's revisions count in either case. Takes seconds of real time.

    The streams have a deadline because threaded channels of grpcio 1.63 sometimes miss a reset: the kernel has no
    connection any more, and the core's is READY for good, so nothing else ends the stream.
    """
    read, gaps = [], []
    async with running(tmp_path) as (etcd, front, keys), asyncio.timeout(200):
        first = await keys.put(0)
        stopping = asyncio.Event()

        async def write():
            while not stopping.is_set():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await keys.put(1)

        async def cut():
            for number in range(20):
                seen = len(read)
                # What is read after a cut may have arrived before it, so wait for its gap as well.
                while len(gaps) < number or len(read) < seen + 5:
                    await asyncio.sleep(0.005)
                if number == 10:
                    await etcd.kill()
                    await etcd.start()
                await front.break_all()
            stopping.set()
            await asyncio.gather(*writers)
            return await keys.put(2)

        writers = [asyncio.create_task(write()) for _ in range(3)]
        async with reading(api, front.target, first, gaps=True, timeout=10) as following:
            cutting = asyncio.create_task(cut())
            while not cutting.done() or read[-1] < cutting.result():
                item = await following()
                if isinstance(item, Gap):
                    gaps.append(item)
                else:
                    read += revisions(item)
    assert read == list(range(first, cutting.result() + 1))
    assert len(gaps) >= 20


@both
@pytest.mark.timeout(120)
async def test_resumed_behind_the_last_event(api, tmp_path):
    """SB-1: a watch that lags by more than one batch, and is cut after each response with events, loses no revision.

    The headers of these responses are ahead of their events, so resuming behind the header would lose the rest.
    """
    async with running(tmp_path) as (_etcd, front, keys), asyncio.timeout(100):
        first = await keys.put(0)
        last = await keys.put_many(2 * BATCH + 500)
        read, ahead = [], []
        async with reading(api, front.target, first) as following:
            while not read or read[-1] < last:
                response = await following()
                if response.events:
                    read += revisions(response)
                    ahead.append(response.header.revision - read[-1])
                    await front.break_all()
    assert read == list(range(first, last + 1))
    assert ahead[0] == last - first + 1 - BATCH


@both
@pytest.mark.timeout(120)
async def test_compacted(api, tmp_path):
    """SB-1: a watch from a compacted revision gets `canceled`, on a stream that stays open until its deadline.

    The program then reads the state, subscribes from its revision, and misses nothing that is written after.
    Takes two seconds of real time, the deadline of a stream.
    """
    async with running(tmp_path) as (_etcd, front, keys), asyncio.timeout(100):
        first = await keys.put(0)
        last = await keys.put_many(20)
        async with reading(api, front.target, first, gaps=True, timeout=2) as following:
            while not (await following()).events:
                pass
            await front.refuse()
            await front.break_all()
            compacted = await keys.put_many(20)
            await keys("Compact", pb.Compact(revision=compacted, physical=True))
            await front.listen()
            responses = []
            while not (responses and responses[-1].canceled):
                item = await following()
                responses += [] if isinstance(item, Gap) else [item]
            after = await following()
        assert responses[-1].compact_revision == compacted
        assert not any(response.events for response in responses)
        assert after.code in ("DEADLINE_EXCEEDED", "UNKNOWN")  # the latter if etcd notices the deadline first
        assert compacted > last

        state = await keys("Range", pb.Range(key=b"k"))
        async with reading(api, front.target, state + 1) as following:
            written = await keys.put_many(5)
            read = []
            while not read or read[-1] < written:
                read += revisions(await following())
    assert read == list(range(state + 1, written + 1))
