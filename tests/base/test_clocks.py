"""The machine's monotonic clock, also in tests that have stopped the one that Python names."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from grpc_backoff.base.clocks import monotonic
from tests.sync.service import ROOT

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, it is Python's own")
STOPPED = """
import asyncio
import time
import grpc_backoff
from grpc_backoff import aio
from tests.echo import EchoStub, Message
from tests.sync.service import place

real = time.monotonic
with place() as server:
    time.monotonic = lambda: 4e9  # as freezegun does; what is loaded with a channel keeps this
    with grpc_backoff.insecure_channel(server.target) as channel:
        print(EchoStub(channel).Unary(Message(text="stopped")).text)
    time.monotonic = real

    async def main():
        async with aio.insecure_channel(server.target) as channel:
            print((await EchoStub(channel).Unary(Message(text="again"), timeout=20)).text)

    with grpc_backoff.insecure_channel(server.target) as channel:
        print(EchoStub(channel).Unary(Message(text="again"), timeout=20).text)
    asyncio.run(main())
"""


def test_monotonic():
    """It is the clock of `time.monotonic`."""
    before = time.monotonic()
    assert before <= monotonic() <= time.monotonic()


@LINUX
def test_stopped():
    """CB-12: a channel connects while a library for tests has stopped Python's clock, and so do those after it."""
    command = [sys.executable, "-W", "error", "-c", STOPPED]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["stopped", "again", "again"]
