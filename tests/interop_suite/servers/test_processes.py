"""Processes of servers: programs that do not start or end, and what is left when the tests are gone."""

from __future__ import annotations

import asyncio
import os
import sys

import psutil
import pytest

from tests.interop_suite.servers import processes
from tests.interop_suite.servers.processes import GRPCIO, HERE, SERVERS, Server, running


def made_up(program):
    return Server(name="made up", folder=HERE, command=(sys.executable, "-c", program))


async def test_a_program_that_fails(tmp_path):
    """IO-4: the message about a program that fails has its exit status and its last output."""
    with pytest.raises(AssertionError, match=r"^made up ended with status 1: no such library"):
        async with running(made_up("raise SystemExit('no such library')"), tmp_path):
            pass


async def test_a_program_that_is_not_there(tmp_path):
    """IO-4: a program that cannot be run is reported with the system's reason."""
    with pytest.raises(FileNotFoundError, match="/no/such/program"):
        async with running(Server(name="made up", folder=HERE, command=("/no/such/program",)), tmp_path):
            pass


async def test_a_program_that_does_not_start(monkeypatch, tmp_path):
    """IO-4: a program that does not serve in time is reported and killed."""
    monkeypatch.setattr(processes, "STARTUP", 0.2)
    with pytest.raises(AssertionError, match=r"^made up did not serve within 0.2 s: "):
        async with running(made_up("import time; time.sleep(60)"), tmp_path):
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
    async with running(server, tmp_path, upstream=1) as process:
        whole = [process.process, *psutil.Process(process.process.pid).children(recursive=True)]
        process.process.stdin.close()
        async with asyncio.timeout(10):
            while process.process.poll() is None or any(each.is_running() for each in whole[1:]):
                await asyncio.sleep(0.05)
