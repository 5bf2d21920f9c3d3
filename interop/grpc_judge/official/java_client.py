"""Runs gRPC's own reconnect-test client, as published for Java, against this project's server (IO-1).

This is the unchanged `io.grpc.testing.integration.ReconnectTestClient`, with each of its two transports; `java/pom.xml`
downloads it. It always runs for 540 s, and its exit status reflects the server's answer.
"""

from __future__ import annotations

from pathlib import Path

from grpc_judge.official.agreement import Agreement
from grpc_judge.official.server import ReconnectServer
from grpc_judge.official.verdict import OfficialVerdict
from grpc_judge.runner.program import ROOT, Program, finish

_FOLDER = Path(__file__).parent / "java"
_PATIENCE = 600.0
"""How long a client may take in total, in seconds: a minute more than its test."""
_LAST_WORDS = 400


def _client(transport: str, *flags: str) -> Program:
    return Program(
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
        programs=("java", "mvn"),
        build=(("mvn", "-q", "-B", "package"),),
    )


CLIENTS = (_client("Netty"), _client("OkHttp", "--use_okhttp=true"))
"""The official clients, which share a folder and a build."""


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
