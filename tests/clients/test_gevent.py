"""FK-4: the threaded API in a program that uses gevent, through `grpc.experimental.gevent`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

METHOD = "/greened/Ask"
PROGRAM = Path(__file__).with_name("greened.py")


@pytest.mark.parametrize("kind", ["plain", "ours", "late"])
def test_gevent(server, kind):
    """FK-4: greenlets can make calls and wait for a connection without blocking other greenlets, as with plain grpc."""
    server.methods[METHOD] = lambda request: request
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, server.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout.readline() == "up\n"
        server.kill()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "away\n"
        server.start()
        assert program.communicate(timeout=60)[0] == "done\n"
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()
