"""Runs gRPC's own reconnect-test server, written in C++, to judge this project's client (IO-1).

This is the unchanged `reconnect_interop_server` that all gRPC languages are tested with. `cpp/build.sh` builds it from
the source package of the distribution's libgrpc++.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from grpc_judge.official.agreement import Agreement
from grpc_judge.official.client import SECONDS, Assignment, NotJudgedError, reconnect
from grpc_judge.runner.process import ProgramProcess, free_port
from grpc_judge.runner.program import Program

SERVER = Program(
    name="reconnect_interop_server in C++",
    folder=Path(__file__).parent / "cpp",
    command=("{here}/build/reconnect_server",),
    programs=("apt-get", "dpkg-query", "g++", "grpc_cpp_plugin", "pkg-config", "protoc"),
    build=(("sh", "build.sh"),),
)
"""The official server program."""

_STARTUP = 10.0


async def be_judged(server: Program = SERVER, seconds: float = SECONDS, maximum: float | None = None) -> Agreement:
    """Have the server judge this project's client and return both verdicts.

    Args:
        server: the server program.
        seconds: how long the test lasts.
        maximum: MAX_BACKOFF, in seconds; None for the protocol's.

    Raises:
        ProgramError: the server program could not be run.
    """
    title = f"grpc_backoff, before {server.name}"
    async with _running(server) as (control, retry):
        request = Assignment(control_port=control, retry_port=retry, maximum=maximum, seconds=seconds)
        try:
            return replace(await reconnect(request), title=title)
        except NotJudgedError as error:
            return Agreement(title=title, ours=None, theirs=None, why=str(error))


@contextlib.asynccontextmanager
async def _running(server: Program) -> AsyncIterator[tuple[int, int]]:
    """Run the server on two free ports; yield the ports once the control port accepts connections."""
    control, retry = free_port(), free_port()  # it cannot choose them itself
    ports = (f"--control_port={control}", f"--retry_port={retry}")
    async with ProgramProcess(server.name, [*server.filled(server.command), *ports]):
        await _until_listening(control)
        yield control, retry


async def _until_listening(port: int) -> None:
    async with asyncio.timeout(_STARTUP):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)
