"""Processes of the last release and of this one share a ledger, each with its own code."""

from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import grpc
import pytest

from grpc_backoff.ledger import Filter, Ledger, OperationState
from tests.echo import Message
from tests.ledger.conftest import SETTINGS
from tests.ledger.delivery.test_delivery import FAST, at_work
from tests.ledger.steps import eventually

RELEASE = "0.2.0"
NUMBER = 20
UNARY = "/echo.v1.Echo/Unary"
ROOT = Path(__file__).parents[2]
OLD = """
import asyncio, sys
from grpc_backoff import __version__, aio
from grpc_backoff.ledger import Ledger

async def main(url, target, method):
    print(__version__, flush=True)
    async with await Ledger.open(url) as ledger, aio.insecure_channel(target) as channel:
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # the other release opens the ledger
        for each in sys.argv[4:]:
            await ledger.submit(target, method, bytes.fromhex(each))
        delivering = asyncio.ensure_future(ledger.deliver(channel))
        print("delivers", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        delivering.cancel()
        await asyncio.wait({delivering})

asyncio.run(main(*sys.argv[1:4]))
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder with the package of the last release, as its commit has it."""
    git = ["git", "-C", str(ROOT)]
    try:
        find = [*git, "log", "-1", "--format=%H", f"--grep=^Release {RELEASE}$"]
        commit = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    if not commit:
        pytest.skip("needs the repository with its history")
    folder = tmp_path_factory.mktemp("release")
    packed = subprocess.run([*git, "archive", commit, "grpc_backoff"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextlib.asynccontextmanager
async def started(release, *arguments):
    """Run a process of the last release; yield it, and a function that returns its next line."""
    old = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OLD, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(release)},
        cwd=release,
    )

    async def said():
        async with asyncio.timeout(60):
            return (await old.stdout.readline()).decode().strip()

    try:
        yield old, said
    finally:
        if old.returncode is None:
            old.kill()
        await old.communicate()


def requests(who):
    return [Message(text=f"{who}-{n}") for n in range(NUMBER)]


async def test_side_by_side(url, shop, release):
    """LG-18: both releases use the tables of the last one, also after a rollback, until `migrate` is called."""

    def delivered(ledger, number):
        async def all_delivered():
            return len(await ledger.find(Filter(states=(OperationState.SUCCEEDED,)))) == number * NUMBER

        return all_delivered

    def old(who):
        return started(release, url, shop.target, UNARY, *(each.SerializeToString().hex() for each in requests(who)))

    shop.script["new-0"] = [(grpc.StatusCode.UNAVAILABLE, "down")] * 2
    async with old("old") as (process, said):
        assert (await said(), await said()) == (RELEASE, "open")
        async with at_work(url, shop, FAST) as (ledger, unary):
            process.stdin.write(b"\n")
            assert await said() == "delivers"
            first, *_ = await ledger.submit_many([ledger.prepared(unary, each) for each in requests("new")])
            await eventually(delivered(ledger, 2))
            attempts = await ledger.attempts(first.id)
            process.stdin.write(b"\n")
            async with asyncio.timeout(60):
                assert await process.wait() == 0

    async with await Ledger.open(url, settings=SETTINGS) as ledger:
        left = [ledger.prepared(shop.target, UNARY, each.SerializeToString()) for each in requests("left")]
        await ledger.submit_many(left)
        async with old("back") as (process, said):  # the rollback
            assert (await said(), await said()) == (RELEASE, "open")
            process.stdin.write(b"\n")
            assert await said() == "delivers"
            await eventually(delivered(ledger, 4))

        before, after = await ledger.migrate()
        async with old("late") as (process, said):
            assert (await said(), await said()) == (RELEASE, "")
            assert b"a newer grpc-backoff has upgraded it" in await process.stderr.read()

    assert [each.code for each in attempts] == ["UNAVAILABLE", "UNAVAILABLE", "OK"]
    assert after == before + 1
    expected = {f"{who}-{n}": 1 for who in ("old", "new", "left", "back") for n in range(NUMBER)}
    assert dict(shop.executed) == expected | {"new-0": 3}
