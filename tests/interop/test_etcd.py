"""A real third-party server: etcd, killed and restarted under calls.

It needs Debian's package etcd-server. It needs no generated code, because the maintenance service's Status method takes
an empty message and its answer is not parsed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections import Counter

import grpc
import pytest

from grpc_backoff import aio
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


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_etcd_killed_and_restarted_five_times_under_calls(tmp_path):
    """CH-2, CH-7: over five SIGKILLs, every call succeeds or fails with UNAVAILABLE, and the channel recovers.

    Takes about half a minute of real time.
    """
    etcd, outcomes, stopping = Etcd(tmp_path), Counter(), asyncio.Event()
    await etcd.start()
    try:
        async with aio.insecure_channel(f"127.0.0.1:{etcd.client}", options=FAST) as channel:
            status = channel.unary_unary("/etcdserverpb.Maintenance/Status")
            assert await status(b"", wait_for_ready=True, timeout=60)

            async def work(wait_for_ready):
                while not stopping.is_set():
                    try:
                        assert await status(b"", wait_for_ready=wait_for_ready, timeout=60)
                        outcomes[wait_for_ready, grpc.StatusCode.OK] += 1
                    except grpc.aio.AioRpcError as error:
                        outcomes[wait_for_ready, error.code()] += 1
                    await asyncio.sleep(0.005)

            workers = [asyncio.ensure_future(work(wait_for_ready)) for wait_for_ready in [True, False] * 5]
            for _ in range(5):
                await asyncio.sleep(0.5)
                await etcd.kill()
                await asyncio.sleep(0.5)
                await etcd.start()
                assert await status(b"", wait_for_ready=True, timeout=60)
            stopping.set()
            await asyncio.wait_for(asyncio.gather(*workers), 90)
            assert channel.connection_status().made >= 6
    finally:
        await etcd.kill()
    assert outcomes[True, grpc.StatusCode.OK] > 50
    assert outcomes[False, grpc.StatusCode.OK] > 50
    allowed = {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    assert {code for _, code in outcomes} <= allowed, outcomes
