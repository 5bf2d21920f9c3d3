"""Processes of servers: programs that do not start or end, and what is left when the tests are gone."""

from __future__ import annotations

import asyncio
import os
import sys

import psutil
import pytest

from tests.interop_suite.servers.processes import GRPCIO, HERE, SERVERS, Server, running
from tests.proxies import process as processes

PYTHON = (sys.executable, "-c")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("/no/such/program",), "No such file or directory: '/no/such/program'"),
        ((*PYTHON, "raise SystemExit('no such library')"), "^made up ended with status 1: no such library"),
        ((*PYTHON, "import time; time.sleep(60)"), "^made up did not serve within 0.2 s: "),
    ],
)
async def test_a_program_that_does_not_start(monkeypatch, tmp_path, command, complaint):
    """IO-4: a program that cannot be run, fails or does not serve in time is reported, with its output, and killed."""
    monkeypatch.setattr(processes, "STARTUP", 0.2 if "sleep(60)" in command[-1] else 60.0)
    with pytest.raises((AssertionError, FileNotFoundError), match=complaint):
        async with running(Server(name="made up", folder=HERE, command=command), tmp_path):
            pass


async def test_a_program_that_does_not_end(monkeypatch, tmp_path):
    """IO-4: a program that ignores SIGTERM is reported and killed."""
    monkeypatch.setattr(processes, "DRAIN", 0.2)
    async with running(GRPCIO, tmp_path) as server:
        await server.freeze()  # the signal waits until the process is resumed
        with pytest.raises(AssertionError, match=r"^grpcio server had not ended 0.2 s after SIGTERM: "):
            await server.drain()
    assert server.process.returncode == -9


@pytest.mark.parametrize("server", [pytest.param(each, id=each.name) for each in SERVERS if not each.build])
async def test_nothing_outlives_its_input(server, tmp_path):
    """IO-4: a program and its child processes end when its standard input ends, as it does with the tests."""
    if server.missing and not os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS"):
        pytest.skip(f"{server.missing} is missing")
    async with running(server, tmp_path, upstream=1) as up:
        process = up.process
        whole = [process, *psutil.Process(process.pid).children(recursive=True)]
        process.stdin.close()
        async with asyncio.timeout(10):
            while process.poll() is None or any(each.is_running() for each in whole[1:]):
                await asyncio.sleep(0.05)
