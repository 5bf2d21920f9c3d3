"""Runs a private etcd: the real server, on a loopback port, with its data in a temporary directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator

from grpc_backoff import aio

__all__ = ["EtcdError", "running"]

_LIMIT = 30.0
"""The longest time to wait for etcd to start, in seconds."""

_SOON = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
"""The options of the channel that waits for etcd: short backoffs."""


class EtcdError(Exception):
    """etcd is not installed or does not start."""


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[str]:
    """Run etcd and yield its target once it answers. On exit, etcd is stopped and its data are deleted.

    Raises:
        EtcdError: etcd is not available; the message gives the reason in one line.
    """
    command = shutil.which("etcd")
    if command is None:
        raise EtcdError("the command etcd is not installed: install Debian's package etcd-server")
    with tempfile.TemporaryDirectory(prefix="etcd-") as folder, tempfile.TemporaryFile() as log:
        target, peer = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
        process = await asyncio.create_subprocess_exec(
            command,
            *_arguments(f"http://{target}", f"http://{peer}", folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
        )
        try:
            if not await _is_ready(target, process):
                log.seek(0)
                raise EtcdError(f"etcd did not start: {_last_line(log.read())}")
            yield target
        finally:
            with contextlib.suppress(ProcessLookupError):  # etcd has already exited
                process.kill()  # the data are no longer needed
            await process.wait()


def _arguments(client: str, peer: str, data: str) -> list[str]:
    return [
        *("--name", "one", "--data-dir", data),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
        *("--logger", "zap", "--log-level", "error"),
    ]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def _is_ready(target: str, process: asyncio.subprocess.Process) -> bool:
    """Wait for etcd to accept connections. Return False if it exits first or takes longer than the limit."""
    async with aio.insecure_channel(target, _SOON) as channel:
        ready, ended = asyncio.ensure_future(channel.channel_ready()), asyncio.ensure_future(process.wait())
        await asyncio.wait({ready, ended}, timeout=_LIMIT, return_when=asyncio.FIRST_COMPLETED)
        is_ready = ready.done()
        for either in (ready, ended):
            either.cancel()
    return is_ready


def _last_line(log: bytes) -> str:
    return ["it printed nothing", *log.decode("utf-8", "replace").splitlines()][-1]
