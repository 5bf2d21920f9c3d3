"""Runs gRPC's own reconnect-test programs, unchanged: its client for Java, and its server in C++ (IO-1).

The client is `io.grpc.testing.integration.ReconnectTestClient`, with each of its two transports; `java/pom.xml`
downloads it. It always runs for 540 s, and its exit status reflects the answer of our server.

The server is the `reconnect_interop_server` that all gRPC languages are tested with, and judges this project's client.
`cpp/build.sh` builds it from the source package of the distribution's libgrpc++.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from grpc_judge.official.agreement import Agreement
from grpc_judge.official.client import SECONDS, Assignment, NotJudgedError, reconnect
from grpc_judge.official.server import ReconnectServer
from grpc_judge.official.verdict import OfficialVerdict
from grpc_judge.runner.process import ProgramProcess, free_port
from grpc_judge.runner.program import ROOT, Program, finish

_FOLDER = Path(__file__).parent
_PATIENCE = 600.0
"""How long a client may take in total, in seconds: a minute more than its test."""
_STARTUP = 60.0
_LAST_WORDS = 400


def _client(transport: str, *flags: str) -> Program:
    return Program(
        name=f"ReconnectTestClient in Java, over {transport}",
        folder=_FOLDER / "java",
        command=(
            "java",
            "-Xmx128m",
            "-cp",
            "{here}/target/libraries/*",
            "io.grpc.testing.integration.ReconnectTestClient",
            *flags,
        ),
        programs=("java", "mvn"),
        build=(("mvn", "-q", "-B", "package"),),
    )


CLIENTS = (_client("Netty"), _client("OkHttp", "--use_okhttp=true"))
"""The official clients, which share a folder and a build."""

SERVER = Program(
    name="reconnect_interop_server in C++",
    folder=_FOLDER / "cpp",
    command=("{here}/build/reconnect_server",),
    programs=("apt-get", "dpkg-query", "g++", "grpc_cpp_plugin", "pkg-config", "protoc"),
    build=(("sh", "build.sh"),),
)
"""The official server program."""


async def judge_client(client: Program, patience: float = _PATIENCE) -> Agreement:
    """Run a client against a new server of ours and return both verdicts.

    Raises:
        OSError: the client could not be run.
    """
    verdicts: list[OfficialVerdict] = []
    async with ReconnectServer(verdicts.append) as server:
        ports = (f"--server_control_port={server.control_port}", f"--server_retry_port={server.retry_port}")
        status, words = await finish([*client.filled(client.command), *ports], ROOT, patience)
    return Agreement(
        title=client.name,
        ours=verdicts[0] if verdicts else None,
        theirs=None if status is None else status == 0,
        why=words[-_LAST_WORDS:],
    )


async def be_judged(server: Program = SERVER, seconds: float = SECONDS) -> Agreement:
    """Have the server judge this project's client for these seconds and return both verdicts.

    Raises:
        ProgramError: the server program could not be run.
    """
    title = f"grpc_backoff, before {server.name}"
    async with _running(server) as (control, retry):
        request = Assignment(control_port=control, retry_port=retry, seconds=seconds)
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
