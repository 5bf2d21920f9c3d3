"""gRPC's own client of the reconnect test, as it is published for Java, before this project's server (IO-1).

It is `io.grpc.testing.integration.ReconnectTestClient`, unchanged, over both of its transports; `java/pom.xml` fetches
it. It goes on for 540 s, which cannot be changed, and its exit status is what it made of the server's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from interop.official.agreement import Agreement
from interop.official.server import ReconnectServer, Settings
from interop.official.verdict import Verdict
from interop.peers.manifest import ROOT, Peer

__all__ = ["CLIENTS", "judge_client"]

_FOLDER = Path(__file__).parent / "java"
_PATIENCE = 600.0
"""How long a client may take altogether, in seconds: a minute more than its test."""
_LAST_WORDS = 400


def _client(transport: str, *flags: str) -> Peer:
    return Peer(
        name=f"ReconnectTestClient in Java, over {transport}",
        folder=_FOLDER,
        command=(
            "java",
            "-Xmx128m",
            "-cp",
            "{here}/target/libraries/*",
            "io.grpc.testing.integration.ReconnectTestClient",
            *flags,
        ),
        configurable=frozenset(),
        programs=("java", "mvn"),
        build=(("mvn", "-q", "-B", "package"),),
    )


CLIENTS = (_client("Netty"), _client("OkHttp", "--use_okhttp=true"))
"""The official clients. They share a folder, and what is built for one of them is there for both."""


async def judge_client(client: Peer, patience: float = _PATIENCE) -> Agreement:
    """Run a client before a server of its own, and return what the server and the client say.

    Raises:
        OSError: the client could not be run.
    """
    verdicts: list[Verdict] = []
    async with ReconnectServer(Settings(), verdicts.append) as server:
        ports = (f"--server_control_port={server.control_port}", f"--server_retry_port={server.retry_port}")
        status, words = await _run([*client.filled(client.command), *ports], patience)
    return Agreement(
        title=client.name,
        ours=verdicts[0] if verdicts else None,
        theirs=None if status is None else status == 0,
        why=words,
    )


async def _run(command: Sequence[str], patience: float) -> tuple[int | None, str]:
    """Run a command to its end; return its exit status, None if that took too long, and what it wrote last."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # a command may start others, and all of them have to end
    )
    writing = asyncio.create_task(process.communicate())
    try:
        await asyncio.wait({writing}, timeout=patience)
        status = process.returncode if writing.done() else None
    finally:  # also when told to stop
        if not writing.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output, _ = await writing
    return status, output.decode(errors="replace").strip()[-_LAST_WORDS:]
