"""A program that PyInstaller has frozen into one file."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
import sys

import grpc

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.ledger import Ledger


async def main(path):
    async with await Ledger.open(path) as ledger:
        await ledger.submit("dns:///shop:443", "/shop.Orders/Place", b"")
        print((await ledger.queue()).length)
    grpc_backoff.install()
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        print(type(channel).__module__)
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        print(type(channel).__module__)
    async with aio.insecure_channel("127.0.0.1:1") as channel:
        try:
            await channel.unary_unary("/shop.Orders/Place")(b"")
        except grpc_backoff.NoConnectionError as error:
            print(error.code())


asyncio.run(main(sys.argv[1]))
"""
UNUSED = ("matplotlib", "numpy", "psycopg", "rich", "scipy")  # of the environment; each lengthens the build


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_one_file(tmp_path):
    """LG-13: a one-file build has all modules that are imported on first use, and the SQL of a ledger's tables."""
    (tmp_path / "app.py").write_text(PROGRAM)
    build = [sys.executable, "-m", "PyInstaller", "--onefile", "--log-level", "ERROR", "--distpath", "."]
    excluded = [word for name in UNUSED for word in ("--exclude-module", name)]
    subprocess.run([*build, *excluded, "app.py"], cwd=tmp_path, check=True, timeout=300)

    done = subprocess.run(["./app", "ledger.db"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout.split("\n") == [
        "1",
        "grpc_backoff.aio.channel",
        "grpc_backoff.sync.channel",
        "StatusCode.UNAVAILABLE",
        "",
    ], done.stderr
