"""What a process does that runs short of files or threads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sync.service import place

PROGRAM = Path(__file__).parent / "running_short.py"
FAST = ("grpc.initial_reconnect_backoff_ms", 100)
IDLE = ("grpc.client_idle_timeout_ms", 1000)


@pytest.mark.skipif(sys.platform != "linux", reason="the program limits itself as Linux allows it")
@pytest.mark.parametrize("what", ["files", "threads"])
@pytest.mark.parametrize("how", ["lost", "idle"])
def test_the_process_survives(what, how):
    """TH-5: without a free file or thread between two connections, calls fail, and the process goes on."""
    with place() as server:
        options = [FAST, IDLE] if how == "idle" else [FAST]
        command = [sys.executable, PROGRAM, what, repr(options), server.target]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout.readline() == "a\n"
                if how == "lost":
                    server.kill()
                program.stdin.write("short\n")
                program.stdin.flush()
                short = ast.literal_eval(program.stdout.readline() or "None")
                assert short is not None, f"it ended with {program.wait(20)}"
                if how == "lost":
                    server.start()
                rest, _ = program.communicate("over\n", timeout=60)
            finally:
                program.kill()
        assert (program.returncode, rest) == (0, "b\n")
        assert len(short) == 3
        assert ("a" in short) == (what == "threads" and how == "idle")  # it needs no new thread to connect
